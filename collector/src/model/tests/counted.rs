//! Launches that were counted instead of recorded, and launches without a stack.

use gputrace_wire::counted::Counted;

use super::*;
use crate::aggregate::{Aggregates, KernelKey};
use crate::batch::Excerpt;

fn counted(function: u32, launches: u64) -> Cell {
    Counted { function, begin_ticks: 100, end_ticks: 900, launches, stream: 6 }.to_cell()
}

fn counters(counted_launches: u64) -> Batch {
    Batch::Counters(Counters { counted_launches, ..Counters::default() })
}

#[test]
fn counted_launches_are_launches_of_their_kernel_and_stream() {
    let mut model = Model::new(Aggregates::default());
    model.consume(&Batch::SessionBegin(SessionBegin::default()));
    model.consume(&Batch::ProcessBegin(ProcessBegin { tick_kind: 1, ..ProcessBegin::default() }));
    let function =
        |id, name| Definition { kind: def::FUNCTION, id, fields: vec![0, name, 0, 32], text: vec![] };
    let name = Definition { kind: def::NAME, id: 20, fields: vec![], text: b"saxpy".into() };
    model.consume(&Batch::Definitions { process: 0, records: vec![name, function(5, 20)] });
    let recorded = Call { flags: flag::UNTIMED | flag::UNSTACKED, stream: 6, ..launch(1, 50) };
    let cells = vec![recorded.to_cell(), counted(5, 40), counted(5, 2)];
    model.consume(&Batch::Cells { process: 0, ring: HOST, cells });
    model.consume(&counters(42));
    let (totals, aggregates) = model.finish();
    let counts = &totals.counts;
    assert_eq!((counts.launches, counts.executed, counts.switched_off), (43, 43, 43));
    assert_eq!((counts.counted, counts.unstacked, counts.host_calls()), (42, 1, 1));
    assert!(totals.losses().is_empty(), "{:?}", totals.losses());
    let (key, kernel) = aggregates.kernels.iter().next().unwrap();
    assert_eq!((*key, kernel.calls), (KernelKey { process: 0, name: 20 }, 43));
    assert_eq!(aggregates.streams.get(0, 6).unwrap().weight.count, 43);
    let stacks = aggregates.device_stacks.sorted();
    assert_eq!(stacks.iter().map(|(_, weight)| weight.count).sum::<u64>(), 43);
}

#[test]
fn launches_that_a_killed_process_did_not_write_are_counted_and_said() {
    let mut feed = ModelFeed::new();
    feed.cells(HOST, &[counted(5, 40)]);
    feed.0.consume(&counters(47));
    feed.0.consume(&Batch::ProcessEnd { process: 0, end: ProcessEnd::Vanished, monotonic_ns: 1_000 });
    let (totals, _) = feed.finish();
    assert_eq!((totals.counts.launches, totals.counts.counted), (47, 47));
    assert_eq!(totals.losses().get("launches_of_unknown_kernels"), Some(&7));
}

#[test]
fn part_of_a_session_lacks_no_launches_that_were_written_before() {
    let mut model = Model::new(SeenEvents::default());
    model.consume(&Batch::SessionBegin(SessionBegin::default()));
    model.consume(&Batch::Excerpt(Excerpt::default()));
    model.consume(&Batch::ProcessBegin(ProcessBegin { tick_kind: 1, ..ProcessBegin::default() }));
    model.consume(&Batch::Cells { process: 0, ring: HOST, cells: vec![counted(5, 40)] });
    model.consume(&counters(1_000));
    let (totals, _) = model.finish();
    assert_eq!(totals.counts.launches, 40);
    assert!(totals.losses().is_empty(), "{:?}", totals.losses());
}

#[test]
fn senseless_numbers_of_launches_are_bounded() {
    let mut feed = ModelFeed::new();
    feed.cells(HOST, &[counted(5, u64::MAX), counted(5, u64::MAX), counted(6, 0)]);
    feed.0.consume(&counters(u64::MAX));
    let (totals, _) = feed.finish();
    assert_eq!(totals.counts.launches, 1 << 48);
    assert_eq!(totals.losses().get("damaged_entries"), Some(&2));
}
