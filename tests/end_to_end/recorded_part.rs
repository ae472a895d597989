//! Sessions that record a part of a program: by time, and by ranges that the program itself begins and ends.

use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::folder::Folder;
use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::session::{Session, ctl, eventually};
use crate::harness::tool::{Traced, bare_command, count, gputrace, run_with};

const PER_ROUND: u64 = 10;

/// Runs `captured HOW` with these options.
#[track_caller]
fn captured(options: &[&str], how: &str) -> Traced {
    run_with(options, compiled("captured", Link::Driver)).arg(how).succeed()
}

/// Launches of the report: recorded and only counted.
fn launches(report: &Value) -> (u64, u64) {
    (count(report, "launches"), report["recording"]["paused_launches"].as_u64().unwrap_or(0))
}

#[track_caller]
fn expect(traced: &Traced, recorded: u64, ranges: [u64; 3]) {
    let report = traced.report();
    assert_eq!(launches(&report), (recorded, 4 * PER_ROUND - recorded), "{:#}", report["recording"]);
    assert_eq!(report["complete"], true, "{report:#}");
    assert_eq!(report["dropped"], serde_json::json!({}));
    assert_eq!(count(&report, "device_only"), 0);
    assert_eq!(count(&report, "timed_operations"), recorded, "each recorded launch has its device time");
    let [wanted, begun, ended] = ranges;
    let expected = serde_json::json!({ "wanted": wanted, "begun": begun, "ended": ended });
    assert_eq!(report["recording"]["capture_ranges"], expected);
}

#[test]
fn first_range_of_each_kind_is_recorded_exactly() {
    for (range, how) in [
        ("cudaProfilerApi", "profiler"),
        ("nvtx:step", "push"),
        ("nvtx:step@library", "domain"),
        ("nvtx:step", "start"),
        ("nvtx:step", "early"),
        ("nvtx:step", "forked"),
        // The range before the program uses CUDA has nothing to record, and is not the one.
        ("nvtx:step", "warmup"),
    ] {
        let traced = captured(&["--capture-range", range], how);
        expect(&traced, PER_ROUND, [1, 1, 1]);
        assert_eq!(traced.report()["recording"]["intervals"].as_array().unwrap().len(), 1, "{range} {how}");
    }
}

#[test]
fn flamegraph_and_spans_say_what_was_recorded() {
    let traced =
        captured(&["--capture-range", "cudaProfilerApi", "--capture-range-end", "repeat:2"], "profiler");
    let flame = traced.read("flame.svg");
    assert!(flame.contains("in 2 intervals") && flame.contains("recorded "), "{}", &flame[..2000]);
    let mut export = gputrace();
    export.args(["export", "--format", "otlp-json"]).arg(traced.trace());
    let spans = finish(&mut export).expect_code(0).stdout;
    let (_, attribute) = spans.split_once("\"gpu.cuda.recorded_intervals\"").unwrap();
    let (intervals, _) = attribute.split_once(']').unwrap();
    assert_eq!(intervals.matches("stringValue").count(), 2, "{intervals}");
    let all = captured(&[], "none");
    assert!(!all.read("flame.svg").contains("recorded "));
}

#[test]
fn ranges_are_recorded_as_often_as_asked() {
    let repeated =
        captured(&["--capture-range", "cudaProfilerApi", "--capture-range-end", "repeat:2"], "profiler");
    expect(&repeated, 2 * PER_ROUND, [2, 2, 2]);
    let more = captured(&["--capture-range", "nvtx:step", "--capture-range-end", "repeat:3"], "push");
    expect(&more, 2 * PER_ROUND, [3, 2, 2]);
    let summary = more.read("summary.txt");
    assert!(summary.contains("2 of 3 capture ranges began"), "{summary}");
}

/// A range that begins while another thread's ends is recorded. Each has one launch; one that begins before
/// the other has ended is a part of it, and its launch is late.
#[test]
fn range_that_begins_as_another_ends_is_recorded() {
    const ROUNDS: u64 = 1000;
    for times in ["on", "off"] {
        let report = run_with(
            &["--capture-range", "nvtx:step", "--capture-range-end", "repeat:3000", "--device-times", times],
            compiled("captured", Link::Driver),
        )
        .arg("neighbours")
        .arg(ROUNDS.to_string())
        .succeed()
        .report();
        let (recorded, paused) = launches(&report);
        let begun = count(&report["recording"]["capture_ranges"], "begun");
        assert_eq!(recorded + paused, 2 * ROUNDS);
        assert!(begun > ROUNDS && recorded >= begun, "{recorded} launches of {begun} ranges, times {times}");
    }
}

#[test]
fn range_that_never_begins_is_said_in_the_summary() {
    for (range, how) in [("nvtx:step", "profiler"), ("nvtx:step@library", "push"), ("launches:41-50", "none")]
    {
        let traced = captured(&["--capture-range", range], how);
        expect(&traced, 0, [1, 0, 0]);
        let summary = traced.read("summary.txt");
        assert!(summary.contains("no capture range began"), "{summary}");
    }
}

#[test]
fn launches_are_recorded_by_their_numbers() {
    for (range, recorded, ends) in [
        ("launches:1-1", 1, 1),
        ("launches:12-34", 23, 1),
        ("launches:40-40", 1, 1),
        ("launches:31-100", 10, 0),
    ] {
        let traced = captured(&["--capture-range", range], "none");
        expect(&traced, recorded, [1, 1, ends]);
        let summary = traced.read("summary.txt");
        assert_eq!(summary.contains("1 capture range did not end"), ends == 0, "{summary}");
    }
}

#[test]
fn launches_of_many_threads_are_counted_once() {
    for times in ["on", "off"] {
        let folder = Folder::new();
        let mut session = Session::run(
            &folder,
            &["--capture-range", "launches:101-300", "--device-times", times],
            compiled("toggled", Link::Driver),
            &[],
        );
        assert_eq!(session.line(), "ready");
        eventually("the end of the range", || {
            let status = ctl(session.pid(), &["status", "--json"]).expect_code(0);
            status.stdout.contains("capture-ranges-over").then_some(())
        });
        session.release();
        let line = session.line();
        let own: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
        let (status, stderr) = session.end();
        assert!(status.success(), "{stderr}");
        let report = finish(gputrace().args(["report", "--json"]).arg(folder.join("out"))).expect_code(0);
        let report: Value = serde_json::from_str(&report.stdout).unwrap();
        let replays = report["recording"]["paused_graph_launches"].as_u64().unwrap();
        assert!(own[0] + own[1] > 300, "{line}");
        assert_eq!(count(&report, "launches") + count(&report, "graph_launches"), 200, "{times} {report:#}");
        assert_eq!(launches(&report).0 + launches(&report).1, own[0]);
        assert_eq!(count(&report, "graph_launches") + replays, own[1]);
        assert_eq!(count(&report, "device_only"), 0);
        assert_eq!(report["complete"], true);
    }
}

#[test]
fn shutdown_ends_the_command_and_says_so() {
    let options = ["--capture-range", "cudaProfilerApi", "--capture-range-end", "stop-shutdown"];
    let begin = Instant::now();
    let run =
        run_with(&options, compiled("captured", Link::Driver)).arg("profiler").env("CAPTURED_WAITS", "1");
    let traced = run.go();
    assert!(begin.elapsed() < Duration::from_secs(50));
    assert_eq!(traced.ended.status.code(), None, "{:?}", traced.ended.status);
    assert!(traced.ended.stderr.contains("sending SIGTERM to process"), "{}", traced.ended.stderr);
    assert_eq!(count(&traced.report(), "launches"), PER_ROUND);
}

#[test]
fn bare_program_has_ranges_by_variables() {
    let traced = bare_command(compiled("captured", Link::Driver))
        .arg("profiler")
        .env("GPUTRACE_CAPTURE_RANGE", "cudaProfilerApi")
        .env("GPUTRACE_CAPTURE_RANGE_END", "repeat:2")
        .succeed();
    expect(&traced, 2 * PER_ROUND, [2, 2, 2]);
}

fn intervals(report: &Value) -> Vec<(f64, f64)> {
    let seconds = |interval: &Value, key: &str| interval[key].as_f64().unwrap() / 1e9;
    let all = report["recording"]["intervals"].as_array().unwrap();
    all.iter().map(|interval| (seconds(interval, "begin_ns"), seconds(interval, "end_ns"))).collect()
}

#[test]
fn session_records_after_the_delay_and_for_the_duration() {
    let folder = Folder::new();
    let options = ["--delay", "0.4", "--duration", "0.3"];
    let mut session = Session::run(&folder, &options, compiled("toggled", Link::Driver), &[]);
    assert_eq!(session.line(), "ready");
    sleep(Duration::from_millis(1500));
    session.release();
    session.end();
    let report = finish(gputrace().args(["report", "--json"]).arg(folder.join("out"))).expect_code(0);
    let report: Value = serde_json::from_str(&report.stdout).unwrap();
    let [(begin_s, end_s)] = intervals(&report)[..] else { panic!("{:#}", report["recording"]) };
    assert!(begin_s >= 0.4, "{begin_s}");
    let recorded_s = end_s - begin_s;
    assert!((0.2..1.0).contains(&recorded_s), "{recorded_s}");
    assert!(launches(&report).0 > 0 && launches(&report).1 > 0);
    assert_eq!(report["complete"], true);
}

#[test]
fn duration_of_a_session_that_starts_paused_counts_from_its_start() {
    let folder = Folder::new();
    let options = ["--start-paused", "--duration", "0.3"];
    let mut session = Session::run(&folder, &options, compiled("toggled", Link::Driver), &[]);
    assert_eq!(session.line(), "ready");
    sleep(Duration::from_millis(500));
    ctl(session.pid(), &["start"]).expect_code(0);
    let pauses = || {
        let status: Value = serde_json::from_str(&ctl(session.pid(), &["status", "--json"]).stdout).unwrap();
        Some(count(&status["recording"], "launches")).filter(|launches| *launches > 0)
    };
    eventually("launches that are recorded", pauses);
    sleep(Duration::from_millis(900));
    session.release();
    session.end();
    let report = finish(gputrace().args(["report", "--json"]).arg(folder.join("out"))).expect_code(0);
    let report: Value = serde_json::from_str(&report.stdout).unwrap();
    let [(begin_s, end_s)] = intervals(&report)[..] else { panic!("{:#}", report["recording"]) };
    assert!(begin_s > 0.4 && (0.2..0.9).contains(&(end_s - begin_s)), "{begin_s} {end_s}");
}

#[test]
fn contradictory_and_senseless_options_are_refused() {
    for (options, said) in [
        (&["--start-paused", "--delay", "1"][..], "do not go together"),
        (&["--capture-range", "cudaProfilerApi", "--start-paused"], "do not go together"),
        (&["--capture-range", "cudaProfilerApi", "--delay", "1"], "do not go together"),
        (&["--capture-range", "nvtx:a", "--duration", "1"], "do not go together"),
        (&["--capture-range", "nvtx:a", "--stacks", "python"], "do not go together"),
        (&["--capture-range", "launches:1-2", "--capture-range-end", "repeat:2"], "do not go together"),
        (&["--capture-range", "launches:5-4"], "FROM is greater than TO"),
        (&["--capture-range", "launches:0-4"], "counted from 1"),
        (&["--capture-range", "nvtx:"], "lacks the range's name"),
        (&["--capture-range", "profiler"], "a range is cudaProfilerApi"),
        (&["--capture-range", "nvtx:a", "--capture-range-end", "repeat:0"], "would record no range"),
        (&["--capture-range-end", "stop"], "without --capture-range"),
        (&["--delay", "0"], "seconds are a number"),
        (&["--duration", "-1"], ""),
    ] {
        let mut command = gputrace();
        command.args(["run", "--simulate"]).args(options).args(["--", "true"]);
        let refused = finish(&mut command).expect_code(2);
        assert!(refused.stderr.contains(said), "{options:?}: {}", refused.stderr);
    }
    for (name, value) in [("GPUTRACE_CAPTURE_RANGE", "launches:5-4"), ("GPUTRACE_DELAY", "soon")] {
        let mut command = gputrace();
        command.args(["run", "--simulate", "--", "true"]).env(name, value);
        let refused = finish(&mut command).expect_code(2);
        assert!(refused.stderr.contains(&format!("{name}={value}")), "{}", refused.stderr);
    }
}
