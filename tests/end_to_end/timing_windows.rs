//! `--device-times windows`: counts are exact, operations of windows have their true device times and no
//! others have any, whatever the program does at the edges.

use std::collections::{BTreeMap, HashMap};

use gputrace_collector::batch::Batch;
use gputrace_collector::trace_file::TraceReader;
use gputrace_wire::call::Call;
use gputrace_wire::cell::{Cell, flag, kind};
use gputrace_wire::clock::{cause, mark};
use gputrace_wire::device::Kernel;
use serde_json::Value;

use crate::harness::folder::Folder;
use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::session::{Session, ctl};
use crate::harness::tool::{Traced, calls, count, dropped, gputrace, run_with};

/// What the simulated kernels take.
const FIRST_NS: u64 = 20_000;
const SECOND_NS: u64 = 50_000;

/// What lies in the trace.
#[derive(Default, Debug)]
struct WindowedTrace {
    marks: Vec<mark::DeviceTimes>,
    /// Launches that were executed: the window, whether they are flagged as untimed, begin and end.
    launches: Vec<(u32, bool, u64, u64)>,
    /// The window of each launch that has a correlation id; `None`: marked, so that its records are left out.
    by_id: HashMap<u32, Option<u32>>,
    /// Records of kernels: correlation id, graph node, duration where the end is known.
    kernels: Vec<(u32, u64, Option<u64>)>,
}

impl WindowedTrace {
    fn of(traced: &Traced) -> WindowedTrace {
        let mut recorded = WindowedTrace::default();
        for batch in TraceReader::open(&traced.trace()).unwrap() {
            let Batch::Cells { cells, .. } = batch else { continue };
            let mut rest = &cells[..];
            while let Some(first) = rest.first() {
                let (entry, after) = rest.split_at(first.cells().max(1).into());
                rest = after;
                recorded.entry(entry);
            }
        }
        recorded
    }

    fn entry(&mut self, entry: &[Cell]) {
        match entry[0].kind() {
            kind::DEVICE_TIMES => self.marks.push(mark::DeviceTimes::from_cell(&entry[0])),
            kind::DEVICE_KERNEL => {
                let execution = Kernel::from_cells(&entry[0], &entry[1]).execution;
                let duration = execution.has_timing().then(|| execution.end_ns - execution.start_ns);
                self.kernels.push((execution.correlation, execution.graph_node, duration));
            }
            kind::LAUNCH | kind::GRAPH_LAUNCH | kind::COPY | kind::FILL => {
                let call = Call::from_cell(&entry[0]).unwrap();
                if call.flags & flag::CAPTURED != 0 {
                    assert_eq!(call.window, 0, "nothing is executed: {call:?}");
                    return;
                }
                let is_marked = call.flags & flag::PAUSED != 0;
                if call.correlation != 0 {
                    let window = (!is_marked).then_some(call.window);
                    assert_eq!(self.by_id.insert(call.correlation, window), None, "{call:?}");
                }
                if call.kind == kind::LAUNCH && !is_marked {
                    let is_untimed = call.flags & flag::UNTIMED != 0;
                    let end = call.start_ticks + call.duration_ticks;
                    self.launches.push((call.window, is_untimed, call.start_ticks, end));
                }
            }
            _ => {}
        }
    }

    /// Begin and end of each window; the end is the largest number for one that the program ended in.
    fn windows(&self) -> BTreeMap<u32, (u64, u64)> {
        let mut windows = BTreeMap::new();
        for mark in self.marks.iter().filter(|mark| mark.window != 0) {
            match mark.is_on {
                true => assert_eq!(windows.insert(mark.window, (mark.ticks, u64::MAX)), None, "{mark:?}"),
                false => windows.get_mut(&mark.window).unwrap().1 = mark.ticks,
            }
        }
        windows
    }

    /// Every launch is in its window or has no time; every time is that of a kernel launched in a window.
    /// Returns how many launches were in windows, and how many of their records were refused.
    #[track_caller]
    fn check(&self, is_known: impl Fn(u64) -> bool) -> (u64, u64) {
        let windows = self.windows();
        for (window, is_untimed, begin, end) in &self.launches {
            assert_eq!(*window == 0, *is_untimed, "in a window or without a time");
            if *window != 0 {
                let (from, to) = windows[window];
                // Processors' clocks are some ticks apart, and are read a little before or after the state.
                let (from, to) = (from.saturating_sub(2_000), to.saturating_add(2_000));
                assert!(from <= *begin && *end <= to, "{window}: {from} {begin} {end} {to}");
            }
        }
        let mut refused = 0;
        for (id, node, duration) in &self.kernels {
            match (self.by_id.get(id), duration) {
                (None, _) => panic!("a record without its call: {id}"),
                // It may be wrong, and nobody reads it.
                (Some(None), _) => {}
                (Some(Some(window)), duration) => {
                    assert_ne!(*window, 0, "{id}");
                    assert!(duration.is_none_or(&is_known), "{id}, node {node}: {duration:?}");
                    refused += u64::from(duration.is_none());
                }
            }
        }
        let inside = self.launches.iter().filter(|(window, ..)| *window != 0).count() as u64;
        (inside, refused)
    }
}

fn is_short(duration_ns: u64) -> bool {
    matches!(duration_ns, FIRST_NS | SECOND_NS)
}

/// The program's own counts of launches and graph launches.
fn own(traced: &Traced) -> (u64, u64) {
    let said = traced.ended.stdout.trim().to_owned();
    let (launches, graphs) = said.split_once(' ').unwrap_or_else(|| panic!("{said}"));
    (launches.parse().unwrap(), graphs.parse().unwrap())
}

/// Counts are the program's; nothing is lost; every operation has its time or came while there were none.
#[track_caller]
fn expect_exact_counts(report: &Value, (launches, graphs): (u64, u64)) {
    assert_eq!((count(report, "launches"), count(report, "graph_launches")), (launches, graphs));
    assert_eq!(count(report, "device_only"), 0, "{report:#}");
    assert_eq!(dropped(report), 0, "{report:#}");
    assert_eq!(report["complete"], true, "{report:#}");
}

fn windows(lengths: &str, graph_times: &str, arguments: &[&str]) -> Traced {
    let times = format!("windows={lengths}");
    let options = ["--device-times", &times, "--graph-times", graph_times];
    let run = run_with(&options, compiled("windows", Link::Driver));
    arguments.iter().fold(run, |run, argument| run.arg(argument)).succeed()
}

#[test]
fn a_fifth_of_the_time_gives_a_fifth_of_the_times_and_all_counts() {
    for graph_times in ["node", "graph"] {
        let traced = windows("10ms/50ms", graph_times, &["1", "2000"]);
        let report = traced.report();
        expect_exact_counts(&report, own(&traced));
        let recorded = WindowedTrace::of(&traced);
        let (inside, refused) = recorded.check(is_short);
        let all = recorded.launches.len() as u64;
        // Some forty windows; their number varies as the square root.
        assert!((all / 10..all * 2 / 5).contains(&inside), "{inside} of {all}");
        assert_eq!(refused, 0, "the program waits for its kernels, so all have ended in the grace time");
        for moved in report["transfers"].as_array().unwrap() {
            assert_eq!(
                count(moved, "timed_calls"),
                count(moved, "calls"),
                "copies have times outside of windows"
            );
        }
        // Each launch in a window has its record.
        let timed = recorded
            .kernels
            .iter()
            .filter(|(id, node, duration)| *node == 0 && duration.is_some() && recorded.by_id[id].is_some());
        assert_eq!(timed.count() as u64, inside, "{graph_times}");
        let mut marks = recorded.marks;
        marks.sort_by_key(|mark| mark.ticks);
        assert_eq!((marks[0].is_on, marks[0].cause, marks[0].window), (false, cause::SCHEDULED, 0));
        assert!(marks.iter().all(|mark| (mark.on_us, mark.mean_us) == (10_000, 50_000)), "{marks:?}");
        let counted = &report["switched_times"]["windows"];
        assert_eq!(count(counted, "opened"), marks.iter().filter(|mark| mark.is_on).count() as u64);
        assert!(count(counted, "switch_on_ns") > 0 && count(counted, "switch_off_ns") > 0, "{counted}");
        let summary = traced.summary_words();
        assert!(summary.contains("device times in windows of 10 ms, on average every 50 ms"), "{summary}");
    }
}

#[test]
fn thousands_of_windows_under_eight_threads_misattribute_nothing() {
    let traced = windows("0.5ms/2ms", "node", &["8", "6000", "slow"]);
    expect_exact_counts(&traced.report(), own(&traced));
    let recorded = WindowedTrace::of(&traced);
    let (inside, refused) = recorded.check(is_short);
    let windows = recorded.windows().len();
    assert!(windows > 800, "{windows} windows");
    assert!(inside > 500 && refused < inside / 20, "{inside} in windows, {refused} refused");
}

/// CUPTI gives an operation that is under way as its kind goes off the end at which the kind goes on again.
#[test]
fn records_whose_end_is_not_known_are_refused_and_counted() {
    let traced = windows("10ms/50ms", "node", &["2", "4000", "long"]);
    let report = traced.report();
    expect_exact_counts(&report, own(&traced));
    let recorded = WindowedTrace::of(&traced);
    let (_, refused) = recorded.check(|duration_ns| is_short(duration_ns) || duration_ns == 300_000_000);
    assert!(refused > 0, "kernels of 0.3 s outlast every grace time: {report:#}");
    let without = count(&report, "executed_operations") - count(&report, "timed_operations");
    assert!(without >= refused, "{report:#}");
}

#[test]
fn new_kernels_and_stacks_open_a_window_out_of_turn() {
    // A scheduled window comes once a minute on average, so in this half a second once in a hundred times.
    let traced = windows("10ms/1m", "node", &["1", "500"]);
    expect_exact_counts(&traced.report(), own(&traced));
    let recorded = WindowedTrace::of(&traced);
    recorded.check(is_short);
    let triggered = |mark: &&mark::DeviceTimes| mark.is_on && mark.cause == cause::TRIGGERED;
    let begins: Vec<_> = recorded.marks.iter().filter(triggered).collect();
    assert_eq!(begins.len(), 1, "{begins:?}");
    assert_eq!(begins[0].window, 3);
    assert!(recorded.launches.iter().any(|(window, ..)| *window == 3));
}

#[test]
fn forks_and_an_exit_inside_windows_harm_nothing() {
    let traced = windows("20ms/30ms", "node", &["2", "600", "fork"]);
    expect_exact_counts(&traced.report(), own(&traced));
    WindowedTrace::of(&traced).check(is_short);
    // Two thirds of the time are in windows, so that some of these exits are.
    for _ in 0..4 {
        let traced = windows("20ms/30ms", "node", &["2", "60000", "exit"]);
        let report = traced.report();
        assert_eq!((dropped(&report), &report["complete"]), (0, &Value::Bool(true)), "{report:#}");
        assert!(count(&report, "timed_operations") > 0, "{report:#}");
        WindowedTrace::of(&traced).check(is_short);
    }
}

/// Another client keeps its kinds: what it gets does not depend on our windows.
#[test]
fn other_client_gets_what_it_gets_alone() {
    let options = ["--device-times", "windows=1ms/3ms"];
    let traced = run_with(&options, compiled("cupti_client", Link::Driver)).arg("late").succeed();
    assert!(traced.ended.stdout.contains("window 19: 0 0 0 callback 0 is 1"), "{}", traced.ended.stdout);
    let report = traced.report();
    assert_eq!((count(&report, "launches"), dropped(&report)), (447, 0), "{report:#}");
    assert_eq!(calls(&report, "second_kernel"), 27);
}

#[test]
fn windows_come_and_go_while_the_program_runs() {
    let folder = Folder::new();
    let mut session = Session::run(&folder, &[], compiled("toggled", Link::Driver), &[]);
    assert_eq!(session.line(), "ready");
    let values = ["windows", "on", "windows", "off", "windows", "windows", "off", "on"];
    for (round, value) in values.into_iter().enumerate() {
        let change = format!("device-times={value}");
        ctl(session.pid(), &["set", &change]).expect_code(0);
        let status = ctl(session.pid(), &["status"]).expect_code(0).stdout;
        assert!(status.contains(&change), "{status}");
        std::thread::sleep(std::time::Duration::from_millis(250));
        if round == 2 {
            for order in ["stop", "start"] {
                ctl(session.pid(), &[order]).expect_code(0);
                std::thread::sleep(std::time::Duration::from_millis(250));
            }
        }
    }
    session.release();
    session.line();
    assert!(session.end().0.success());
    let report = finish(gputrace().args(["report", "--json"]).arg(folder.join("out"))).expect_code(0);
    let report: Value = serde_json::from_str(&report.stdout).unwrap();
    assert_eq!(count(&report, "device_only"), 0);
    assert_eq!((dropped(&report), &report["complete"]), (0, &Value::Bool(true)), "{report:#}");
    assert!(count(&report, "timed_operations") > 0);
}

#[test]
fn lengths_that_make_no_sense_are_refused() {
    for (value, why) in [
        ("windows=100ms/10ms", "a window must be shorter than the mean time"),
        ("windows=10ms", "two times with a unit"),
        ("windows=1us/1ms", "a window has 0.5ms to 10s"),
        ("sometimes", "not full, off, windows or windows=ON/MEAN"),
    ] {
        let ended = finish(gputrace().args(["run", "--device-times", value, "--", "true"])).expect_code(2);
        assert!(ended.stderr.contains(why), "{value}: {}", ended.stderr);
    }
}
