//! Live and from the file, the numbers are the same to the last digit.

use std::fs;

use serde_json::Value;

use crate::harness::folder::Folder;
use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{self, gputrace, run};

#[track_caller]
fn same(program: &str) {
    let folder = Folder::new();
    let live = folder.join("live.json");
    let mut command = gputrace();
    command.args(["run", "--simulate", "--json"]).arg(&live).arg("-o").arg(folder.join("out"));
    let program = compiled(program, Link::Driver);
    finish(command.arg("--").arg(&program)).expect_code(0);
    let live: Value = serde_json::from_str(&fs::read_to_string(live).unwrap()).unwrap();
    assert_eq!(live, tool::report(&[folder.join("out/trace.gputrace")]));
}

#[test]
fn reports_are_equal_live_and_from_the_file() {
    for program in ["basic", "threads", "graph", "fork_first", "many"] {
        same(program);
    }
}

#[test]
fn flamegraphs_are_equal_live_and_from_the_file() {
    let traced = run("threads").succeed();
    let folded = finish(gputrace().args(["flamegraph", "--folded"]).arg(traced.trace())).expect_code(0);
    assert_eq!(folded.stdout, traced.read("flame.folded"));
    let svg = finish(gputrace().arg("flamegraph").arg(traced.trace())).expect_code(0);
    assert_eq!(svg.stdout, traced.read("flame.svg"));
}

#[test]
fn summary_is_the_report() {
    let traced = run("basic").succeed();
    let report = finish(gputrace().arg("report").arg(traced.trace())).expect_code(0);
    assert_eq!(report.stdout, traced.read("summary.txt"));
}

#[test]
fn traces_read_together_add_up() {
    let (a, b) = (run("basic").succeed(), run("graph").succeed());
    let report = tool::report(&[a.trace(), b.trace()]);
    assert_eq!(tool::count(&report, "launches"), 11);
    assert_eq!(tool::calls(&report, "first_kernel"), 107);
    assert_eq!(tool::calls(&report, "second_kernel"), 4);
}
