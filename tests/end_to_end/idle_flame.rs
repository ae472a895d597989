//! The flamegraph of idle time: why the GPU did nothing, and where the program was meanwhile.

use std::path::{Path, PathBuf};

use crate::harness::process::finish;
use crate::harness::tool::{Traced, bare, gputrace, run_command};
use crate::python_stacks::interpreters;

pub fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/planted.py")
}

/// The line of the program that ends in that comment, within the function.
pub fn line(function: &str, mark: &str) -> usize {
    let text = std::fs::read_to_string(program()).unwrap();
    let (begin, mark) = (format!("def {function}("), format!("  # {mark}"));
    let mut lines = text.lines().enumerate().skip_while(|(_, line)| !line.starts_with(&begin));
    1 + lines.find(|(_, line)| line.ends_with(&mark)).unwrap_or_else(|| panic!("{mark} in {function}")).0
}

/// The folded lines of idle time, each with its microseconds.
fn idle(traced: &Traced) -> Vec<(String, u64)> {
    let mut command = gputrace();
    let command = command.args(["flamegraph", "--weight", "idle", "--folded"]).arg(traced.trace());
    let folded = finish(command).expect_code(0).stdout;
    let lines = folded.lines().map(|line| line.rsplit_once(' ').unwrap());
    lines.map(|(stack, us)| (stack.to_owned(), us.parse().unwrap())).collect()
}

#[test]
fn idle_time_is_under_the_lines_that_it_lies_between() {
    for (minor, python) in interpreters("idle_flame::idle_time_is_under_the_lines_that_it_lies_between") {
        let traced = run_command(&python).arg(program()).arg("slow_host").succeed();
        let idle = idle(&traced);
        let at = |mark| format!("slow_host planted.py:{}", line("slow_host", mark));
        let between = format!(";between {} and {};[in host code]", at("before"), at("after"));
        let us: u64 = idle.iter().filter(|(stack, _)| stack.contains(&between)).map(|(_, us)| us).sum();
        // 30 times 5 ms, less the kernel that runs meanwhile.
        assert!((30 * 4_600..60 * 4_600).contains(&us), "Python 3.{minor}: {idle:?}");
        let report = traced.report();
        let causes = report["devices"][0]["idle"]["causes"].as_array().unwrap();
        let between = causes.iter().filter(|cause| cause["cause"] != "begin" && cause["cause"] != "end");
        let idle_ns: u64 = between.map(|cause| cause["ns"].as_u64().unwrap()).sum();
        let all: u64 = idle.iter().map(|(_, us)| us).sum();
        assert_eq!(all, (idle_ns + 500) / 1_000);
        let drawing = traced.read("flame-idle.svg");
        assert!(drawing.contains("of idle GPU time between operations (simulated)"), "{drawing}");
        assert!(drawing.contains("before the first and after the last are left out"), "{drawing}");
    }
}

#[test]
fn trace_without_device_times_has_no_idle_flamegraph() {
    let traced = bare("many").env("GPUTRACE_DEVICE_TIMES", "off").succeed();
    assert!(!traced.output.join("flame-idle.svg").exists());
    let mut command = gputrace();
    let ended = finish(command.args(["flamegraph", "--weight", "idle"]).arg(traced.trace())).expect_code(1);
    assert!(ended.stderr.contains("the trace has no device times"), "{}", ended.stderr);
    let mut command = gputrace();
    let command = command.args(["flamegraph", "--weight", "idle", "--to", "1s"]).arg(traced.trace());
    let ended = finish(command).expect_code(2);
    assert!(ended.stderr.contains("is of the whole trace"), "{}", ended.stderr);
}
