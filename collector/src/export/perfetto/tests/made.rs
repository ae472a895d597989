//! MadeEvents events: overlaps, ranges, losses, and what hostile traces have.

use gputrace_wire::call::{self, Call, Detail, Launch};
use gputrace_wire::caller::Caller;
use gputrace_wire::cell::kind;
use gputrace_wire::clock::mark::ThreadBegin;
use gputrace_wire::definition::kind as def;
use gputrace_wire::device;
use proptest::prelude::*;

use super::*;
use crate::batch::{Definition, DeviceMetric, DeviceSample, DeviceSamples, ProcessBegin, SessionBegin};
use crate::export::Event;
use crate::model::definitions::Definitions;
use crate::model::instances::RangeInstance;
use crate::model::operation::{GraphNode, HostCall, Kernel, Operation, Timing, Verdict, What};

/// Events for the format, without a model.
struct MadeEvents {
    written: WrittenTrace,
    format: Box<dyn Format>,
    definitions: Definitions,
}

impl MadeEvents {
    fn new() -> MadeEvents {
        let written = WrittenTrace::default();
        let mut made = MadeEvents { format: written.format(), written, definitions: Definitions::default() };
        let (process, session) = (ProcessBegin::default(), SessionBegin::default());
        made.event(|_| Event::ProcessBegins { number: 0, process: &process, session: &session });
        made
    }

    fn event<'e>(&'e mut self, event: impl FnOnce(&'e Definitions) -> Event<'e>) {
        let (totals, aggregates) = (Totals::default(), Aggregates::default());
        let event = event(&self.definitions);
        self.format.event(event, &mut Trace::new(&totals, &aggregates)).unwrap();
    }

    fn operation(&mut self, operation: &Operation) {
        self.event(|definitions| Event::Operation(operation, definitions));
    }

    fn call(&mut self, call: &HostCall) {
        self.event(|definitions| Event::Call(call, definitions));
    }

    fn push(&mut self, range: &RangeInstance) {
        self.event(|definitions| Event::RangeBegins(range, definitions));
    }

    fn pop(&mut self, range: &RangeInstance) {
        self.event(|definitions| Event::Range(range, definitions));
    }

    fn finish(mut self) -> ReadTrace {
        self.event(|definitions| Event::ProcessEnds { number: 0, last_seen_ns: 9, definitions });
        let (totals, aggregates) = (Totals::default(), Aggregates::default());
        self.format.finish(&mut Trace::new(&totals, &aggregates)).unwrap();
        let bytes = self.written.bytes();
        keep(
            std::thread::current().name().and_then(|name| name.rsplit("::").next()).unwrap_or("made"),
            &bytes,
        );
        read(&bytes)
    }
}

fn kernel(stream: u32, start_ns: u64, duration_ns: u64) -> Operation {
    Operation {
        process: 0,
        what: What::Kernel(Kernel::default()),
        call: None,
        timing: Some(Timing { start_ns, duration_ns }),
        device: 0,
        context: 1,
        stream,
        graph: None,
        verdict: Verdict::None,
    }
}

fn call(start_ns: u64, duration_ns: u64) -> HostCall {
    HostCall { thread: 1, start_ns, duration_ns, ..HostCall::default() }
}

fn range(number: u32, start_ns: u64, end_ns: u64) -> RangeInstance {
    RangeInstance {
        process: 0,
        thread: 1,
        number,
        around: 0,
        caller: 0,
        range: 0,
        start_ns,
        end_ns,
        duration_ns: end_ns - start_ns,
        is_whole: true,
    }
}

#[test]
fn parallel_chains_of_a_graph_have_a_row_each() {
    let mut made = MadeEvents::new();
    let launch = HostCall { kind: kind::GRAPH_LAUNCH, correlation: 7, ..call(1_000, 500) };
    made.call(&launch);
    // Four chains of kernels that follow each other at once, of different lengths, in the order of their
    // ends.
    let mut nodes = Vec::new();
    for chain in 0..4 {
        let length = 3_000 + 700 * chain;
        nodes.extend((0..20).map(|at| (10_000 + 10 * chain + at * length, length)));
    }
    nodes.sort_by_key(|(start_ns, length)| start_ns + length);
    for (at, (start_ns, length)) in nodes.iter().enumerate() {
        let node = GraphNode { graph: 3, node: at as u64, nodes: 0, made: None };
        made.operation(&Operation {
            call: Some(launch.clone()),
            graph: Some(node),
            ..kernel(7, *start_ns, *length)
        });
    }
    // The stream goes on in its first row.
    made.operation(&kernel(7, 1_000_000, 10));
    let exported = made.finish();
    let kernels = exported.of_category("kernel");
    assert_eq!(exported.tracks_named("stream 7").len(), 4);
    let nodes_of = |track| {
        kernels.iter().filter(|slice| slice.track == track && slice.numbers.contains_key("node")).count()
    };
    assert_eq!(exported.tracks_named("stream 7").into_iter().map(nodes_of).sum::<usize>(), 80);
    assert!(kernels.iter().all(|slice| slice.depth == 0));
    assert!(kernels[..80].iter().all(|slice| slice.flows == exported.of_category("call")[0].flows));
    let expected: u64 = nodes.iter().map(|(_, length)| length).sum();
    assert_eq!(duration_ns(&kernels), expected + 10);
    assert_eq!(kernels.last().unwrap().track, exported.tracks_named("stream 7")[0]);
}

#[test]
fn kernels_that_overlap_by_the_error_of_the_fit_share_a_row() {
    let mut made = MadeEvents::new();
    (0..100).for_each(|at| made.operation(&kernel(7, 10_000 + at * 1_000, 900 + at % 2 * 103)));
    let exported = made.finish();
    assert_eq!(exported.tracks_named("stream 7").len(), 1);
    let kernels = exported.of_category("kernel");
    assert_eq!((kernels.len(), duration_ns(&kernels)), (100, 50 * 900 + 50 * 1_003));
    for (at, slice) in kernels.iter().enumerate() {
        let late_ns = slice.start_ns - (10_000 + at as u64 * 1_000);
        assert!(late_ns <= super::super::rows::FIT_ERROR_NS, "{late_ns}");
    }
}

#[test]
fn ranges_nest_with_the_calls_inside_them() {
    let mut made = MadeEvents::new();
    made.push(&range(1, 100, 100));
    made.push(&range(2, 100, 100));
    made.call(&call(100, 50));
    made.pop(&range(2, 100, 150));
    made.call(&call(150, 10));
    made.pop(&range(1, 100, 160));
    made.call(&call(160, 0));
    let exported = made.finish();
    let seen: Vec<_> = exported
        .slices
        .iter()
        .map(|slice| (&*slice.category, slice.depth, slice.start_ns, slice.duration_ns.unwrap()))
        .collect();
    assert_eq!(
        seen,
        [
            ("range", 0, 100, 60),
            ("range", 1, 100, 50),
            ("call", 2, 100, 50),
            ("call", 1, 150, 10),
            ("call", 0, 160, 0)
        ]
    );
}

#[test]
fn range_that_ends_before_one_inside_it_cuts_that_one_in_two() {
    let mut made = MadeEvents::new();
    made.push(&range(1, 100, 100));
    made.push(&range(2, 200, 200));
    made.pop(&range(1, 100, 300));
    made.pop(&RangeInstance { is_whole: false, ..range(2, 200, 400) });
    let exported = made.finish();
    let seen: Vec<_> = exported
        .slices
        .iter()
        .map(|slice| {
            (
                slice.start_ns,
                slice.duration_ns.unwrap(),
                slice.numbers.keys().cloned().collect::<Vec<_>>().join(" "),
            )
        })
        .collect();
    let expected = [(100, 200, ""), (200, 100, ""), (300, 100, "continued unfinished")];
    assert_eq!(seen, expected.map(|(start_ns, length, keys)| (start_ns, length, keys.to_owned())));
}

#[test]
fn ranges_ended_by_number_overlap_on_tracks_of_their_own() {
    let mut made = MadeEvents::new();
    for (number, start_ns, end_ns) in [(1, 0, 1_000), (2, 500, 2_000), (3, 3_000, 4_000), (4, 100, 5_000)] {
        made.pop(&range(number, start_ns, end_ns));
    }
    let exported = made.finish();
    assert_eq!(exported.tracks_named("ranges").len(), 3);
    assert_eq!(duration_ns(&exported.of_category("range")), 1_000 + 1_500 + 1_000 + 4_900);
}

#[test]
fn operations_without_times_are_moments_at_their_calls_and_counted() {
    let mut made = MadeEvents::new();
    let untimed = Operation { timing: None, ..kernel(7, 0, 0) };
    made.operation(&Operation { call: Some(call(500, 10)), ..untimed.clone() });
    made.operation(&untimed);
    made.operation(&untimed);
    let exported = made.finish();
    let seen: Vec<_> = exported
        .of_category("untimed")
        .iter()
        .map(|slice| (slice.start_ns, slice.duration_ns, slice.numbers.get("count").copied()))
        .collect();
    assert_eq!(seen, [(500, None, None), (9, None, Some(2))]);
    assert!(exported.of_category("kernel").is_empty());
}

#[test]
fn calls_have_what_is_known_about_them() {
    let mut made = MadeEvents::new();
    let span = Caller { trace: [0x22, 0x11], span: 0x33, flags: 1, remote: 0 };
    made.event(|definitions| Event::Caller { process: 0, number: 1, caller: &span, definitions });
    let copy = Detail::Copy(call::Copy { direction: 1, bytes: 77, count: 1 });
    made.call(&HostCall {
        kind: kind::COPY,
        detail: copy,
        status: 1,
        caller: 1,
        correlation: 9,
        ..call(1, 2)
    });
    let exported = made.finish();
    let slice = &exported.slices[0];
    assert_eq!(slice.texts["span"], "00-00000000000000110000000000000022-0000000000000033-01");
    assert_eq!(slice.texts["status"], "CUDA_ERROR_INVALID_VALUE");
    assert_eq!((slice.numbers["bytes"], slice.numbers["correlation"], slice.flows.len()), (77, 9, 1));
    assert_eq!(slice.name, crate::model::definitions::UNKNOWN_CALL);
}

#[test]
fn counters_follow_memory_queue_and_copies() {
    let mut made = MadeEvents::new();
    let memory = |bytes, address| {
        Detail::Memory(call::Memory {
            memory: call::memory::DEVICE,
            bytes,
            address,
            ..call::Memory::default()
        })
    };
    made.call(&HostCall { kind: kind::ALLOC, detail: memory(100, 1), ..call(10, 5) });
    made.call(&HostCall { kind: kind::ALLOC, detail: memory(50, 2), ..call(20, 5) });
    made.call(&HostCall { kind: kind::FREE, detail: memory(0, 1), ..call(30, 5) });
    let launch = |start_ns| Some(HostCall { kind: kind::LAUNCH, correlation: 1, ..call(start_ns, 5) });
    made.operation(&Operation { call: launch(50_000), ..kernel(7, 250_000, 10) });
    made.operation(&Operation { call: launch(60_000), ..kernel(7, 350_000, 10) });
    let direction = crate::model::operation::Direction::CpuToGpu;
    let what = What::Copy { direction, bytes: 4_000, source_memory: 0, target_memory: 0, devices: None };
    made.operation(&Operation { what, ..kernel(7, 400_000, 1_000) });
    let exported = made.finish();
    let values = |name| &exported.counters[&exported.tracks_named(name)[0]][..];
    assert_eq!(values("memory in use: device"), [(15, 100), (25, 150), (30, 50)]);
    assert_eq!(values("queue depth"), [(100_000, 2), (300_000, 1), (400_000, 0)]);
    assert_eq!(values("bandwidth cpu_to_gpu"), [(400_000, 4_000_000_000), (401_000, 0)]);
}

#[test]
fn sampled_device_has_counters_and_slices_while_its_clocks_are_lowered() {
    let mut made = MadeEvents::new();
    let sample = |time_ns, mhz, reasons| {
        DeviceSample::new(time_ns)
            .with(DeviceMetric::SmClock, Some(mhz))
            .with(DeviceMetric::Power, Some(287_500))
            .with(DeviceMetric::ThrottleReasons, reasons)
    };
    let samples = |samples: Vec<DeviceSample>| DeviceSamples { samples, ..DeviceSamples::default() };
    let first = [sample(100, 1980, Some(1)), sample(200, 1200, Some(0x44)), sample(300, 1200, None)];
    let first = samples(first.to_vec());
    made.event(|_| Event::Samples(&first));
    let second = samples(vec![sample(400, 1980, Some(0x40)), sample(500, 1980, Some(0x40))]);
    made.event(|_| Event::Samples(&second));
    let exported = made.finish();
    let values = |name| &exported.counters[&exported.tracks_named(name)[0]][..];
    assert_eq!(values("SM clock"), [(100, 1980), (200, 1200), (300, 1200), (400, 1980), (500, 1980)]);
    assert_eq!(values("power")[0], (100, 288), "whole watts");
    assert!(exported.tracks_named("temperature").is_empty(), "nothing is made up");
    let lowered: Vec<_> =
        exported.slices.iter().map(|slice| (&*slice.name, slice.start_ns, slice.duration_ns)).collect();
    // Nothing is known of them at 300.
    let expected =
        [("power cap", 200, 100), ("thermal, by hardware", 200, 100), ("thermal, by hardware", 400, 100)];
    assert_eq!(lowered, expected.map(|(name, start_ns, length)| (name, start_ns, Some(length))));
}

#[test]
fn lowered_clocks_end_where_nothing_is_sampled_and_overlapping_traces_have_their_own() {
    let mut made = MadeEvents::new();
    let second_ns = 1_000_000_000;
    let mut sampled = |times: &[u64]| {
        let capped =
            |at: &u64| DeviceSample::new(at * second_ns).with(DeviceMetric::ThrottleReasons, Some(0x4));
        let samples = times.iter().map(capped).collect();
        let samples = DeviceSamples { samples, interval_ns: second_ns, ..DeviceSamples::default() };
        made.event(|_| Event::Samples(&samples));
    };
    // Sampling was switched off between 12 and 100; the second trace began before the first.
    sampled(&[10, 11, 12, 100, 104]);
    sampled(&[8, 9, 11]);
    let exported = made.finish();
    let lowered: Vec<_> = exported
        .slices
        .iter()
        .map(|slice| (slice.start_ns / second_ns, slice.duration_ns.unwrap() / second_ns, slice.depth))
        .collect();
    assert_eq!(lowered, [(10, 2, 0), (100, 4, 0), (8, 3, 0)]);
    assert_eq!(exported.tracks_named("clocks lowered").len(), 2);
}

#[test]
fn many_streams_and_names_share_sequences_and_begin_again() {
    let mut made = MadeEvents::new();
    for at in 0..20_000u32 {
        let what = What::Kernel(Kernel { grid: [at, 1, 1], ..Kernel::default() });
        // Most streams share a sequence with streams whose times are later.
        let stream = at % 5_000;
        let since = if stream < 4_000 { 4_000 - stream } else { stream };
        let start_ns = u64::from(at / 5_000 * 5_000 + since) * 1_000;
        made.operation(&Operation { what, ..kernel(stream, start_ns, 500) });
        made.operation(&Operation { what, ..kernel(0, 100_000_000 + u64::from(at) * 1_000, 500) });
    }
    let exported = made.finish();
    let kernels = exported.of_category("kernel");
    assert_eq!((kernels.len(), duration_ns(&kernels)), (40_000, 20_000_000));
    assert_eq!(exported.sequences, super::super::sequence::SEQUENCES_MAX as usize);
    assert!(!exported.tracks_named("further streams").is_empty());
    let shapes: std::collections::BTreeSet<&str> =
        kernels.iter().map(|slice| &*slice.texts["launch"]).collect();
    assert_eq!(shapes.len(), 20_000);
}

fn times() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let duration = prop_oneof![0u64..3, 0u64..2_000, Just(u64::MAX)];
    proptest::collection::vec((0u64..5_000, duration), 0..150)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// The reader checks that the slices of each track nest.
    #[test]
    fn slices_nest_whatever_the_times_are(operations in times(), calls in times(), ranges in proptest::collection::vec((0u32..6, 0u64..5_000, any::<bool>()), 0..60)) {
        let mut made = MadeEvents::new();
        operations.iter().for_each(|(start_ns, length)| made.operation(&kernel(*start_ns as u32 % 2, *start_ns, *length)));
        let mut ranges = ranges.iter();
        let mut ended = 0;
        for (start_ns, length) in &calls {
            made.call(&call(*start_ns, *length));
            if let Some((number, at_ns, is_push)) = ranges.next() {
                match is_push {
                    true => made.push(&range(*number, *at_ns, *at_ns)),
                    false => made.pop(&range(*number, 0, *at_ns)),
                }
                ended += usize::from(!is_push);
            }
        }
        for number in 0..6 {
            (0..60).for_each(|_| made.pop(&range(number, 0, 5_000)));
        }
        let exported = made.finish();
        let crowded: u64 = exported.slices.iter().filter_map(|slice| slice.numbers.get("count")).sum();
        let shown = exported.of_category("kernel").len() + exported.of_category("call").len();
        prop_assert!(shown as u64 + crowded >= (operations.len() + calls.len()) as u64);
        prop_assert!(crowded != 0 || shown == operations.len() + calls.len());
        prop_assert!(exported.of_category("range").len() as u64 + crowded >= ended as u64);
    }

    /// The reader checks that all texts are UTF-8 without control characters.
    #[test]
    fn hostile_names_are_valid_text(texts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 8)) {
        let define = |kind, id, fields: &[u64], text: &[u8]| Definition { kind, id, fields: fields.to_vec(), text: text.to_vec() };
        let records = vec![
            define(def::PROCESS, 1, &[5, 1, 0, 0], &texts[0]),
            define(def::API, 2, &[], &texts[1]),
            define(def::NAME, 3, &[], &texts[2]),
            define(def::FUNCTION, 4, &[8, 3], b""),
            define(def::THREAD, 5, &[6], &texts[3]),
            define(def::DEVICE, 6, &[0], &texts[4]),
            define(def::RANGE, 7, &[0], &texts[5]),
            define(def::CODE, 8, &[], &texts[6]),
            define(def::STACK, 9, &[8, 1], &texts[7]),
        ];
        let launch = Call { kind: kind::LAUNCH, api: 2, correlation: 1, stack: 9, start_ticks: 10, duration_ticks: 5, detail: Detail::Launch(Launch { function: 4, ..Launch::default() }), ..Call::default() };
        let execution = device::Execution { correlation: 1, start_ns: 20, end_ns: 30, context: 1, stream: 7, ..device::Execution::default() };
        let record = device::Kernel { execution, name: 3, ..device::Kernel::default() };
        let host = vec![ThreadBegin { thread: 5, ticks: 0 }.to_cell(), launch.to_cell()];
        let exported = read(&export(&[
            Batch::SessionBegin(SessionBegin::default()),
            Batch::ProcessBegin(ProcessBegin { tick_kind: 1, ..ProcessBegin::default() }),
            Batch::Definitions { process: 0, records },
            Batch::Cells { process: 0, ring: 2, cells: host },
            Batch::Cells { process: 0, ring: 0, cells: record.to_cells().to_vec() },
        ]));
        prop_assert_eq!((exported.of_category("call").len(), exported.of_category("kernel").len()), (1, 1));
    }
}
