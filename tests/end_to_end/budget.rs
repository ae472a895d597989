//! `--budget`: what tracing gave up to cost no more is said, and counts stay exact whatever that was.

use std::path::Path;

use serde_json::Value;

use crate::harness::folder::Folder;
use crate::harness::needs;
use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::session::{Session, ctl, eventually};
use crate::harness::tool::{Traced, calls, count, dropped, gputrace, run_with};

/// The C program by itself launches two kernels equally often.
fn c_program(percent: &str, arguments: &[&str]) -> (Traced, Value) {
    let run = run_with(&["--budget", percent], compiled("windows", Link::Driver));
    let traced = arguments.iter().fold(run, |run, argument| run.arg(argument)).succeed();
    let report = traced.report();
    let said: Vec<u64> = traced.ended.stdout.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let counts = ["launches", "graph_launches", "failed_calls"].map(|name| count(&report, name));
    assert_eq!(counts[..said.len()], said[..], "{report:#}");
    assert_eq!(count(&report, "device_only"), 0, "{report:#}");
    assert_eq!((dropped(&report), &report["complete"]), (0, &Value::Bool(true)), "{report:#}");
    (traced, report)
}

#[test]
fn report_says_whether_a_budget_was_kept() {
    let budget = |percent: &str| {
        let (traced, report) = c_program(percent, &["1", "3000"]);
        let budget = report["budget"].clone();
        assert!(count(&budget, "windows") > 0 && count(&budget, "wall_ns") > 1_500_000_000, "{budget:#}");
        let cost: u64 =
            ["hooks_ns", "records_ns", "switches_ns"].map(|part| count(&budget, part)).iter().sum();
        assert!(cost > 0 && budget["is_kept"] == (cost <= count(&budget, "allowed_ns")), "{budget:#}");
        let kept =
            if budget["is_kept"] == true { " kept: tracing cost " } else { " not kept: tracing cost " };
        assert!(traced.summary_words().contains(kept), "{}", traced.summary_words());
        (budget, traced.summary_words())
    };
    // The program launches some ten thousand times a second, of unoptimised hooks.
    let (large, words) = budget("50%");
    assert_eq!(large["is_kept"], true, "{large:#}");
    assert!(words.contains("as often as a budget of 50 % allows"), "{words}");
    let (small, _) = budget("0.5");
    let share = |budget: &Value| count(budget, "allowed_ns") as f64 / count(budget, "wall_ns") as f64;
    assert!((share(&small) - 0.005).abs() < 1e-4 && (share(&large) - 0.5).abs() < 1e-4);
    assert!(count(&small, "windows") < count(&large, "windows"), "{small:#} {large:#}");
}

#[test]
fn status_says_what_was_spent_of_a_budget() {
    let folder = Folder::new();
    let mut session = Session::run(&folder, &["--budget", "2%"], compiled("toggled", Link::Driver), &[]);
    assert_eq!(session.line(), "ready");
    let line = eventually("a measured interval", || {
        let status = ctl(session.pid(), &["status"]).expect_code(0).stdout;
        status.lines().find(|line| line.starts_with("Budget")).map(str::to_owned)
    });
    assert!(line.contains("2.0%, of which ") && line.contains("% spent: hooks "), "{line}");
    session.release();
    session.line();
    assert!(session.end().0.success());
}

#[test]
fn budgets_that_make_no_sense_are_refused() {
    for (options, why) in [
        (&["--budget", "0"][..], "a budget is 0.5 to 50 percent"),
        (&["--budget", "200%"], "a budget is 0.5 to 50 percent"),
        (&["--budget", "1", "--graph-times", "node"], "--budget and --graph-times=node do not go together"),
        (&["--budget", "1", "--device-times", "full"], "--budget and --device-times=full do not go together"),
        (&["--budget", "1", "--device-times", "off"], "--budget and --device-times=off do not go together"),
    ] {
        let ended = finish(gputrace().arg("run").args(options).args(["--", "true"])).expect_code(2);
        assert!(ended.stderr.contains(why), "{options:?}: {}", ended.stderr);
    }
}

#[test]
fn launches_that_are_only_counted_are_counted_exactly() {
    // Some ten thousand launches a second of each thread.
    let (traced, report) = c_program("0.5%", &["6", "9000"]);
    let budget = &report["budget"];
    assert!(count(&report, "counted_launches") > 10_000, "{budget:#}");
    assert!(count(budget, "counted_ns") > 1_000_000_000, "{budget:#}");
    let half = count(&report, "launches") / 2;
    assert_eq!((calls(&report, "second_kernel"), calls(&report, "first_kernel")), (half, half), "{report:#}");
    let words = traced.summary_words();
    assert!(
        words.contains("budget: from here on launches outside of windows may only be counted"),
        "{words}"
    );
}

#[test]
fn refused_launches_are_recorded_and_streams_of_a_short_life_are_counted_exactly() {
    let (_, report) = c_program("0.5%", &["6", "9000", "rough"]);
    assert!(count(&report, "counted_launches") > 10_000, "{report:#}");
    let failed = count(&report, "failed_calls");
    assert!(failed > 1_000, "{report:#}");
    let half = count(&report, "launches") / 2;
    assert_eq!((calls(&report, "second_kernel"), calls(&report, "first_kernel")), (half, half), "{report:#}");
    let errors = report["errors"]["list"].as_array().unwrap();
    assert!(
        errors.iter().any(|row| count(row, "calls") == failed && row["call"] == "cuLaunchKernel"),
        "{errors:#?}"
    );
}

#[test]
fn program_that_costs_little_has_device_times_all_the_time() {
    let (_, report) = c_program("50%", &["1", "14000"]);
    let budget = &report["budget"];
    assert!(count(budget, "full_ns") > 1_000_000_000, "{budget:#}");
    assert!(report["counted_launches"].is_null() && report["unstacked_launches"].is_null(), "{report:#}");
}

/// The program's own counts, by line, and the report.
fn by_line(percent: &str, arguments: &[&str]) -> (Vec<u64>, Traced) {
    let run = run_with(&["--budget", percent], "python3")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/launches_by_line.py"));
    let traced = arguments.iter().fold(run, |run, argument| run.arg(argument)).go();
    let said = traced.ended.stdout.split_whitespace().map(|word| word.parse().unwrap()).collect();
    (said, traced)
}

#[test]
fn lines_of_launches_without_stacks_are_estimated_from_those_in_windows() {
    if !needs::python("lines_of_launches_without_stacks_are_estimated_from_those_in_windows") {
        return;
    }
    let (said, traced) = by_line("0.5%", &["8000"]);
    let report = traced.report();
    let all: u64 = said.iter().sum();
    assert_eq!((count(&report, "launches"), calls(&report, "kernel")), (all, all), "{report:#}");
    assert_eq!((dropped(&report), &report["complete"]), (0, &Value::Bool(true)), "{report:#}");
    let left_out = count(&report, "unstacked_launches") + count(&report, "counted_launches");
    assert!(left_out > all / 4, "{left_out} of {all}");
    let source = std::fs::read_to_string("tests/programs/launches_by_line.py").unwrap();
    let line_of = |mark: &str| source.lines().position(|line| line.ends_with(mark)).unwrap() as u64 + 1;
    let share = |mark: &str| {
        let lines = report["lines"].as_array().unwrap();
        let line = lines.iter().find(|line| line["line"] == line_of(mark)).unwrap();
        count(&line["estimate"], "total_ns") as f64
    };
    let (often, seldom) = (share("# often"), share("# seldom"));
    assert!((often / seldom / 3.0 - 1.0).abs() < 0.1, "{often} {seldom}");
    let total = count(&report["estimate"], "total_ns") as f64;
    assert!(((often + seldom) / total - 1.0).abs() < 0.01, "{often} {seldom} {total}");
}

#[test]
fn launches_that_a_killed_program_counted_last_have_no_name_and_are_counted() {
    if !needs::python("launches_that_a_killed_program_counted_last_have_no_name_and_are_counted") {
        return;
    }
    let (said, traced) = by_line("0.5%", &["8000", "killed"]);
    let report = traced.report();
    assert_eq!(count(&report, "launches"), said.iter().sum::<u64>(), "{report:#}");
    let unnamed = count(&report, "launches") - calls(&report, "kernel");
    assert!(unnamed > 0 && unnamed < count(&report, "launches") / 4, "{unnamed} {report:#}");
}
