//! Spans of constructed streams: which there are, their parents, and their attributes.

mod code;
mod contexts;
mod failures;

use std::collections::{BTreeMap, BTreeSet};

use gputrace_wire::call::{self, Call, Detail, Launch, Memory};
use gputrace_wire::cell::{Cell, kind};
use gputrace_wire::clock::mark::ThreadBegin;
use gputrace_wire::definition::{kind as def, origin_of};
use gputrace_wire::device::{self, DeviceCopy, Execution};
use gputrace_wire::range::{RangeBegin, RangeEnd};
use proptest::prelude::*;

use crate::batch::{Batch, Definition, ProcessBegin, ProcessEnd, SessionBegin};
use crate::model::Model;
use crate::model::definitions::Definitions;
use crate::spans::{Sampling, Span, SpanReceiver, SpanSink, Value};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[derive(Default)]
struct TakenSpans {
    spans: Vec<Span>,
    ended: Vec<u32>,
}

impl SpanReceiver for TakenSpans {
    fn span(&mut self, span: Span, _: &Definitions) {
        assert!(!self.ended.contains(&span.process), "a span after the process's end");
        self.spans.push(span);
    }
    fn process_ended(&mut self, process: u32, _: &Definitions) {
        self.ended.push(process);
    }
}

/// A session to which tests feed entries.
struct SpanFeed(Model<SpanSink<TakenSpans>>);

impl SpanFeed {
    fn new(sampling: Sampling) -> SpanFeed {
        let mut model = Model::new(SpanSink::new(TakenSpans::default(), sampling));
        let session =
            SessionBegin { realtime_ns: 1_000_000 * MS, monotonic_ns: 0, ..SessionBegin::default() };
        model.consume(&Batch::SessionBegin(session));
        SpanFeed(model)
    }

    /// A feed with one process that is defined.
    fn one(sampling: Sampling) -> SpanFeed {
        let mut feed = SpanFeed::new(sampling);
        feed.process(0, 100, 1, &[]);
        feed
    }

    fn process(&mut self, process: u32, pid: u32, parent_pid: u32, origins: &[(u64, &str)]) {
        let begin = ProcessBegin { process, pid, parent_pid, tick_kind: 1, ..ProcessBegin::default() };
        self.0.consume(&Batch::ProcessBegin(begin));
        let mut records = Vec::new();
        let mut define = |kind, id, fields: &[u64], text: &str| {
            records.push(Definition { kind, id, fields: fields.to_vec(), text: text.into() });
        };
        define(def::PROCESS, 1, &[u64::from(pid), u64::from(parent_pid)], "/usr/bin/python3\0train.py");
        define(def::API, 2, &[], "cuLaunchKernel");
        define(def::THREAD, 3, &[4711], "worker");
        define(def::RANGE, 4, &[], "step");
        define(def::NAME, 5, &[], "gemm");
        for (at, (of, text)) in origins.iter().enumerate() {
            define(def::ORIGIN, 10 + at as u32, &[*of], text);
        }
        self.0.consume(&Batch::Definitions { process, records });
        self.cells(process, &[ThreadBegin { thread: 3, ticks: 0 }.to_cell()]);
    }

    fn cells(&mut self, process: u32, cells: &[Cell]) {
        self.0.consume(&Batch::Cells { process, ring: 1, cells: cells.to_vec() });
    }

    fn records(&mut self, process: u32, cells: &[Cell]) {
        self.0.consume(&Batch::Cells { process, ring: 0, cells: cells.to_vec() });
    }

    fn end(&mut self, process: u32, at_ns: u64) {
        let end = ProcessEnd::Exit;
        self.0.consume(&Batch::ProcessEnd { process, end, monotonic_ns: at_ns });
    }

    fn finish(self) -> (Vec<Span>, Vec<String>) {
        let (complaints, taken) = self.0.finish().1.finish();
        check(&taken.spans);
        (taken.spans, complaints)
    }
}

/// Checks what holds for all spans: ids are unique, times are in order, and parents exist.
fn check(spans: &[Span]) {
    let ids: BTreeSet<u64> = spans.iter().map(|span| span.id).collect();
    assert_eq!(ids.len(), spans.len(), "an id comes twice");
    for span in spans {
        assert!(span.start_ns <= span.end_ns, "{span:?}");
        assert!(span.id != 0 && span.trace_id != 0);
        let is_a_request_s = span.trace_id >> 64 == 0xabc;
        assert!(
            span.parent_is_remote || span.parent == 0 || is_a_request_s || ids.contains(&span.parent),
            "{span:?}"
        );
        let is_root = span.name.starts_with("process: ") || span.name.starts_with("run: ");
        assert!(is_root || span.parent != 0, "{span:?}");
    }
}

/// Names of spans, each with its parent's.
fn tree(spans: &[Span]) -> Vec<(String, String)> {
    let names: BTreeMap<u64, &str> = spans.iter().map(|span| (span.id, span.name.as_str())).collect();
    let parent = |span: &Span| names.get(&span.parent).map_or(String::new(), |name| (*name).to_owned());
    let mut tree: Vec<_> = spans.iter().map(|span| (span.name.clone(), parent(span))).collect();
    tree.sort();
    tree
}

fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter().map(|(name, parent)| ((*name).to_owned(), (*parent).to_owned())).collect()
}

fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    spans
        .iter()
        .find(|span| span.name == name)
        .unwrap_or_else(|| panic!("no span is called {name}: {spans:?}"))
}

fn value<'a>(span: &'a Span, key: &str) -> Option<&'a Value> {
    span.attributes.iter().find(|(known, _)| *known == key).map(|(_, value)| value)
}

fn launch(start_ticks: u64, duration_ticks: u64, correlation: u32) -> Cell {
    let detail =
        Detail::Launch(Launch { function: 0, grid: [128, 128, 1], block: [16, 16, 1], ..Launch::default() });
    let call = Call {
        kind: kind::LAUNCH,
        api: 2,
        start_ticks,
        duration_ticks,
        correlation,
        detail,
        ..Call::default()
    };
    call.to_cell()
}

fn kernel(correlation: u32, start_ns: u64, duration_ns: u64) -> [Cell; 2] {
    let execution = Execution {
        correlation,
        start_ns,
        end_ns: start_ns + duration_ns,
        stream: 7,
        ..Execution::default()
    };
    device::Kernel {
        execution,
        name: 5,
        grid: [128, 128, 1],
        block: [16, 16, 1],
        registers: 32,
        ..device::Kernel::default()
    }
    .to_cells()
}

fn push(position: u32, start_ticks: u64) -> Cell {
    RangeBegin { kind: kind::RANGE_PUSH, range: 4, position, start_ticks, ..RangeBegin::default() }.to_cell()
}

fn pop(position: u32, start_ticks: u64, end_ticks: u64) -> Cell {
    let end =
        RangeEnd { kind: kind::RANGE_POP, range: 4, position, open: position, start_ticks, end_ticks, id: 0 };
    end.to_cell()
}

#[test]
fn kernels_are_children_of_their_range_whichever_ends_first() {
    for record_first in [true, false] {
        let mut feed = SpanFeed::one(Sampling::default());
        let record = kernel(1, 30 * US, 900 * US);
        feed.cells(0, &[push(0, 10 * US), launch(20 * US, 5 * US, 1)]);
        if record_first {
            feed.records(0, &record);
        }
        // This range is shorter than the threshold, and so is the next one, which contains nothing.
        feed.cells(0, &[pop(0, 10 * US, 40 * US), push(0, 50 * US), pop(0, 50 * US, 60 * US)]);
        if !record_first {
            feed.records(0, &record);
        }
        feed.end(0, 2_000 * US);
        let (spans, _) = feed.finish();
        let expected =
            [("cuda_kernel: gemm", "step"), ("process: python3", ""), ("step", "process: python3")];
        assert_eq!(tree(&spans), pairs(&expected), "{record_first}");
        let kernel = named(&spans, "cuda_kernel: gemm");
        let epoch_ns = 1_000_000 * MS;
        assert_eq!((kernel.start_ns, kernel.end_ns), (epoch_ns + 30 * US, epoch_ns + 930 * US));
        assert_eq!(kernel.events[0].at_ns, epoch_ns + 20 * US, "when it was launched");
        assert_eq!(value(kernel, "gpu.cuda.grid_dim"), Some(&Value::text("[128,128,1]")));
        assert_eq!(value(kernel, "gpu.cuda.registers_per_thread"), Some(&Value::Number(32)));
        assert_eq!(value(kernel, "gpu.duration_us"), Some(&Value::Real(900.0)));
        assert_eq!(value(kernel, "gpu.queue_us"), Some(&Value::Real(5.0)));
        assert_eq!(value(kernel, "gpu.is_slow"), Some(&Value::Flag(true)));
        assert_eq!(value(kernel, "thread.id"), Some(&Value::Number(4711)));
        let root = named(&spans, "process: python3");
        assert_eq!(value(root, "gputrace.left_out.short"), Some(&Value::Number(1)), "the launch");
    }
}

#[test]
fn a_slow_launch_is_a_span_between_its_range_and_its_kernel() {
    let mut feed = SpanFeed::one(Sampling::default());
    feed.cells(0, &[push(0, US), push(1, 2 * US), launch(3 * US, 200 * US, 1), pop(1, 2 * US, 4 * MS)]);
    feed.records(0, &kernel(1, 5 * MS, MS));
    feed.cells(0, &[pop(0, US, 9 * MS)]);
    let (spans, _) = feed.finish();
    let call = named(&spans, "cuda_call: cuLaunchKernel");
    assert_eq!(named(&spans, "cuda_kernel: gemm").parent, call.id);
    let inner = spans.iter().find(|span| span.id == call.parent).unwrap();
    let outer = spans.iter().find(|span| span.id == inner.parent).unwrap();
    assert_eq!((inner.name.as_str(), outer.name.as_str()), ("step", "step"));
    assert_eq!(outer.parent, named(&spans, "process: python3").id);
}

#[test]
fn unended_range_is_the_parent_of_its_kernels() {
    let mut feed = SpanFeed::one(Sampling::default());
    feed.cells(0, &[push(0, 10 * US), launch(20 * US, 5 * US, 1)]);
    feed.records(0, &kernel(1, 30 * US, 900 * US));
    feed.end(0, 50 * MS);
    let (spans, _) = feed.finish();
    let range = named(&spans, "step");
    assert_eq!(named(&spans, "cuda_kernel: gemm").parent, range.id);
    assert_eq!(value(range, "gpu.range.is_cut_off"), Some(&Value::Flag(true)));
    assert_eq!(range.end_ns, 1_000_050 * MS);
}

#[test]
fn waits_allocations_and_failures_are_described() {
    let mut feed = SpanFeed::one(Sampling::default());
    let call = |kind, start_ticks, duration_ticks, status, detail| {
        Call { kind, api: 2, start_ticks, duration_ticks, status, detail, ..Call::default() }.to_cell()
    };
    let wait = |what, handle| Detail::Wait { what, handle };
    let memory = Detail::Memory(Memory { bytes: 1 << 30, ..Memory::default() });
    feed.cells(
        0,
        &[
            call(kind::WAIT, 10, MS, 0, wait(call::wait::EVENT, 0xbeef)),
            call(kind::WAIT, 20, 5, 600, wait(call::wait::STREAM, 1)),
            call(kind::WAIT, 30, 5, 0, wait(call::wait::CONTEXT, 1)),
            call(kind::ALLOC, 40, 5, 2, memory),
        ],
    );
    let (spans, _) = feed.finish();
    let root = "process: python3";
    assert_eq!(
        tree(&spans),
        pairs(&[("cuda_memory: cuLaunchKernel", root), ("cuda_sync: event", root), (root, "")])
    );
    let wait = named(&spans, "cuda_sync: event");
    assert_eq!(value(wait, "gpu.sync.handle"), Some(&Value::text("0xbeef")));
    assert_eq!(wait.error, None);
    let failed = named(&spans, "cuda_memory: cuLaunchKernel");
    assert_eq!(value(failed, "error.type"), Some(&Value::text("CUDA_ERROR_OUT_OF_MEMORY")));
    assert_eq!(value(failed, "gpu.memory.bytes"), Some(&Value::Number(1 << 30)));
    assert_eq!(failed.error.as_deref(), Some("cuLaunchKernel returned CUDA_ERROR_OUT_OF_MEMORY (2)"));
}

#[test]
fn transfers_say_direction_bandwidth_and_memory() {
    let mut feed = SpanFeed::one(Sampling::default());
    let execution = Execution { correlation: 9, start_ns: MS, end_ns: 26 * MS, ..Execution::default() };
    let copy = DeviceCopy {
        execution,
        bytes: 10_485_760,
        copy_kind: 1,
        source_memory: 1,
        target_memory: 3,
        ..DeviceCopy::default()
    };
    feed.records(0, &[copy.to_cell()]);
    let (spans, _) = feed.finish();
    let transfer = named(&spans, "gpu_transfer: cpu_to_gpu");
    let Some(Value::Real(bandwidth)) = value(transfer, "gpu_transfer.bandwidth_mbps") else { panic!() };
    assert!((bandwidth - 419.4).abs() < 0.05, "{bandwidth}");
    assert_eq!(value(transfer, "gpu_transfer.memory_kind"), Some(&Value::text("pageable")));
    assert_eq!(value(transfer, "cuda.memcpy.kind"), Some(&Value::text("HtoD")));
    assert_eq!(transfer.parent, named(&spans, "process: python3").id, "its launch is unknown");
}

#[test]
fn slowest_operations_of_a_second_are_spans_and_the_rest_is_counted() {
    let sampling = Sampling { rate: Some(3), ..Sampling::default() };
    let mut feed = SpanFeed::one(sampling);
    for at in 1..=20u32 {
        let start_ns = u64::from(at) * 10 * MS;
        feed.cells(
            0,
            &[push(0, start_ns), launch(start_ns + US, US, at), pop(0, start_ns, start_ns + 3 * US)],
        );
        feed.records(0, &kernel(at, start_ns + 10 * US, u64::from(at % 10 + 1) * 200 * US));
    }
    // Another second, and a failure in it.
    feed.cells(0, &[launch(2_000 * MS, US, 90)]);
    feed.records(0, &kernel(90, 2_000 * MS, 150 * US));
    let detail = Detail::Launch(Launch::default());
    let failed =
        Call { kind: kind::LAUNCH, api: 2, start_ticks: 2_001 * MS, status: 700, detail, ..Call::default() };
    feed.cells(0, &[failed.to_cell()]);
    let (spans, _) = feed.finish();
    let mut kernels: Vec<u64> = spans
        .iter()
        .filter(|span| span.name.starts_with("cuda_kernel"))
        .map(|span| (span.end_ns - span.start_ns) / US)
        .collect();
    kernels.sort_unstable();
    assert_eq!(kernels, [150, 1800, 2000, 2000]);
    assert_eq!(spans.iter().filter(|span| span.name == "step").count(), 3, "only those of selected kernels");
    assert!(named(&spans, "cuda_call: cuLaunchKernel").error.is_some());
    let root = named(&spans, "process: python3");
    assert_eq!(value(root, "gputrace.left_out.by_rate"), Some(&Value::Number(17)));
    assert_eq!(value(root, "gputrace.spans"), Some(&Value::Number(spans.len() as i64)));
}

#[test]
fn a_kernel_far_from_its_history_is_a_span_however_short() {
    let mut feed = SpanFeed::one(Sampling::default());
    for at in 1..=60u32 {
        let duration_us = if at == 50 { 60 } else { 20 };
        feed.records(0, &kernel(at, u64::from(at) * MS, duration_us * US));
    }
    let (spans, _) = feed.finish();
    let kernels: Vec<&Span> = spans.iter().filter(|span| span.name == "cuda_kernel: gemm").collect();
    assert_eq!(kernels.len(), 1);
    assert_eq!(value(kernels[0], "gpu.is_anomaly"), Some(&Value::Flag(true)));
    assert_eq!(value(kernels[0], "gpu.anomaly.median_us"), Some(&Value::Real(20.0)));
    assert_eq!(value(kernels[0], "gpu.is_slow"), Some(&Value::Flag(false)));
}

#[test]
fn every_operation_is_a_span_with_all_spans() {
    let all = Sampling { all: true, rate: None, ..Sampling::default() };
    let mut feed = SpanFeed::one(all);
    for at in 1..=5_000u32 {
        let start_ns = u64::from(at) * US;
        feed.cells(0, &[push(0, start_ns), launch(start_ns + 1, 2, at), pop(0, start_ns, start_ns + 5)]);
        feed.records(0, &kernel(at, start_ns + 10, 3));
    }
    let (spans, _) = feed.finish();
    assert_eq!(spans.len(), 15_001);
    let by_id: BTreeMap<u64, &Span> = spans.iter().map(|span| (span.id, span)).collect();
    for kernel in spans.iter().filter(|span| span.name == "cuda_kernel: gemm") {
        let call = by_id[&kernel.parent];
        assert_eq!(call.start_ns, kernel.events[0].at_ns, "its own launch");
        assert_eq!(
            (by_id[&call.parent].name.as_str(), by_id[&call.parent].start_ns),
            ("step", call.start_ns - 1)
        );
    }
}

#[test]
fn processes_join_the_trace_that_they_were_given() {
    let mut feed = SpanFeed::new(Sampling::default());
    let given = [
        (origin_of::TRACEPARENT, TRACE),
        (origin_of::TRACESTATE, "vendor=x"),
        (origin_of::BAGGAGE, "user=J%C3%BCrgen,job=7"),
    ];
    let other = "00-0af7651916cd43dd8448eb211c80319c-00000000000000aa-00";
    feed.process(0, 100, 1, &given);
    feed.process(1, 101, 100, &given);
    feed.process(2, 102, 101, &[]);
    feed.process(3, 103, 100, &[(origin_of::TRACEPARENT, other)]);
    // The first process has only definitions when the others end.
    (1..4).for_each(|process| feed.end(process, MS));
    feed.end(0, MS);
    let (mut spans, complaints) = feed.finish();
    spans.rotate_right(1);
    assert_eq!((spans.len(), complaints.len()), (4, 0));
    assert!(spans.iter().all(|span| span.trace_id == 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c));
    let parents: Vec<(u64, bool, u8)> =
        spans.iter().map(|span| (span.parent, span.parent_is_remote, span.flags)).collect();
    let expected =
        [(0xb7ad_6b71_6920_3331, true, 1), (spans[0].id, false, 1), (spans[1].id, false, 1), (0xaa, true, 0)];
    assert_eq!(parents, expected);
    assert_eq!(&*spans[0].trace_state, "vendor=x");
    let baggage = Value::Texts(vec!["user=Jürgen".into(), "job=7".into()]);
    assert_eq!(value(&spans[0], "gputrace.baggage"), Some(&baggage));
}

#[test]
fn sessions_without_a_valid_traceparent_have_one_trace() {
    let run = |origins: &[(u64, &str)]| {
        let mut feed = SpanFeed::new(Sampling::default());
        feed.process(0, 100, 1, origins);
        feed.process(1, 101, 100, origins);
        feed.process(2, 200, 1, origins);
        (0..3).for_each(|process| feed.end(process, MS));
        feed.finish()
    };
    let (spans, complaints) = run(&[]);
    assert_eq!(complaints, [""; 0]);
    let trace = spans[0].trace_id;
    assert!(spans.iter().all(|span| span.trace_id == trace && !span.parent_is_remote && span.flags == 1));
    assert_eq!([spans[0].parent, spans[1].parent, spans[2].parent], [0, spans[0].id, 0]);
    let bad =
        [(origin_of::TRACEPARENT, "00-zz"), (origin_of::TRACESTATE, "x"), (origin_of::BAGGAGE, "\u{1}")];
    let (again, complaints) = run(&bad);
    assert_eq!(again, spans, "the same stream makes the same ids");
    assert_eq!(
        complaints,
        [
            "TRACEPARENT is not used: it is not of the form 00-<trace id>-<span id>-<flags>",
            "BAGGAGE is not used: a member of it has no value"
        ],
        "once each"
    );
}

proptest! {
    /// In any order of entries, every named parent exists and every id is unique.
    #[test]
    fn parents_exist_in_any_order_of_entries(
        steps in prop::collection::vec((0u8..6, 0u32..4, 1u64..300), 0..300),
        rate in 1usize..6,
    ) {
        let mut feed = SpanFeed::one(Sampling { rate: Some(rate), ..Sampling::default() });
        let mut now_ns = MS;
        let mut pushed = Vec::new();
        for (at, (what, position, duration_us)) in steps.into_iter().enumerate() {
            now_ns += 40 * MS;
            let id = at as u32 + 1;
            match what {
                0 | 1 => {
                    feed.cells(0, &[push(position, now_ns)]);
                    pushed.push((position, now_ns));
                }
                2 => if let Some((position, start_ns)) = pushed.pop() {
                    feed.cells(0, &[pop(position, start_ns, now_ns)]);
                },
                3 => feed.cells(0, &[pop(position, now_ns - duration_us * US, now_ns)]),
                4 => feed.cells(0, &[launch(now_ns, duration_us * US, id)]),
                _ => feed.records(0, &kernel(id.saturating_sub(position), now_ns, duration_us * US)),
            }
        }
        feed.end(0, now_ns);
        feed.finish();
    }
}
