//! Tests of range instances on built streams.

use gputrace_wire::call::{Call, Detail, Launch};
use gputrace_wire::cell::{Cell, kind};
use gputrace_wire::clock::mark::ThreadBegin;
use gputrace_wire::range::{RangeBegin, RangeEnd};

use crate::batch::{Batch, Gap, GapReason, ProcessBegin, ProcessEnd, SessionBegin};
use crate::model::Model;
use crate::model::definitions::Definitions;
use crate::model::instances::RangeInstance;
use crate::model::operation::{HostCall, Operation};
use crate::model::sink::Sink;

#[derive(Default)]
struct SeenRanges {
    began: Vec<RangeInstance>,
    ended: Vec<RangeInstance>,
    /// Start of each call and the range it was made in.
    calls: Vec<(u64, u32)>,
    operations: Vec<u32>,
    processes: Vec<(u32, &'static str)>,
}

impl Sink for SeenRanges {
    fn process_begins(&mut self, number: u32, _: &ProcessBegin, _: &SessionBegin) {
        self.processes.push((number, "begins"));
    }
    fn host_call(&mut self, call: &HostCall, _: &Definitions) {
        self.calls.push((call.start_ns, call.range));
    }
    fn operation(&mut self, operation: &Operation, _: &Definitions) {
        self.operations.extend(operation.call.as_ref().map(|call| call.range));
    }
    fn range_begins(&mut self, range: &RangeInstance, _: &Definitions) {
        self.began.push(*range);
    }
    fn range_ends(&mut self, range: &RangeInstance, _: &Definitions) {
        self.ended.push(*range);
    }
    fn process_ends(&mut self, number: u32, _: u64, _: &Definitions) {
        assert_eq!(self.began.len(), self.began.iter().filter(|r| self.has_ended(r.number)).count());
        self.processes.push((number, "ends"));
    }
}

impl SeenRanges {
    fn has_ended(&self, number: u32) -> bool {
        self.ended.iter().any(|range| range.number == number)
    }

    /// Ended ranges: (start, end, start of the range around it or 0, whether whole).
    fn reported(&self) -> Vec<(u64, u64, u64, bool)> {
        let start = |number| self.began.iter().find(|r| r.number == number).map_or(0, |r| r.start_ns);
        self.ended.iter().map(|r| (r.start_ns, r.end_ns, start(r.around), r.is_whole)).collect()
    }
}

fn push(position: u32, start_ticks: u64) -> Cell {
    RangeBegin { kind: kind::RANGE_PUSH, range: 5, position, start_ticks, ..RangeBegin::default() }.to_cell()
}

fn pop(position: u32, open: u32, start_ticks: u64, end_ticks: u64) -> Cell {
    let end = RangeEnd { kind: kind::RANGE_POP, range: 5, position, open, start_ticks, end_ticks, id: 0 };
    end.to_cell()
}

fn launch(start_ticks: u64) -> Cell {
    let detail = Detail::Launch(Launch::default());
    Call { kind: kind::LAUNCH, start_ticks, detail, ..Call::default() }.to_cell()
}

fn seen(cells: &[Cell]) -> SeenRanges {
    let mut model = Model::new(SeenRanges::default());
    model.consume(&Batch::SessionBegin(SessionBegin::default()));
    model.consume(&Batch::ProcessBegin(ProcessBegin { tick_kind: 1, ..ProcessBegin::default() }));
    // The result does not depend on how the stream is cut into batches.
    let (first, second) = cells.split_at(cells.len() / 2);
    for cells in [first, second] {
        model.consume(&Batch::Cells { process: 0, ring: 3, cells: cells.to_vec() });
    }
    model.consume(&Batch::ProcessEnd { process: 0, end: ProcessEnd::Exit, monotonic_ns: 1_000 });
    let (_, seen) = model.finish();
    assert_eq!(seen.processes, [(0, "begins"), (0, "ends")]);
    seen
}

#[test]
fn calls_know_the_very_range_that_they_were_made_in() {
    let seen = seen(&[
        launch(5),
        push(0, 10),
        launch(11),
        push(1, 20),
        launch(21),
        pop(1, 1, 20, 30),
        push(1, 40),
        launch(41),
        pop(1, 1, 40, 50),
        launch(51),
        pop(0, 0, 10, 60),
        launch(61),
    ]);
    let start = |number| seen.began.iter().find(|range| range.number == number).map_or(0, |r| r.start_ns);
    let calls: Vec<(u64, u64)> = seen.calls.iter().map(|(at, range)| (*at, start(*range))).collect();
    assert_eq!(calls, [(5, 0), (11, 10), (21, 20), (41, 40), (51, 10), (61, 0)]);
    assert_eq!(seen.reported(), [(20, 30, 10, true), (40, 50, 10, true), (10, 60, 0, true)]);
    assert_eq!(seen.operations, seen.calls.iter().map(|(_, range)| *range).collect::<Vec<_>>());
}

#[test]
fn range_that_ends_before_those_inside_it_leaves_them_open() {
    let seen = seen(&[push(0, 10), push(1, 20), pop(0, 1, 10, 30), launch(35), pop(0, 0, 20, 40)]);
    assert_eq!(seen.calls, [(35, seen.began[1].number)]);
    assert_eq!(seen.reported(), [(10, 30, 0, true), (20, 40, 10, true)]);
}

#[test]
fn range_is_reported_once_whatever_of_it_was_lost() {
    // A begin that is repeated after a loss; the begin of another range; both ends.
    let seen_all = seen(&[
        push(0, 10),
        push(0, 10),
        launch(15),
        pop(1, 1, 20, 30),
        push(1, 40),
        push(2, 50),
        push(0, 60),
        pop(0, 0, 55, 70),
        launch(80),
    ]);
    assert_eq!(
        seen_all.reported(),
        [
            (20, 30, 10, true),
            (50, 60, 40, false),
            (40, 60, 10, false),
            (10, 60, 0, false),
            (60, 70, 0, false),
            (55, 70, 0, true)
        ]
    );
    assert_eq!(seen_all.calls[1], (80, 0));
    // Two pops of which only the new depth is known; and a range without an end.
    let cut = seen(&[push(0, 10), push(1, 20), push(2, 30), pop(0, 1, 0, 40), launch(50)]);
    assert_eq!(cut.reported(), [(30, 40, 20, false), (20, 40, 10, false), (10, 1_000, 0, false)]);
    assert_eq!(cut.calls, [(50, cut.began[0].number)]);
}

#[test]
fn ranges_end_with_their_thread_and_at_a_gap() {
    let gap = Gap { reason: GapReason::NotStored, count: 1 }.to_cell();
    for what in [ThreadBegin { thread: 9, ticks: 0 }.to_cell(), gap] {
        let seen = seen(&[push(0, 10), launch(20), what, launch(30)]);
        assert_eq!(seen.calls[1], (30, 0));
        assert_eq!(seen.reported(), [(10, 20, 0, false)]);
    }
}

#[test]
fn started_ranges_are_reported_without_a_list() {
    let end = RangeEnd {
        kind: kind::RANGE_END,
        range: 5,
        start_ticks: 7,
        end_ticks: 25,
        id: 1,
        position: 0,
        open: 0,
    };
    let seen = seen(&[push(0, 10), end.to_cell(), pop(0, 0, 10, 30)]);
    assert_eq!(seen.reported(), [(7, 25, 0, true), (10, 30, 0, true)]);
    assert_ne!(seen.ended[0].number, seen.ended[1].number);
}

#[test]
fn hostile_positions_change_nothing() {
    let seen = seen(&[push(u32::MAX, 1), push(64, 2), pop(u32::MAX, u32::MAX, 3, 4), launch(5)]);
    assert_eq!((seen.calls, seen.began.len()), (vec![(5, 0)], 0));
    assert_eq!(seen.ended.len(), 1);
}
