//! The ladder of device times: without CUPTI the counts stay exact, and it is said once why.

use std::thread::sleep;
use std::time::Duration;

use crate::harness::folder::Folder;
use crate::harness::program::{Link, compiled};
use crate::harness::session::Session;
use crate::harness::tool::{Traced, count, dropped, report, run, run_with};

#[test]
fn device_times_off_keeps_the_counts() {
    let traced = run("basic").env("GPUTRACE_DEVICE_TIMES", "off").succeed();
    let report = traced.report();
    assert_eq!(count(&report, "launches"), 10);
    assert_eq!(report["device_time_coverage"].as_f64(), Some(0.0));
    let folded = traced.read("flame.folded");
    assert!(folded.contains("first_kernel"), "{folded}");
    assert!(traced.read("flame.svg").to_lowercase().contains("host time"));
}

#[test]
fn missing_libcupti_is_one_line_and_no_failure() {
    let traced = run("basic").env("GPUTRACE_CUPTI", "/nonexistent/libcupti.so").succeed();
    assert_eq!(count(&traced.report(), "launches"), 10);
    let talk = &traced.ended.stderr;
    assert!(talk.contains("/nonexistent/libcupti.so"), "{talk}");
}

/// CUPTI has no record of a copy that the CPU does: it is no operation whose times are missing.
#[test]
fn host_to_host_copies_are_counted_apart_from_missing_times() {
    let traced = run("host_copies").succeed();
    let report = traced.report();
    assert_eq!(count(&report, "executed_operations"), 11, "{report:#}");
    assert_eq!((count(&report, "host_to_host"), count(&report, "untimed_operations")), (8, 0), "{report:#}");
    assert_eq!((count(&report, "timed_operations"), &report["device_times"]), (3, &"full".into()));
    let summary = traced.read("summary.txt");
    assert!(
        summary.contains("By the CPU 8 copies from host to host, which have no device times\n"),
        "{summary}"
    );
    assert!(summary.contains("100% of 3 operations"), "{summary}");
    assert!(!summary.contains("device times are missing"), "{summary}");
}

#[test]
fn option_and_the_variable_are_one() {
    use crate::harness::folder::Folder;
    use crate::harness::process::finish;
    use crate::harness::program::{Link, compiled};
    use crate::harness::tool::{gputrace, report};
    let folder = Folder::new();
    let mut command = gputrace();
    command.args(["run", "--simulate", "--device-times", "off", "-o"]).arg(folder.join("out"));
    finish(command.arg("--").arg(compiled("basic", Link::Driver))).expect_code(0);
    let report = report(&[folder.join("out/trace.gputrace")]);
    assert_eq!(report["device_time_coverage"].as_f64(), Some(0.0));
}

#[test]
fn steadily_delivered_times_survive_a_killed_process() {
    for (delivery, timed) in [("steady", 20), ("full", 0)] {
        let traced = run("lags").env("GPUTRACE_DELIVERY", delivery).go();
        assert_eq!(traced.ended.signal(), Some(9), "{}", traced.ended.stderr);
        let report = traced.report();
        assert_eq!(count(&report, "launches"), 20, "{delivery}");
        assert_eq!(count(&report, "timed_operations"), timed, "{delivery}: {report:#}");
    }
}

#[test]
fn deep_queue_s_device_times_arrive_while_it_runs() {
    let traced = run("deep_queue").go();
    assert_eq!(traced.ended.signal(), Some(9), "{}", traced.ended.stderr);
    let report = traced.report();
    assert_eq!(count(&report, "launches"), 201);
    // Of some 120 kernels that had ended, those of the last 100 ms have no times; on a busy machine a few
    // more. The others arrived once and unchanged: their buffer was never returned.
    let timed = count(&report, "timed_operations");
    assert!((31..=121).contains(&timed), "{timed}");
    assert_eq!(long_kernels(&report), (timed - 1, (timed - 1) * LONG_NS));
}

const LONG_NS: u64 = 5_000_000;

/// How many long kernels have times, and what they took.
fn long_kernels(report: &serde_json::Value) -> (u64, u64) {
    let mut kernels = report["kernels"].as_array().unwrap().iter();
    let kernel = kernels.find(|kernel| kernel["name"] == "long_kernel").unwrap();
    (count(kernel, "timed_calls"), count(kernel, "total_ns"))
}

/// What was told before a buffer came back is not told again, and the rest is.
#[test]
fn deep_queue_s_device_times_arrive_once_each() {
    let report = run("deep_queue").arg("ends").succeed().report();
    assert_eq!(count(&report, "timed_operations"), 202);
    assert_eq!(long_kernels(&report), (200, 200 * LONG_NS));
    assert!(!report["notices"].to_string().contains("changes records"));
    // Some tens of milliseconds, where it is a second in a buffer that is not read along.
    let lag_ns = count(&report["cost"], "record_lag_max_ns");
    assert!(lag_ns < 700_000_000, "{lag_ns}");
}

/// What the program itself counted, and printed.
fn own_counts(traced: &Traced) -> [u64; 2] {
    let counts = traced.ended.stdout.split_whitespace().map(|count| count.parse().unwrap());
    counts.collect::<Vec<_>>().try_into().unwrap()
}

/// CUPTI 13.0 crashes where a flush comes in the midst of calls of several threads; the simulated one always
/// does here.
#[test]
fn no_call_is_under_way_during_a_flush() {
    for options in [&[][..], &["--stacks", "none"], &["--device-times", "windows"]] {
        let traced = run_with(options, compiled("flushed", Link::Driver))
            .env("GPUTRACE_SIM_FLUSHES_ALONE", "on")
            .succeed();
        let report = traced.report();
        let [launches, others] = own_counts(&traced);
        assert_eq!((count(&report, "launches"), dropped(&report)), (launches, 0), "{options:?}");
        assert_eq!(count(&report, "graph_launches"), others, "{options:?}");
        if options.first() != Some(&"--device-times") {
            assert_eq!(count(&report, "untimed_operations"), 0, "{options:?}");
        }
    }
}

/// CUPTI takes longer for a flush the longer a program runs. The program is not to wait for that: flushes
/// come less often instead, and all records in the end.
#[test]
fn flushes_that_take_long_are_rare() {
    let traced = run("held").arg("4").env("GPUTRACE_SIM_FLUSH_MS", "50").succeed();
    let [launches, held] = own_counts(&traced);
    // At once, and then 0.1, 0.3, 0.7 and 1.5 s after the one before, as it becomes known what one takes.
    // Flushes at each turn would be 40 of them.
    assert!((3..=6).contains(&held), "{held} of {launches}");
    let report = traced.report();
    assert_eq!((count(&report, "launches"), count(&report, "timed_operations")), (launches, launches));
}

/// A launch that does not return for long, as its stream's queue is full, keeps others' records from nobody.
/// On a busy machine a flush may stand still, and the next ones come later for it: so once in three times.
#[test]
fn call_that_is_blocked_for_long_does_not_put_off_flushes() {
    let mut lags_ns = Vec::new();
    while lags_ns.last().is_none_or(|lag_ns| *lag_ns >= 250_000_000) {
        assert!(lags_ns.len() < 3, "{lags_ns:?}");
        lags_ns.push(lag_beside_a_blocked_call_ns());
    }
}

fn lag_beside_a_blocked_call_ns() -> u64 {
    let folder = Folder::new();
    let program = compiled("under_way", Link::Driver);
    let mut session = Session::run(&folder, &[], program, &["400", "1"]);
    session.line();
    sleep(Duration::from_secs(2));
    session.release();
    session.line();
    let (status, stderr) = session.end();
    assert!(status.success(), "{stderr}");
    count(&report(&[folder.join("out")])["cost"], "record_lag_max_ns")
}

#[test]
fn libcupti_that_changes_its_records_is_not_read_early() {
    let traced = run("deep_queue").arg("ends").env("GPUTRACE_SIM_CHANGES_RECORDS", "on").succeed();
    let report = traced.report();
    assert_eq!(
        report["notices"].to_string().matches("changes records").count(),
        1,
        "{:#}",
        report["notices"]
    );
    assert_eq!(count(&report, "timed_operations"), 202);
}

/// A launch like the last one has few steps, in which the duration of its call has 32 bits of the counter's
/// ticks: two seconds at 2 GHz, and more with a slower one.
#[test]
fn launches_that_take_seconds_have_their_whole_duration() {
    let report = run("long_launch").succeed().report();
    let calls = report["calls"].as_array().unwrap();
    let launches = calls.iter().find(|call| call["name"] == "cuLaunchKernel").unwrap();
    assert_eq!((count(launches, "calls"), count(&report, "launches")), (2, 2), "{report:#}");
    assert!((4_500_000_000..20_000_000_000).contains(&count(launches, "min_ns")), "{launches:#}");
}
