//! A session that is paused and goes on: what is recorded, what is only counted, and when.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::folder::Folder;
use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::session::{Session, ctl};
use crate::harness::tool::{count, gputrace, report, run};

fn toggled() -> PathBuf {
    compiled("toggled", Link::Driver)
}

/// The report of the session, after the program has ended, and the program's own counts: launches, graph
/// launches, copies, fills, waits.
#[track_caller]
fn ended(folder: &Folder, session: Session) -> (Value, [u64; 5]) {
    let (report, counts) = ended_with_counts(folder, session);
    (report, counts.try_into().unwrap())
}

/// The same for any program that prints counts at its end.
#[track_caller]
fn ended_with_counts(folder: &Folder, mut session: Session) -> (Value, Vec<u64>) {
    session.release();
    let counts = session.line().split(' ').map(|number| number.parse().unwrap()).collect();
    let (status, stderr) = session.end();
    assert!(status.success(), "{stderr}");
    let report = finish(gputrace().args(["report", "--json"]).arg(folder.join("out"))).expect_code(0);
    (serde_json::from_str(&report.stdout).unwrap(), counts)
}

#[track_caller]
fn switch(session: &Session, to: &str) -> Value {
    let answer: Value =
        serde_json::from_str(&ctl(session.pid(), &[to, "--json"]).expect_code(0).stdout).unwrap();
    assert_eq!(answer["recording"], to == "start");
    assert_eq!(count(&answer, "processes"), 1, "{answer}");
    answer
}

/// Counts of calls in the report: launches, graph launches, copies, fills, waits.
fn recorded(report: &Value) -> [u64; 5] {
    let calls = |class: &str| {
        let found = report["call_classes"].as_array().unwrap().iter().find(|call| call["class"] == class);
        found.map_or(0, |call| call["calls"].as_u64().unwrap())
    };
    [count(report, "launches"), count(report, "graph_launches"), calls("copy"), calls("fill"), calls("wait")]
}

fn paused(report: &Value) -> [u64; 5] {
    ["launches", "graph_launches", "copies", "memsets", "waits"]
        .map(|what| count(&report["recording"], &format!("paused_{what}")))
}

#[track_caller]
fn assert_every_call_is_known_once(report: &Value, own: [u64; 5]) {
    let sums: Vec<u64> =
        recorded(report).iter().zip(paused(report)).map(|(one, other)| one + other).collect();
    assert_eq!(sums, own, "recorded {:?}, paused {:?}", recorded(report), paused(report));
    assert_eq!(count(report, "device_only"), 0);
    assert_eq!(report["complete"], true, "{report:#}");
    assert_eq!(report["dropped"], serde_json::json!({}));
}

#[test]
fn paused_and_recorded_calls_add_up_to_the_program_s() {
    let folder = Folder::new();
    let mut session = Session::run(&folder, &["--graph-times", "node"], toggled(), &[]);
    assert_eq!(session.line(), "ready");
    for _ in 0..4 {
        sleep(Duration::from_millis(60));
        switch(&session, "stop");
        sleep(Duration::from_millis(40));
        switch(&session, "start");
    }
    let (report, own) = ended(&folder, session);
    assert_every_call_is_known_once(&report, own);
    let (recorded, paused) = (recorded(&report), paused(&report));
    assert!(recorded.iter().chain(&paused).all(|count| *count > 0), "{recorded:?} {paused:?}");
    // What was recorded has its device times; of a graph's three nodes too.
    assert_eq!(count(&report, "timed_operations"), recorded[0] + 3 * recorded[1] + recorded[2] + recorded[3]);
    assert_eq!(report["recording"]["intervals"].as_array().unwrap().len(), 5);
    let wall = count(&report, "wall_ns");
    let time = count(&report["recording"], "recorded_ns");
    assert!(time > 0 && time < wall, "{time} {wall}");
}

#[test]
fn session_that_starts_paused_records_from_the_start_on() {
    let folder = Folder::new();
    let mut session = Session::run(&folder, &["--start-paused"], toggled(), &[]);
    assert_eq!(session.line(), "ready");
    sleep(Duration::from_millis(100));
    let at_s = switch(&session, "start")["at_s"].as_f64().unwrap();
    sleep(Duration::from_millis(100));
    let (report, own) = ended(&folder, session);
    assert_every_call_is_known_once(&report, own);
    let intervals = report["recording"]["intervals"].as_array().unwrap();
    assert_eq!(intervals.len(), 1, "{intervals:?}");
    let began_s = intervals[0]["begin_ns"].as_f64().unwrap() / 1e9;
    assert!(began_s > 0.05 && began_s <= at_s, "{began_s} {at_s}");
    // Kernels, streams and memory that were made before the start have their names.
    assert_eq!(report["kernels"][0]["name"], "first_kernel");
}

#[test]
fn device_times_that_were_off_at_the_start_of_a_paused_session_go_on_later() {
    let folder = Folder::new();
    let program = compiled("under_way", Link::Driver);
    let mut session = Session::run(&folder, &["--start-paused"], program, &["1"]);
    assert_eq!(session.line(), "ready");
    for words in [&["set", "device-times=off"][..], &["start"], &["set", "device-times=on"]] {
        sleep(Duration::from_millis(100));
        ctl(session.pid(), words).expect_code(0);
    }
    sleep(Duration::from_millis(400));
    let (report, _) = ended_with_counts(&folder, session);
    let timed = count(&report, "timed_operations");
    let without = count(&report["switched_times"], "switched_off_operations");
    assert!(timed > 100 && without > 100, "{timed} {without}");
    assert_eq!((timed + without, count(&report, "device_only")), (count(&report, "executed_operations"), 0));
}

/// What the report notes of a session that begins paused, whose libcupti refuses to be subscribed to.
fn notes_where_cupti_refuses(
    options: &[&str],
    program: &str,
    arguments: &[&str],
    is_started: bool,
) -> String {
    let folder = Folder::new();
    let cupti = format!("GPUTRACE_CUPTI={}", compiled("trap_cupti_stub", Link::Shared).display());
    let program = compiled(program, Link::Driver);
    let words = [&[cupti.as_str(), "STUB_SUBSCRIBE=39", program.to_str().unwrap()], arguments].concat();
    let more_options = [&["--start-paused"], options].concat();
    let mut session = Session::run(&folder, &more_options, "env", &words);
    assert_eq!(session.line(), "ready");
    sleep(Duration::from_millis(100));
    let device_times = || {
        let status = ctl(session.pid(), &["status", "--json"]).expect_code(0).stdout;
        let status: Value = serde_json::from_str(&status).unwrap();
        status["settings"]["device-times"].clone()
    };
    if is_started {
        switch(&session, "start");
        sleep(Duration::from_millis(100));
    } else if program.ends_with("under_way") && options.is_empty() {
        assert_eq!(device_times(), "on", "as it will be");
        for to in ["off", "on"] {
            ctl(session.pid(), &["set", &format!("device-times={to}")]).expect_code(0);
            assert_eq!(device_times(), to);
        }
    }
    let (report, own) = ended_with_counts(&folder, session);
    assert_eq!(own[0], recorded(&report)[0] + paused(&report)[0]);
    assert_eq!((is_started, count(&report, "device_only")), (recorded(&report)[0] > 0, 0));
    report["notices"].to_string()
}

/// A subscriber alone makes PyTorch slower.
#[test]
fn session_that_starts_paused_subscribes_to_cupti_as_it_needs_to() {
    let refused = "another tool of this process uses CUPTI already";
    let notes = notes_where_cupti_refuses(&[], "under_way", &["1"], false);
    assert!(!notes.contains(refused), "{notes}");
    let notes = notes_where_cupti_refuses(&[], "under_way", &["1"], true);
    assert!(notes.contains(refused), "{notes}");
    // It makes a graph, whose nodes CUPTI numbers as they are made.
    let notes = notes_where_cupti_refuses(&[], "toggled", &[], false);
    assert!(notes.contains(refused), "{notes}");
    // CUPTI must see all graphs that are to be timed whole.
    let notes = notes_where_cupti_refuses(&["--graph-times", "graph"], "under_way", &["1"], false);
    assert!(notes.contains(refused), "{notes}");
}

/// Each of the driver's launching functions gets the arguments that the program passed, and what fails is
/// recorded; also in more threads than have a count of their own for launches under way.
#[test]
fn paused_launches_are_passed_on_as_they_are() {
    let folder = Folder::new();
    let driver = folder.join("driver");
    fs::create_dir(&driver).unwrap();
    fs::copy(compiled("checking_driver", Link::Shared), driver.join("libcuda.so.1")).unwrap();
    let program = compiled("launches", Link::Driver);
    let cupti = compiled("trap_cupti_stub", Link::Shared);
    for (number, (device_times, threads)) in [("off", 1), ("on", 1), ("on", 40)].into_iter().enumerate() {
        let out = folder.join(&format!("out{number}"));
        let mut run = gputrace();
        run.args(["run", "--start-paused", "-o"]).arg(&out).arg("--").arg(&program).arg(threads.to_string());
        run.env("GPUTRACE_DEVICE_TIMES", device_times).env("GPUTRACE_CUPTI", &cupti);
        let ended = finish(run.env("LD_LIBRARY_PATH", &driver)).expect_code(0);
        let launches = 200 * 6 * threads;
        assert_eq!(ended.stdout, format!("{launches} 0\n"), "{}", ended.stderr);
        let report = report(&[out.join("trace.gputrace")]);
        assert_eq!((recorded(&report)[0], paused(&report)[0]), (0, launches), "{report:#}");
        let mut failed: BTreeMap<&str, u64> = BTreeMap::new();
        for error in report["errors"]["list"].as_array().unwrap() {
            *failed.entry(error["call"].as_str().unwrap()).or_default() += count(error, "calls");
        }
        assert_eq!(failed.into_values().collect::<Vec<_>>(), [threads; 6], "{:#}", report["errors"]);
        assert!(count(&report["cost"], "sampled_hooks") > launches / 100, "{:#}", report["cost"]);
    }
}

/// Its callbacks go on before its first launch.
#[test]
fn session_that_records_from_its_begin_waits_for_no_launch() {
    let report = run("basic").succeed().report();
    assert_eq!(report["notices"].as_array().map(Vec::len), Some(0), "{:#}", report["notices"]);
}

/// The report of `under_way`, started paused, and how long its start took.
#[track_caller]
fn started_under_way(arguments: &[&str]) -> (Value, Duration) {
    let folder = Folder::new();
    let program = compiled("under_way", Link::Driver);
    let mut session = Session::run(&folder, &["--start-paused"], program, arguments);
    assert_eq!(session.line(), "ready");
    sleep(Duration::from_millis(100));
    let begin = Instant::now();
    switch(&session, "start");
    let took = begin.elapsed();
    sleep(Duration::from_millis(700));
    let (report, own) = ended_with_counts(&folder, session);
    let ([launches, _, copies, ..], [paused_launches, _, paused_copies, ..]) =
        (recorded(&report), paused(&report));
    assert_eq!(own, [launches + paused_launches, copies + paused_copies]);
    (report, took)
}

/// CUPTI calls back at launches from the first start on, which comes while one thread is inside of a launch
/// and another one inside of a copy.
#[test]
fn launches_after_a_start_in_the_middle_of_one_have_their_own_times() {
    let (report, took) = started_under_way(&["10"]);
    assert!(took < Duration::from_secs(2), "{took:?}");
    let [launches, _, copies, ..] = recorded(&report);
    assert!(launches > 100 && paused(&report)[0] > 10, "{launches} {:?}", paused(&report));
    assert_eq!((count(&report, "timed_operations"), count(&report, "device_only")), (launches + copies, 0));
    // A time of another launch would make a short kernel long.
    let times = |name: &str| {
        let kernels = report["kernels"].as_array().unwrap();
        let kernel = kernels.iter().find(|kernel| kernel["name"] == name).unwrap();
        ["timed_calls", "max_ns", "min_ns"].map(|what| count(kernel, what))
    };
    let (long, short, slow) = (times("long_kernel"), times("first_kernel"), times("slow_kernel"));
    assert_eq!(long[0] + short[0] + slow[0], launches);
    assert_eq!(long[1..], [300_000_000; 2]);
    assert!(short[1] < 1_000_000 && slow[1] < 1_000_000, "{short:?} {slow:?}");
}

/// Nearly all the time one thread is inside of a launch that was to be recorded, or counted, as it began.
#[test]
fn launches_during_which_a_session_pauses_or_goes_on_are_known_once_and_so_are_the_next() {
    let folder = Folder::new();
    let mut session = Session::run(&folder, &[], compiled("under_way", Link::Driver), &["100"]);
    assert_eq!(session.line(), "ready");
    for to in ["stop", "start", "stop", "start"] {
        sleep(Duration::from_millis(250));
        switch(&session, to);
    }
    sleep(Duration::from_millis(250));
    let (report, own) = ended_with_counts(&folder, session);
    let ([launches, _, copies, ..], [paused_launches, _, paused_copies, ..]) =
        (recorded(&report), paused(&report));
    assert_eq!(own, [launches + paused_launches, copies + paused_copies]);
    assert!(launches > 8 && paused_launches > 4, "{launches} {paused_launches}");
    assert_eq!(report["complete"], true, "{:#}", report["dropped"]);
}

/// A launch that does not return delays the start by a tenth of a second, and is reported.
#[test]
fn launch_that_does_not_return_does_not_keep_a_session_from_starting() {
    let (report, took) = started_under_way(&["600"]);
    assert!(took < Duration::from_secs(2), "{took:?}");
    let notices = report["notices"].to_string();
    assert!(notices.contains("a launch did not return for 0.1 s"), "{notices}");
    assert!(count(&report, "launches") > 0, "{report:#}");
}

/// A copy that does not return delays the start by two seconds at most, and is reported.
#[test]
fn copy_that_does_not_return_does_not_keep_a_session_from_starting() {
    let (report, took) = started_under_way(&["10", "6000"]);
    assert!(took > Duration::from_secs(1) && took < Duration::from_secs(5), "{took:?}");
    let notices = report["notices"].to_string();
    assert!(notices.contains("a copy or the launch of a graph was under way"), "{notices}");
    assert!(count(&report, "launches") > 0, "{report:#}");
}

/// The range begins while another thread is inside of a copy of 0.3 s.
#[test]
fn capture_range_begins_at_once_while_another_thread_copies() {
    let folder = Folder::new();
    let program = compiled("under_way", Link::Driver);
    let options = ["--capture-range", "cudaProfilerApi"];
    let mut session = Session::run(&folder, &options, program, &["0", "range"]);
    assert_eq!(session.line(), "ready");
    sleep(Duration::from_millis(400));
    let (report, _) = ended_with_counts(&folder, session);
    let first = report["kernels"].as_array().unwrap().iter().find(|kernel| kernel["name"] == "first_kernel");
    assert_eq!(first.map(|kernel| count(kernel, "timed_calls")), Some(20), "{report:#}");
    assert_eq!(count(&report, "device_only"), 0);
    // One would say that the copy was waited for.
    assert!(!report["notices"].to_string().contains("a launch did not return"), "{report:#}");
}

#[test]
fn paused_session_without_a_start_counts_only() {
    let folder = Folder::new();
    let mut session = Session::run(&folder, &["--start-paused"], toggled(), &[]);
    assert_eq!(session.line(), "ready");
    sleep(Duration::from_millis(50));
    let (report, own) = ended(&folder, session);
    assert_eq!((recorded(&report), paused(&report)), ([0; 5], own));
    assert_eq!(count(&report["recording"], "recorded_ns"), 0);
    assert_eq!(count(&report, "executed_operations"), 0);
    assert_eq!(report["complete"], true, "{report:#}");
    // The hooks of a pause cost something too.
    let cost = |what: &str| report["cost"][what].as_f64().unwrap();
    let least_ns = cost("hook_ns") * own.iter().sum::<u64>() as f64;
    assert!(cost("hooks_total_ns") >= least_ns, "{} for {own:?}", report["cost"]);
}

/// Windows turn on the records of copies, of which none is the session's yet.
#[test]
fn paused_session_takes_no_records_of_copies_for_its_windows() {
    let folder = Folder::new();
    let mut session = Session::run(&folder, &["--start-paused"], toggled(), &[]);
    assert_eq!(session.line(), "ready");
    ctl(session.pid(), &["set", "device-times=windows"]).expect_code(0);
    sleep(Duration::from_millis(200));
    let (report, own) = ended(&folder, session);
    assert_eq!((recorded(&report), paused(&report)), ([0; 5], own));
    assert_eq!((count(&report, "device_only"), count(&report, "executed_operations")), (0, 0), "{report:#}");
}

#[test]
fn pausing_twice_is_no_error() {
    let folder = Folder::new();
    let mut session = Session::run(&folder, &["--device-times", "off"], toggled(), &[]);
    assert_eq!(session.line(), "ready");
    for to in ["start", "stop", "stop", "start", "start", "stop"] {
        switch(&session, to);
    }
    let (report, own) = ended(&folder, session);
    assert_every_call_is_known_once(&report, own);
}

#[test]
fn killed_process_keeps_its_paused_counts() {
    let folder = Folder::new();
    let mut session = Session::run(&folder, &[], toggled(), &[]);
    assert_eq!(session.line(), "ready");
    sleep(Duration::from_millis(50));
    switch(&session, "stop");
    sleep(Duration::from_millis(50));
    // SAFETY: plain numbers; the process is this test's, and waits for its stdin.
    unsafe { libc::kill(session.program().cast_signed(), libc::SIGKILL) };
    let (_, stderr) = session.end();
    let report = finish(gputrace().args(["report", "--json"]).arg(folder.join("out"))).expect_code(0);
    let report: Value = serde_json::from_str(&report.stdout).unwrap();
    assert!(paused(&report).iter().all(|count| *count > 0), "{stderr} {report:#}");
}
