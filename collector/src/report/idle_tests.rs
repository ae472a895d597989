//! Idle time by cause: sums of recorded traces, compared with a second computation from all events at once.

use std::collections::BTreeMap;
use std::path::Path;

use gputrace_wire::call::{Detail, wait};
use gputrace_wire::cell::{flag, kind};

use crate::aggregate::{Aggregates, Cause, QUEUED_NS};
use crate::batch::Counters;
use crate::flame::{Flame, FlameWeight};
use crate::label::Labels;
use crate::model::Model;
use crate::model::definitions::Definitions;
use crate::model::operation::{HostCall, Operation, What};
use crate::model::sink::Sink;
use crate::report::tests::tape::{Tape, python_stacks};
use crate::report::{IdleCause, IdleReport, Report, TextOptions};
use crate::trace_file::TraceReader;

/// Everything of a trace.
#[derive(Default)]
struct All {
    calls: Vec<HostCall>,
    operations: Vec<Operation>,
}

impl Sink for All {
    fn host_call(&mut self, call: &HostCall, _: &Definitions) {
        self.calls.push(call.clone());
    }
    fn operation(&mut self, operation: &Operation, _: &Definitions) {
        self.operations.push(operation.clone());
    }
}

fn executes(call: &HostCall) -> bool {
    let is_launch = matches!(call.kind, kind::LAUNCH | kind::GRAPH_LAUNCH | kind::COPY | kind::FILL);
    is_launch && call.status == 0 && call.flags & flag::CAPTURED == 0
}

fn is_stream_wait(call: &HostCall) -> bool {
    matches!(call.detail, Detail::Wait { what: wait::STREAM_ON_EVENT | wait::STREAM_ON_VALUE, .. })
}

fn blocks(call: &HostCall) -> bool {
    match call.detail {
        Detail::Wait { .. } => !is_stream_wait(call),
        _ => executes(call) && matches!(call.kind, kind::COPY | kind::FILL),
    }
}

fn overlap(one: (u64, u64), other: (u64, u64)) -> u64 {
    one.1.min(other.1).saturating_sub(one.0.max(other.0))
}

impl All {
    /// The gaps of the only device by cause, from the definition of the causes.
    fn causes(&self) -> BTreeMap<&'static str, u64> {
        let timed = |operation: &&Operation| operation.timing.is_some_and(|timing| timing.duration_ns > 0);
        let mut operations: Vec<&Operation> = self.operations.iter().filter(timed).collect();
        operations.sort_by_key(|operation| operation.timing.map(|timing| timing.start_ns));
        let mut causes = BTreeMap::new();
        let mut busy_to = u64::MAX;
        for operation in operations {
            let timing = operation.timing.unwrap();
            if timing.start_ns > busy_to {
                self.gap((busy_to, timing.start_ns), operation, &mut causes);
            }
            let end_ns = timing.start_ns + timing.duration_ns;
            busy_to = if busy_to == u64::MAX { end_ns } else { busy_to.max(end_ns) };
        }
        causes.retain(|_, ns| *ns > 0);
        causes
    }

    fn gap(&self, gap: (u64, u64), operation: &Operation, causes: &mut BTreeMap<&'static str, u64>) {
        let mut add = |cause, ns| *causes.entry(cause).or_insert(0) += ns;
        let Some(launch) = &operation.call else { return add("unknown", gap.1 - gap.0) };
        let earlier: Vec<&HostCall> = self
            .calls
            .iter()
            .filter(|call| call.thread == launch.thread && call.start_ticks < launch.start_ticks)
            .collect();
        let previous = earlier.iter().rposition(|call| executes(call)).unwrap_or(0);
        let since = &earlier[previous.min(earlier.len())..];
        let longest = since.iter().filter(|call| blocks(call)).max_by_key(|call| call.duration_ns);
        let after = overlap(gap, (launch.start_ns, u64::MAX));
        let before = gap.1 - gap.0 - after;
        let blocked = longest.map_or(0, |call| {
            overlap((gap.0, gap.1 - after), (call.start_ns, call.start_ns + call.duration_ns))
        });
        match longest.map(|call| call.kind) {
            Some(kind::WAIT) => add("sync", blocked),
            _ => add("copy", blocked),
        }
        let is_node = operation.graph.is_some() && operation.what != What::Graph;
        let in_stream = earlier.iter().rev().filter(|call| call.stream == launch.stream);
        let awaits = match in_stream.clone().find(|call| executes(call) || is_stream_wait(call)) {
            Some(call) => is_stream_wait(call),
            None => false,
        };
        let is_queued = gap.1 > launch.start_ns + launch.duration_ns + QUEUED_NS;
        match (awaits, is_node && before == 0, is_queued && before == 0) {
            (true, ..) => add("event", after),
            (_, true, _) => add("graph", after),
            (_, _, true) => add("queue", after),
            _ => add("launch", after),
        }
        add("host", before - blocked);
    }
}

fn fixture(name: &str) -> (Report, Flame, All) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(name);
    let mut model = Model::new((Aggregates::default(), All::default()));
    TraceReader::open(&path).unwrap().for_each(|batch| model.consume(&batch));
    let (totals, (aggregates, all)) = model.finish();
    let flame = Flame::of_idle(&totals, &aggregates, &mut Labels::new(&totals, &aggregates));
    (Report::new(&totals, &aggregates), flame, all)
}

/// The flamegraph of idle time has the report's times by cause.
fn assert_equal_flame(idle: &IdleReport, flame: &Flame) {
    let mut causes: BTreeMap<String, u64> = BTreeMap::new();
    for line in &flame.lines {
        *causes.entry(line.frames.last().unwrap().text.to_string()).or_insert(0) += line.ns;
    }
    let is_outside = |cause: &&IdleCause| matches!(cause.cause, Cause::Begin | Cause::End);
    let (outside, between): (Vec<&IdleCause>, Vec<&IdleCause>) = idle.causes.iter().partition(is_outside);
    let expected = between.iter().map(|cause| (format!("[{}]", cause.cause.text()), cause.ns));
    assert_eq!(causes, expected.collect());
    let outside_ns = outside.iter().map(|cause| cause.ns).sum();
    assert_eq!(flame.weight, FlameWeight::Idle { outside_ns });
}

fn only_idle(report: &Report) -> &IdleReport {
    let [device] = &report.devices[..] else { panic!("{:?}", report.devices) };
    let idle = device.idle.as_ref().unwrap();
    let sum: u64 = idle.causes.iter().map(|cause| cause.ns).sum();
    assert_eq!(sum + device.busy_ns.unwrap(), report.wall_ns);
    idle
}

#[test]
fn causes_and_busy_time_of_recorded_traces_are_the_wall_time() {
    for name in ["pytorch-h200.gputrace", "demo-h200.gputrace"] {
        let (report, flame, all) = fixture(name);
        let idle = only_idle(&report);
        assert_equal_flame(idle, &flame);
        let gaps: BTreeMap<&str, u64> = idle
            .causes
            .iter()
            .filter(|cause| !matches!(cause.cause, Cause::Begin | Cause::End))
            .map(|cause| (cause.cause.name(), cause.ns))
            .collect();
        assert_eq!(gaps, all.causes(), "{name}");
        assert!(gaps["host"] > 0 && gaps["launch"] > 0, "{gaps:?}");
    }
}

#[test]
fn idle_time_is_charged_to_the_lines_around_it() {
    let mut tape = Tape::new(false);
    python_stacks(&mut tape);
    tape.at(110);
    tape.launch(40, 256, Some(1_000));
    for _ in 0..10 {
        // 400 µs of Python between line 22 and line 24.
        tape.now_ns += 400_000;
        tape.at(111);
        tape.launch(40, 256, Some(1_000));
        tape.at(110);
        tape.wait(90_000);
        tape.launch(40, 256, Some(1_000));
    }
    let (totals, aggregates) = tape.play(Counters::default());
    let report = Report::new(&totals, &aggregates);
    let idle = only_idle(&report);
    let lines: Vec<String> = idle
        .lines
        .iter()
        .map(|line| format!("{} {} {}", line.cause.name(), line.pieces, line.text()))
        .collect();
    let expected = [
        "host 10 train.py:22 to train.py:24 train_step",
        "sync 10 train.py:22 train_step",
        "launch 10 train.py:22 train_step",
        "launch 10 train.py:24 train_step",
        "host 10 train.py:22 train_step",
    ];
    assert_eq!(lines, expected);
    let placed: u64 = idle.lines.iter().map(|line| line.ns).sum();
    let causes: u64 = idle.causes.iter().filter(|cause| cause.cause.has_lines()).map(|cause| cause.ns).sum();
    assert_eq!(placed + idle.no_line_ns, causes);
    let flame = Flame::of_idle(&totals, &aggregates, &mut Labels::new(&totals, &aggregates));
    assert_equal_flame(idle, &flame);
    let folded = flame.folded();
    let between = "between train_step train.py:22 and train_step train.py:24;[in host code] 4";
    assert!(folded.contains(between), "{folded}");
    assert!(flame.title().ends_with("of idle GPU time between operations"), "{}", flame.title());
    let text = report.to_text(&TextOptions::default());
    assert!(text.contains("Idle while at"), "{text}");
}
