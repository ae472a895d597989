//! Names of threads and processes, however late they come.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::needs;
use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{Run, Traced, bare, gputrace, run_command, run_with};

/// Room for the title, which is written over the arguments.
const LONG_ARGUMENT: &str = "--room-for-a-title-that-is-written-over-what-stood-here-before-it-was-set";

fn named(traced: &Traced) -> (Vec<String>, Value) {
    let report = traced.report();
    let threads = report["threads"].as_array().unwrap();
    let mut labels: Vec<_> =
        threads.iter().map(|thread| thread["label"].as_str().unwrap().to_owned()).collect();
    labels.sort_unstable();
    (labels, report)
}

/// A run whose end the collector looked at in time: it has 20 ms after the process's good-bye, which may be
/// too little on a busy machine. Forty runs may all be made while it is busy.
fn looked_at(run: impl Fn() -> Run) -> Traced {
    let begun = Instant::now();
    let is_worth_a_try = |runs: &usize| *runs < 40 || begun.elapsed() < Duration::from_secs(30);
    let mut runs = (0..).take_while(is_worth_a_try).map(|_| run().arg(LONG_ARGUMENT).succeed());
    let is_titled = |traced: &Traced| !traced.report()["processes"][0]["title"].is_null();
    runs.find(is_titled).expect("a last look in time")
}

#[test]
fn late_names_of_threads_and_a_late_title_are_what_ps_shows() {
    let traced = looked_at(|| bare("names"));
    let (labels, report) = named(&traced);
    assert_eq!(labels, ["loader", "main", "reducer: 1", "thread 2"], "{report:#}");
    let title = "trainer: rank 2 --password [redacted] /secret/model";
    assert_eq!(report["processes"][0]["title"], title);
    let main = report["threads"].as_array().unwrap().iter().find(|thread| thread["label"] == "main").unwrap();
    assert_eq!(main["name"], "main thread");
    let folded = traced.read("flame.folded");
    for line in [";loader;cuLaunchKernel;", ";reducer: 1;cuLaunchKernel;", ";thread 2;cuLaunchKernel;"] {
        assert!(folded.contains(&format!("{title}{line}")), "{folded}");
    }
    assert!(traced.read("summary.txt").contains("\nreducer: 1 "), "{}", traced.read("summary.txt"));
    // The trace has it all.
    let again = finish(gputrace().args(["flamegraph", "--folded"]).arg(traced.trace())).expect_code(0).stdout;
    assert_eq!(again, folded);
}

/// In a namespace of process ids threads have other numbers than the collector sees.
#[test]
fn threads_of_a_namespace_of_process_ids_have_their_names() {
    let inside = ["-Urpf", "--mount-proc", "--"];
    if !Command::new("unshare").args(inside).arg("true").output().is_ok_and(|ended| ended.status.success()) {
        return needs::skipped(
            "names::threads_of_a_namespace_of_process_ids_have_their_names",
            "unshare is refused here",
        );
    }
    let run = || inside.iter().fold(run_command("unshare"), |run, argument| run.arg(argument));
    let expected = ["loader", "main", "reducer: 1", "thread 2"];
    // The last look may come when the title is still there and the threads are not.
    let mut runs = (0..10).map(|_| named(&looked_at(|| run().arg(compiled("names", Link::Driver)))));
    assert!(runs.any(|(labels, _)| labels == expected), "no run has the threads' names");
}

#[test]
fn title_is_redacted_like_a_command_line() {
    let check = |traced: Traced| {
        let mut all = traced.report().to_string() + &traced.ended.stderr;
        for file in std::fs::read_dir(&traced.output).unwrap() {
            all += &String::from_utf8_lossy(&std::fs::read(file.unwrap().path()).unwrap());
        }
        assert!(
            !all.contains("hunter2") && !all.contains("/secret/model") && !all.contains("rank 2"),
            "{all}"
        );
        traced.report()["processes"][0]["title"].clone()
    };
    let redacted = "trainer: [redacted]";
    assert_eq!(check(looked_at(|| bare("names").env("GPUTRACE_REDACT", "on"))), redacted);
    let title = check(looked_at(|| run_with(&["--redact"], compiled("names", Link::Driver))));
    assert_eq!(title, redacted);
}
