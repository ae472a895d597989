//! Tests of the calls in flight at the end, on built streams.

use gputrace_wire::call::{self, Call, Detail, Launch, direction, operation, wait};
use gputrace_wire::cell::{Cell, flag, kind};
use gputrace_wire::counter::Counter;
use gputrace_wire::definition::{kind as def, rung};
use gputrace_wire::device::{self, Execution};

use super::Model;
use super::in_flight::{InFlight, NEWEST_SHOWN, OLDEST_SHOWN, STREAMS_SHOWN};
use super::process_totals::Process;
use crate::batch::{Batch, Counters, Definition, ProcessBegin, ProcessEnd, SessionBegin};

const HOST: u32 = 2;
const OTHER_HOST: u32 = 3;
const RECORDS: u32 = 0;
const CONTEXT: u32 = 1;
/// Stream definitions: the default one, and two with handles of their own.
const DEFAULT: u32 = 2;
const FIRST: u32 = 3;
const SECOND: u32 = 4;
const ILLEGAL_ADDRESS: u16 = 700;

struct InFlightFeed {
    model: Model<()>,
    /// Every call has a number, which is its correlation id; it begins at a hundred times that.
    number: u32,
}

impl InFlightFeed {
    fn new() -> InFlightFeed {
        let mut model = Model::new(());
        model.consume(&Batch::SessionBegin(SessionBegin::default()));
        model.consume(&Batch::ProcessBegin(ProcessBegin { tick_kind: 1, ..ProcessBegin::default() }));
        let mut feed = InFlightFeed { model, number: 0 };
        feed.define(def::CONTEXT, CONTEXT, &[0xc0]);
        for (id, handle) in [(DEFAULT, 1), (FIRST, 0xf0), (SECOND, 0x50)] {
            feed.define(def::STREAM, id, &[handle, CONTEXT.into()]);
        }
        feed
    }

    fn define(&mut self, kind: u16, id: u32, fields: &[u64]) {
        let record = Definition { kind, id, fields: fields.to_vec(), text: b"x".to_vec() };
        self.model.consume(&Batch::Definitions { process: 0, records: vec![record] });
    }

    fn cell(&mut self, ring: u32, cell: Cell) {
        self.model.consume(&Batch::Cells { process: 0, ring, cells: vec![cell] });
    }

    fn call_on(&mut self, ring: u32, call: Call) -> u32 {
        self.number += 1;
        let start_ticks = u64::from(self.number) * 100;
        let correlation = self.number;
        self.cell(ring, Call { start_ticks, duration_ticks: 10, correlation, ..call }.to_cell());
        self.number
    }

    fn call(&mut self, kind: u16, stream: u32, detail: Detail) -> u32 {
        self.call_on(HOST, Call { kind, stream, detail, ..Call::default() })
    }

    fn launch(&mut self, stream: u32) -> u32 {
        self.call(kind::LAUNCH, stream, Detail::Launch(Launch::default()))
    }

    fn wait(&mut self, what: u8, handle: u64) -> u32 {
        self.call(kind::WAIT, 0, Detail::Wait { what, handle })
    }

    fn fails(&mut self, status: u16) -> u32 {
        let detail = Detail::Wait { what: wait::CONTEXT, handle: 0 };
        self.call_on(HOST, Call { kind: kind::WAIT, status, detail, ..Call::default() })
    }

    /// The record of a call; of a graph launch, the one of a node.
    fn record(&mut self, number: u32, node: u64) {
        self.record_at(number, node, u64::from(number) * 100 + 50);
    }

    fn record_at(&mut self, number: u32, node: u64, start_ns: u64) {
        let end_ns = if start_ns == 0 { 0 } else { start_ns + 5 };
        let executed = Execution {
            correlation: number,
            start_ns,
            end_ns,
            stream: 13,
            graph_node: node,
            ..Execution::default()
        };
        let cells = device::Kernel { execution: executed, name: 9, ..device::Kernel::default() }.to_cells();
        self.model.consume(&Batch::Cells { process: 0, ring: RECORDS, cells: cells.to_vec() });
    }

    fn end(mut self, end: ProcessEnd) -> Process {
        self.model.consume(&Batch::ProcessEnd { process: 0, end, monotonic_ns: 1 << 40 });
        self.model.finish().0.processes.remove(0)
    }

    fn vanishes(self) -> InFlight {
        self.end(ProcessEnd::Vanished).in_flight
    }
}

/// The numbers of the listed calls, by stream definition.
fn numbers(all: &InFlight) -> Vec<(u32, Vec<u32>)> {
    let numbers = |calls: &[super::operation::HostCall]| calls.iter().map(|call| call.correlation).collect();
    all.streams.iter().map(|stream| (stream.stream, numbers(&stream.calls))).collect()
}

#[test]
fn calls_after_the_last_record_of_their_stream_are_in_flight_newest_first() {
    let mut feed = InFlightFeed::new();
    let done = feed.launch(FIRST);
    let other = feed.launch(SECOND);
    let bad = feed.launch(FIRST);
    let behind = feed.launch(FIRST);
    feed.record(done, 0);
    feed.fails(ILLEGAL_ADDRESS);
    let process = feed.end(ProcessEnd::Exit);
    assert_eq!(numbers(&process.in_flight), [(FIRST, vec![behind, bad]), (SECOND, vec![other])]);
    assert_eq!((process.in_flight.operations, process.in_flight.by_waits_only), (3, false));
    let first = &process.in_flight.streams[0];
    assert_eq!((first.record_stream, first.operations, first.left_out), (Some(13), 2, 0));
    assert_eq!(process.failure.unwrap().status, ILLEGAL_ADDRESS);
}

#[test]
fn a_record_says_that_all_before_it_in_its_stream_is_done() {
    let mut feed = InFlightFeed::new();
    let lost = feed.launch(FIRST);
    let known = feed.launch(FIRST);
    feed.record(known, 0);
    assert!(lost < known);
    assert_eq!(feed.vanishes(), InFlight::default());
}

#[test]
fn records_without_times_do_not_show_what_is_done() {
    let mut feed = InFlightFeed::new();
    let cut_short = feed.launch(FIRST);
    feed.record_at(cut_short, 0, 0);
    feed.record_at(cut_short, 0, 0);
    assert_eq!(numbers(&feed.vanishes()), [(FIRST, vec![cut_short])]);
}

#[test]
fn a_process_that_ends_well_has_nothing_in_flight() {
    let mut feed = InFlightFeed::new();
    feed.launch(FIRST);
    let process = feed.end(ProcessEnd::Exit);
    assert_eq!((process.in_flight, process.failure), (InFlight::default(), None));
}

#[test]
fn a_node_of_a_graph_says_that_what_was_before_the_graph_is_done_and_not_the_graph() {
    let mut feed = InFlightFeed::new();
    feed.launch(FIRST);
    let graph = feed.call(kind::GRAPH_LAUNCH, FIRST, Detail::GraphLaunch { graph: 5 });
    feed.record(graph, 1);
    let behind = feed.launch(FIRST);
    // That node may or may not be the graph's last.
    assert_eq!(numbers(&feed.vanishes()), [(FIRST, vec![behind, graph])]);
}

#[test]
fn waits_that_succeeded_say_what_is_done() {
    for (what, handle, left) in [
        (wait::STREAM, 0xf0, vec![SECOND, DEFAULT]),
        (wait::STREAM, 0, vec![SECOND, FIRST]),
        (wait::STREAM, 0x77, vec![SECOND, FIRST, DEFAULT]),
        (wait::CONTEXT, 0, vec![]),
        (wait::CONTEXT, 0xc0, vec![]),
        (wait::CONTEXT, 0xc1, vec![SECOND, FIRST, DEFAULT]),
    ] {
        let mut feed = InFlightFeed::new();
        for stream in [DEFAULT, FIRST, SECOND] {
            feed.launch(stream);
        }
        feed.wait(what, handle);
        let all = feed.vanishes();
        let streams: Vec<u32> = all.streams.iter().map(|stream| stream.stream).collect();
        assert_eq!(streams, left, "{what} {handle:#x}");
        assert!(all.by_waits_only);
    }
}

#[test]
fn a_wait_that_failed_says_nothing_and_one_covers_what_came_before_it_only() {
    let mut feed = InFlightFeed::new();
    feed.launch(FIRST);
    feed.wait(wait::CONTEXT, 0);
    let bad = feed.launch(FIRST);
    feed.fails(ILLEGAL_ADDRESS);
    assert_eq!(numbers(&feed.vanishes()), [(FIRST, vec![bad])]);
}

#[test]
fn waits_in_several_contexts_must_name_theirs() {
    let mut feed = InFlightFeed::new();
    feed.define(def::CONTEXT, 9, &[0xc9]);
    let (on_default, on_first) = (feed.launch(DEFAULT), feed.launch(FIRST));
    feed.wait(wait::CONTEXT, 0);
    feed.wait(wait::STREAM, 0);
    assert_eq!(numbers(&feed.vanishes()), [(FIRST, vec![on_first]), (DEFAULT, vec![on_default])]);
}

#[test]
fn an_event_says_how_far_its_stream_is() {
    let mut feed = InFlightFeed::new();
    feed.launch(FIRST);
    feed.call(kind::CALL, FIRST, Detail::Other { operation: operation::RECORD, value: 0xe });
    let behind = feed.launch(FIRST);
    feed.wait(wait::EVENT, 0xe);
    feed.wait(wait::EVENT, 0xd);
    assert_eq!(numbers(&feed.vanishes()), [(FIRST, vec![behind])]);
}

#[test]
fn a_copy_that_returned_its_bytes_is_done_with_all_before_it() {
    let copy = |direction| Detail::Copy(call::Copy { direction, bytes: 8, count: 1 });
    let mut feed = InFlightFeed::new();
    feed.launch(DEFAULT);
    feed.call(kind::COPY, DEFAULT, copy(direction::DEVICE_TO_HOST));
    let within = feed.call(kind::COPY, DEFAULT, copy(direction::DEVICE_TO_DEVICE));
    let listed = Call { kind: kind::COPY, flags: flag::ASYNC, stream: DEFAULT, ..Call::default() };
    let later = feed.call_on(HOST, Call { detail: copy(direction::DEVICE_TO_HOST), ..listed });
    assert_eq!(numbers(&feed.vanishes()), [(DEFAULT, vec![later, within])]);
}

#[test]
fn latest_calls_without_records_are_remembered() {
    for on_hooks in [false, true] {
        let mut feed = InFlightFeed::new();
        if on_hooks {
            feed.define(def::NOTICE, 1, &[1, rung::HOOKS]);
        }
        let number = 3_000;
        for _ in 0..number {
            let launch = Call { kind: kind::LAUNCH, stream: FIRST, ..Call::default() };
            let start_ticks = u64::from(feed.number) * 100;
            let detail = Detail::Launch(Launch::default());
            let correlation = if on_hooks { 0 } else { feed.number + 1 };
            feed.number += 1;
            feed.cell(HOST, Call { start_ticks, correlation, detail, ..launch }.to_cell());
        }
        let all = feed.vanishes();
        let (first, listed) = (&all.streams[0], NEWEST_SHOWN + OLDEST_SHOWN);
        assert_eq!((first.calls.len(), all.at_least), (listed, on_hooks));
        assert_eq!(first.left_out + listed as u64, first.operations);
        assert!(first.calls.is_sorted_by(|a, b| a.start_ns > b.start_ns));
        assert_eq!(first.calls[0].start_ns, 299_900);
        if !on_hooks {
            // The oldest call is the one that the device executed.
            assert_eq!((first.operations, first.calls[listed - 1].start_ns), (3_000, 0));
        }
    }
}

#[test]
fn the_first_error_that_stays_is_the_failure_whichever_ring_is_read_first() {
    let mut feed = InFlightFeed::new();
    feed.fails(2);
    feed.number = 9;
    feed.fails(719);
    feed.number = 3;
    let detail = Detail::Launch(Launch::default());
    feed.call_on(OTHER_HOST, Call { kind: kind::LAUNCH, status: 700, detail, ..Call::default() });
    feed.number = 5;
    feed.fails(700);
    let failure = feed.end(ProcessEnd::Exit).failure.unwrap();
    assert_eq!((failure.status, failure.start_ns, failure.kind), (700, 400, kind::LAUNCH));
}

#[test]
fn calls_after_the_failure_are_not_in_flight_at_it() {
    let mut feed = InFlightFeed::new();
    let bad = feed.launch(FIRST);
    feed.fails(ILLEGAL_ADDRESS);
    feed.launch(SECOND);
    assert_eq!(numbers(&feed.end(ProcessEnd::Exit).in_flight), [(FIRST, vec![bad])]);
}

#[test]
fn many_streams_are_counted_and_not_all_listed() {
    let mut feed = InFlightFeed::new();
    for stream in 10..40 {
        feed.launch(stream);
    }
    let all = feed.vanishes();
    assert_eq!((all.operations, all.streams.len(), all.streams_left_out), (30, STREAMS_SHOWN, 14));
    assert_eq!(all.streams[0].stream, 39);
}

/// Copies without records: one followed by later work in its stream, one that was only waited for, and one
/// whose call names device memory.
#[test]
fn a_copy_of_unknown_direction_without_a_record_is_from_host_to_host_once_its_stream_went_past() {
    let copy = |direction| Detail::Copy(call::Copy { direction, bytes: 8, count: 1 });
    for (end, loses, expected) in
        [(ProcessEnd::Vanished, false, 1), (ProcessEnd::Exit, false, 2), (ProcessEnd::Exit, true, 0)]
    {
        let mut feed = InFlightFeed::new();
        feed.call(kind::COPY, FIRST, copy(direction::UNKNOWN));
        feed.call(kind::COPY, FIRST, copy(direction::HOST_TO_DEVICE));
        let behind = feed.launch(FIRST);
        feed.record(behind, 0);
        feed.call(kind::COPY, SECOND, copy(direction::UNKNOWN));
        feed.wait(wait::STREAM, 0x50);
        feed.call(kind::COPY, SECOND, copy(direction::UNKNOWN));
        if loses {
            let mut counters = Counters::default();
            counters.values[Counter::RecordsDropped as usize] = 1;
            feed.model.consume(&Batch::Counters(counters));
        }
        let process = feed.end(end);
        assert_eq!(process.counts.host_to_host, expected, "{end:?} {loses}");
        let missing: u64 = process.untimed().iter().map(|(_, missing)| missing).sum();
        assert_eq!(missing + expected, 4);
    }
}

#[test]
fn a_copy_that_names_host_memory_twice_or_no_bytes_is_from_host_to_host() {
    let mut feed = InFlightFeed::new();
    for (direction, bytes) in [(direction::HOST_TO_HOST, 8), (direction::DEVICE_TO_HOST, 0)] {
        feed.call(kind::COPY, FIRST, Detail::Copy(call::Copy { direction, bytes, count: 1 }));
    }
    assert_eq!(feed.end(ProcessEnd::Vanished).counts.host_to_host, 2);
}
