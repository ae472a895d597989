//! Tests of the model on built streams: joins, counts, evictions.

mod counted;
mod emitted_alone;
mod graph_launches;

use std::collections::{BTreeMap, BTreeSet};

use gputrace_wire::call::{self, Call, Detail, Launch, direction};
use gputrace_wire::cell::{Cell, flag, kind};
use gputrace_wire::clock::Anchor;
use gputrace_wire::clock::mark::{EpochBegin, ThreadBegin};
use gputrace_wire::counter::Counter;
use gputrace_wire::definition::{kind as def, library_role, rung};
use gputrace_wire::device::{self, DeviceCopy, DeviceFill, DeviceGraph, Execution};
use proptest::prelude::*;

use crate::batch::{Batch, Counters, Definition, Gap, GapReason, ProcessBegin, ProcessEnd, SessionBegin};
use crate::model::definitions::Definitions;
use crate::model::operation::{Direction, HostCall, Operation, What};
use crate::model::sink::Sink;
use crate::model::{Model, Totals};

const HOST: u32 = 2;
const RECORDS: u32 = 0;

#[derive(Default)]
pub(super) struct SeenEvents {
    pub(super) calls: Vec<HostCall>,
    operations: Vec<Operation>,
}

impl Sink for SeenEvents {
    fn host_call(&mut self, call: &HostCall, _: &Definitions) {
        self.calls.push(call.clone());
    }
    fn operation(&mut self, operation: &Operation, _: &Definitions) {
        self.operations.push(operation.clone());
    }
}

/// A session with one process, to feed cells to.
struct ModelFeed(Model<SeenEvents>);

impl ModelFeed {
    fn new() -> ModelFeed {
        let mut model = Model::new(SeenEvents::default());
        model.consume(&Batch::SessionBegin(SessionBegin::default()));
        model.consume(&Batch::ProcessBegin(ProcessBegin { tick_kind: 1, ..ProcessBegin::default() }));
        ModelFeed(model)
    }

    fn define(&mut self, kind: u16, id: u32, fields: &[u64], text: &str) {
        let record = Definition { kind, id, fields: fields.to_vec(), text: text.into() };
        self.0.consume(&Batch::Definitions { process: 0, records: vec![record] });
    }

    fn cells(&mut self, ring: u32, cells: &[Cell]) {
        self.0.consume(&Batch::Cells { process: 0, ring, cells: cells.to_vec() });
    }

    fn seen(&self) -> &SeenEvents {
        self.0.sink()
    }

    fn finish(self) -> (Totals, SeenEvents) {
        self.0.finish()
    }
}

fn call(kind: u16, correlation: u32, start: u64, detail: Detail) -> Call {
    Call { kind, correlation, start_ticks: start, duration_ticks: 10, detail, ..Call::default() }
}

fn launch(correlation: u32, start: u64) -> Call {
    call(kind::LAUNCH, correlation, start, Detail::Launch(Launch { function: 5, ..Launch::default() }))
}

fn executed(correlation: u32, start_ns: u64) -> Execution {
    Execution { correlation, start_ns, end_ns: start_ns + 100, ..Execution::default() }
}

fn kernel(executed: Execution) -> [Cell; 2] {
    device::Kernel { execution: executed, name: 9, ..device::Kernel::default() }.to_cells()
}

#[test]
fn launch_meets_its_record_whichever_comes_first() {
    for record_first in [false, true] {
        let mut feed = ModelFeed::new();
        feed.cells(HOST, &[ThreadBegin { thread: 77, ticks: 0 }.to_cell()]);
        if record_first {
            feed.cells(RECORDS, &kernel(executed(1, 1_000)));
            assert!(feed.seen().operations.is_empty(), "a record without its call waits");
        }
        feed.cells(HOST, &[launch(1, 500).to_cell()]);
        if !record_first {
            feed.cells(RECORDS, &kernel(executed(1, 1_000)));
        }
        let operation = feed.seen().operations[0].clone();
        let call = operation.call.unwrap();
        assert_eq!((call.thread, call.start_ns, call.duration_ns), (77, 500, 10));
        let timing = operation.timing.unwrap();
        assert_eq!((timing.start_ns, timing.duration_ns), (1_000, 100));
        let (totals, seen) = feed.finish();
        assert_eq!(seen.operations.len(), 1);
        let counts = totals.counts;
        assert_eq!((counts.launches, counts.executed, counts.timed, counts.device_only), (1, 1, 1, 0));
        assert_eq!(counts.device_time_coverage(), 1.0);
    }
}

/// Found by fuzzing: a gap with a count of 0.
#[test]
fn gap_of_nothing_is_no_loss() {
    let mut feed = ModelFeed::new();
    for reason in [GapReason::DamagedRing, GapReason::UnfinishedDefinitions, GapReason::TakenOver] {
        feed.cells(HOST, &[Gap { reason, count: 0 }.to_cell()]);
    }
    let (totals, _) = feed.finish();
    assert!(totals.losses().is_empty(), "{:?}", totals.losses());
}

#[test]
fn captured_and_failed_launches_execute_nothing() {
    let mut feed = ModelFeed::new();
    let graph = |flags, status| Call {
        flags,
        status,
        ..call(kind::GRAPH_LAUNCH, 3, 50, Detail::GraphLaunch { graph: 3 })
    };
    feed.cells(
        HOST,
        &[
            Call { flags: flag::CAPTURED, ..launch(1, 50) }.to_cell(),
            Call { status: 700, ..launch(2, 50) }.to_cell(),
            graph(flag::CAPTURED, 0).to_cell(),
            Call { flags: flag::CAPTURED, ..call(kind::FILL, 4, 50, Detail::Fill { bytes: 1, value: 0 }) }
                .to_cell(),
        ],
    );
    let (totals, seen) = feed.finish();
    assert_eq!((seen.calls.len(), seen.operations.len()), (4, 0));
    let counts = totals.counts;
    assert_eq!((counts.launches, counts.captured_launches, counts.failed), (0, 2, 1));
    assert_eq!((counts.graph_launches, counts.captured_others, counts.fills), (0, 1, 0));
}

#[test]
fn calls_without_a_record_describe_what_was_executed() {
    let mut feed = ModelFeed::new();
    feed.define(def::DEVICE, 1, &[2], "GPU");
    feed.define(def::CONTEXT, 2, &[0, 1], "");
    feed.define(def::STREAM, 3, &[0, 2], "");
    feed.define(def::FUNCTION, 5, &[0, 0, 0, 40, 1_024], "kernel");
    let launched = Launch { function: 5, grid: [4, 2, 1], block: [128, 1, 1], ..Launch::default() };
    let copied = call::Copy { direction: direction::DEVICE_TO_HOST, bytes: 4_096, count: 1 };
    feed.cells(
        HOST,
        &[
            Call { stream: 3, ..call(kind::LAUNCH, 0, 1, Detail::Launch(launched)) }.to_cell(),
            call(kind::COPY, 0, 2, Detail::Copy(copied)).to_cell(),
        ],
    );
    // A launch without a correlation id waits for no record.
    let operations = &feed.seen().operations;
    assert_eq!(operations.len(), 2);
    let What::Kernel(kernel) = operations[0].what else { panic!("{:?}", operations[0]) };
    assert_eq!((kernel.name, kernel.grid, kernel.block), (5, [4, 2, 1], [128, 1, 1]));
    assert_eq!((kernel.registers, kernel.static_shared_bytes), (40, 1_024));
    assert_eq!((operations[0].device, operations[0].timing), (2, None));
    assert!(matches!(operations[1].what, What::Copy { direction: Direction::GpuToCpu, bytes: 4_096, .. }));
    let (totals, _) = feed.finish();
    assert_eq!(totals.counts.device_time_coverage(), 0.0);
}

#[test]
fn launches_on_the_hooks_rung_do_not_wait() {
    let mut feed = ModelFeed::new();
    feed.define(def::NOTICE, 1, &[1, rung::HOOKS], "no CUPTI");
    feed.cells(HOST, &[launch(0, 50).to_cell()]);
    assert_eq!(feed.seen().operations.len(), 1);
}

#[test]
fn records_without_calls_are_device_only() {
    let mut feed = ModelFeed::new();
    feed.cells(RECORDS, &kernel(executed(0, 100)));
    assert_eq!(feed.seen().operations.len(), 1, "without a correlation id nothing is waited for");
    feed.cells(RECORDS, &kernel(executed(5, 100)));
    let (totals, seen) = feed.finish();
    assert_eq!(seen.operations.len(), 2);
    assert_eq!((totals.counts.device_only, totals.counts.timed), (2, 2));
}

#[test]
fn times_that_cannot_be_are_no_timing() {
    let mut feed = ModelFeed::new();
    feed.cells(HOST, &[launch(1, 50).to_cell(), launch(2, 50).to_cell()]);
    feed.cells(RECORDS, &kernel(Execution { start_ns: 0, ..executed(1, 100) }));
    feed.cells(RECORDS, &kernel(Execution { end_ns: 0, ..executed(2, 100) }));
    let (totals, seen) = feed.finish();
    assert!(seen.operations.iter().all(|o| o.timing.is_none() && o.call.is_some()));
    let counts = totals.counts;
    assert_eq!((counts.invalid_timing, counts.executed, counts.timed), (2, 2, 0));
}

#[test]
fn copies_and_fills_are_joined_and_directed_by_their_records() {
    let mut feed = ModelFeed::new();
    let copied = call::Copy { direction: direction::UNKNOWN, bytes: 64, count: 1 };
    let unknown = call::Copy { direction: direction::PEER, bytes: 64, count: 1 };
    feed.cells(
        HOST,
        &[
            call(kind::COPY, 1, 10, Detail::Copy(copied)).to_cell(),
            call(kind::COPY, 2, 20, Detail::Copy(unknown)).to_cell(),
            call(kind::FILL, 3, 30, Detail::Fill { bytes: 8, value: 0 }).to_cell(),
        ],
    );
    let record = |correlation, copy_kind| {
        DeviceCopy { execution: executed(correlation, 100), bytes: 64, copy_kind, ..DeviceCopy::default() }
            .to_cell()
    };
    feed.cells(RECORDS, &[record(1, 1), record(2, 0)]);
    feed.cells(
        RECORDS,
        &[DeviceFill { execution: executed(3, 100), bytes: 8, ..DeviceFill::default() }.to_cell()],
    );
    let (totals, seen) = feed.finish();
    let directions: Vec<_> = seen
        .operations
        .iter()
        .filter_map(|o| match o.what {
            What::Copy { direction, .. } => Some(direction),
            _ => None,
        })
        .collect();
    assert_eq!(directions, [Direction::CpuToGpu, Direction::PeerToPeer]);
    assert_eq!((totals.counts.copies, totals.counts.fills, totals.counts.timed), (2, 1, 3));
}

#[test]
fn batch_of_copies_meets_all_its_records() {
    let mut feed = ModelFeed::new();
    let copied = call::Copy { direction: direction::HOST_TO_DEVICE, bytes: 192, count: 3 };
    feed.cells(HOST, &[call(kind::COPY, 1, 10, Detail::Copy(copied)).to_cell()]);
    for _ in 0..3 {
        let record =
            DeviceCopy { execution: executed(1, 100), bytes: 64, copy_kind: 1, ..DeviceCopy::default() };
        feed.cells(RECORDS, &[record.to_cell()]);
    }
    let (totals, seen) = feed.finish();
    assert!(seen.operations.iter().all(|o| o.call.is_some()));
    assert_eq!((totals.counts.executed, totals.counts.device_only), (3, 0));
}

#[test]
fn same_ids_in_another_epoch_are_other_launches() {
    let mut feed = ModelFeed::new();
    feed.cells(RECORDS, &[EpochBegin { epoch: 1, ticks: 0 }.to_cell()]);
    feed.cells(HOST, &[launch(1, 100).to_cell()]);
    // The host ring is read before the records' ring says that a new epoch began at 1 000.
    feed.cells(HOST, &[launch(2, 1_100).to_cell()]);
    feed.cells(RECORDS, &kernel(executed(1, 150)));
    feed.cells(RECORDS, &[EpochBegin { epoch: 2, ticks: 1_000 }.to_cell()]);
    feed.cells(RECORDS, &kernel(executed(2, 1_150)));
    feed.cells(HOST, &[launch(1, 1_200).to_cell()]);
    feed.cells(RECORDS, &kernel(executed(1, 1_250)));
    let (_, seen) = feed.finish();
    let joined: Vec<_> = seen
        .operations
        .iter()
        .map(|o| (o.call.as_ref().map(|c| c.start_ns), o.timing.map(|t| t.start_ns)))
        .collect();
    assert_eq!(joined, [(Some(100), Some(150)), (Some(1_100), Some(1_150)), (Some(1_200), Some(1_250))]);
}

#[test]
fn device_times_are_put_on_the_host_clock_by_anchors() {
    let mut feed = ModelFeed::new();
    let anchor = Anchor { ticks: 1_000, monotonic_ns: 1_000, device_ns: 51_000, ..Anchor::default() };
    feed.cells(1, &[anchor.to_cell()]);
    feed.cells(RECORDS, &kernel(executed(0, 51_500)));
    assert_eq!(feed.seen().operations[0].timing.unwrap().start_ns, 1_500);
}

#[test]
fn damage_gaps_counters_and_unknown_processes_are_reported() {
    let mut feed = ModelFeed::new();
    feed.cells(3, &[Cell::new(kind::CALL, 1, 0), Cell::new(kind::LAUNCH, 2, 0)]);
    feed.cells(4, &[Cell::new(0, 0, 0)]);
    feed.cells(5, &[Cell::new(90, 1, 0), Cell::new(1_000, 1, 0), Cell::new(kind::DEVICE_KERNEL, 1, 0)]);
    feed.cells(6, &[Gap { reason: GapReason::DamagedRing, count: 2 }.to_cell()]);
    feed.0.consume(&Batch::Cells { process: 9, ring: 0, cells: vec![] });
    // A number belongs to one process, even after its end.
    feed.0.consume(&Batch::ProcessBegin(ProcessBegin::default()));
    let mut values = [0; Counter::COUNT];
    values[Counter::RecordsDropped as usize] = 7;
    values[Counter::RecordsDelivered as usize] = 1_000;
    feed.0.consume(&Batch::Counters(Counters { values, ring_full: 4, ..Counters::default() }));
    let (totals, _) = feed.finish();
    let losses: Vec<_> = totals.losses().iter().map(|(reason, count)| (*reason, *count)).collect();
    assert_eq!(
        losses,
        [
            ("cupti_dropped", 7),
            ("damaged_entries", 3),
            ("damaged_rings", 2),
            ("ring_full", 4),
            ("unknown_process", 2)
        ]
    );
    assert_eq!(totals.counts.unknown_kinds, 2);
    assert_eq!(totals.counts.host_calls(), 1);
}

/// Found in review: a session's numbers moved those of all later sessions, until these were all the same.
#[test]
fn session_with_senseless_numbers_leaves_other_sessions_theirs() {
    let mut model = Model::new(SeenEvents::default());
    for numbers in [&[u32::MAX][..], &[0, 1, 2], &[0, 1, 2]] {
        model.consume(&Batch::SessionBegin(SessionBegin::default()));
        for process in numbers {
            model
                .consume(&Batch::ProcessBegin(ProcessBegin { process: *process, ..ProcessBegin::default() }));
            let end = ProcessEnd::Exit;
            model.consume(&Batch::ProcessEnd { process: *process, end, monotonic_ns: 1 });
        }
    }
    let (totals, _) = model.finish();
    assert_eq!(totals.processes.iter().map(|p| p.number).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6]);
    assert!(totals.losses().is_empty(), "{:?}", totals.losses());
}

#[test]
fn sessions_add_up_and_number_their_processes_on() {
    let mut model = Model::new(SeenEvents::default());
    for session in 0..3u64 {
        let begin = SessionBegin {
            realtime_ns: 1_000 * session,
            monotonic_ns: 500 * session,
            ..SessionBegin::default()
        };
        model.consume(&Batch::SessionBegin(begin));
        for process in 0..2 {
            model.consume(&Batch::ProcessBegin(ProcessBegin {
                process,
                tick_kind: 1,
                ..ProcessBegin::default()
            }));
            let cells = vec![launch(0, 10).to_cell()];
            model.consume(&Batch::Cells { process, ring: HOST, cells });
        }
        let end = ProcessEnd::Exit;
        model.consume(&Batch::ProcessEnd { process: 0, end, monotonic_ns: 500 * session + 300 });
        if session != 2 {
            model.consume(&Batch::SessionEnd { wall_ns: 400 });
        }
    }
    let (totals, seen) = model.finish();
    assert_eq!(totals.counts.launches, 6);
    assert_eq!(seen.calls.iter().map(|call| call.process).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(totals.processes.iter().map(|p| p.number).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    assert!(totals.process(4).unwrap().end.is_some() && totals.process(5).unwrap().end.is_none());
    // The last session was cut off; its length goes up to its last event.
    assert_eq!(totals.sessions.iter().map(|s| s.length_ns()).collect::<Vec<_>>(), [400, 400, 300]);
    assert_eq!(totals.wall_ns(), 2_300);
}

proptest! {
    /// In any order of calls and records, each record is emitted once, with its call if there is one, and
    /// each call without a record is emitted once.
    #[test]
    fn join_is_that_of_a_table(
        steps in prop::collection::vec((any::<bool>(), 1u32..60, any::<bool>()), 0..200),
    ) {
        let mut feed = ModelFeed::new();
        let mut called = BTreeSet::new();
        let mut records: BTreeMap<u32, u64> = BTreeMap::new();
        for (is_call, correlation, graph) in steps {
            // Sparse ids, to make windows grow.
            let correlation = correlation * 977;
            if is_call {
                if called.insert(correlation) {
                    let call = match graph {
                        true => call(kind::GRAPH_LAUNCH, correlation, 1, Detail::GraphLaunch { graph: 1 }),
                        false => launch(correlation, 1),
                    };
                    feed.cells(HOST, &[call.to_cell()]);
                }
            } else {
                *records.entry(correlation).or_default() += 1;
                feed.cells(RECORDS, &kernel(executed(correlation, correlation.into())));
            }
        }
        let (totals, seen) = feed.finish();
        let mut out: BTreeMap<u32, u64> = BTreeMap::new();
        for operation in &seen.operations {
            match operation.timing {
                Some(timing) => {
                    let correlation = timing.start_ns as u32;
                    prop_assert_eq!(operation.call.is_some(), called.contains(&correlation));
                    prop_assert!(operation.call.as_ref().is_none_or(|c| c.correlation == correlation));
                    *out.entry(correlation).or_default() += 1;
                }
                None => {
                    let correlation = operation.call.as_ref().unwrap().correlation;
                    prop_assert!(called.contains(&correlation) && !records.contains_key(&correlation));
                }
            }
        }
        prop_assert_eq!(&out, &records);
        let alone = called.iter().filter(|c| !records.contains_key(c)).count();
        prop_assert_eq!(totals.counts.executed, records.values().sum::<u64>() + alone as u64);
    }

    #[test]
    fn any_cells_are_survived(words in prop::collection::vec((any::<[u64; 8]>(), 0u16..60, 0u8..4), 0..60)) {
        let mut feed = ModelFeed::new();
        let cells: Vec<_> = words.into_iter().map(|(words, kind, length)| {
            let mut cell = Cell(words);
            cell.put_u16(0, kind);
            cell.put_u8(2, length);
            cell
        }).collect();
        feed.cells(HOST, &cells);
        feed.finish();
    }
}

/// CUPTI 11.8 on driver 580: launches learn no id, and their records have the id of a later copy.
#[test]
fn launches_without_an_id_are_joined_by_name_and_order() {
    let mut feed = ModelFeed::new();
    feed.define(def::LIBRARY, 1, &[library_role::DEVICE_RECORDS, 18], "/lib/libcupti.so.11.8");
    feed.define(def::LIBRARY, 2, &[library_role::DRIVER, 13000], "libcuda.so.1");
    feed.define(def::NAME, 9, &[], "k");
    feed.define(def::FUNCTION, 5, &[0x1000, 9], "");
    let copy = Detail::Copy(call::Copy { direction: direction::DEVICE_TO_HOST, bytes: 8, count: 1 });
    feed.cells(HOST, &[launch(0, 10).to_cell(), launch(0, 20).to_cell(), launch(0, 30).to_cell()]);
    feed.cells(HOST, &[call(kind::GRAPH_LAUNCH, 5, 40, Detail::GraphLaunch { graph: 3 }).to_cell()]);
    feed.cells(HOST, &[call(kind::GRAPH_LAUNCH, 6, 45, Detail::GraphLaunch { graph: 3 }).to_cell()]);
    feed.cells(HOST, &[call(kind::COPY, 7, 50, copy).to_cell()]);
    let node = |node, at| kernel(Execution { graph_node: node, graph: 4, ..executed(7, at) });
    feed.cells(RECORDS, &[kernel(executed(7, 100)), kernel(executed(7, 300))].concat());
    feed.cells(RECORDS, &[node(1, 400), node(2, 500), node(1, 600), node(2, 700)].concat());
    feed.cells(
        RECORDS,
        &[DeviceCopy { execution: executed(7, 900), copy_kind: 2, bytes: 8, ..DeviceCopy::default() }
            .to_cell()],
    );
    let (totals, seen) = feed.finish();
    let starts: Vec<_> = seen.operations.iter().map(|o| o.call.as_ref().map(|call| call.start_ns)).collect();
    assert_eq!(starts, [Some(10), Some(20), Some(40), Some(40), Some(45), Some(45), Some(50), Some(30)]);
    assert!(seen.operations[7].timing.is_none(), "the third launch has no record");
    let counts = totals.counts;
    assert_eq!((counts.launches, counts.executed, counts.timed, counts.device_only), (3, 8, 7, 0));
}
