//! Tests of a process that two collectors recorded, one after the other.

use gputrace_wire::call::{Call, Detail, Launch};
use gputrace_wire::cell::kind;

use super::{Model, Totals};
use crate::batch::{Batch, Counters, Gap, GapReason, ProcessBegin, ProcessEnd, SessionBegin};

/// A collector's stream: the launches by number that it read of ring 2, from a position on.
struct SessionPart {
    from: Option<u64>,
    launches: std::ops::Range<u32>,
    dropped: u64,
    end: Option<ProcessEnd>,
}

fn totals_of(parts: &[SessionPart]) -> (Totals, Vec<u32>) {
    let mut model = Model::new(super::tests::SeenEvents::default());
    for part in parts {
        model.consume(&Batch::SessionBegin(SessionBegin::default()));
        model.consume(&Batch::ProcessBegin(ProcessBegin {
            pid: 7,
            start_monotonic_ns: 5,
            tick_kind: 1,
            ..ProcessBegin::default()
        }));
        let mut cells = Vec::new();
        if let Some(count) = part.from {
            cells.push(Gap { reason: GapReason::TakenOver, count }.to_cell());
        }
        for correlation in part.launches.clone() {
            let detail = Detail::Launch(Launch::default());
            cells.push(Call { kind: kind::LAUNCH, correlation, detail, ..Call::default() }.to_cell());
        }
        model.consume(&Batch::Cells { process: 0, ring: 2, cells });
        let ring_full = part.dropped;
        model.consume(&Batch::Counters(Counters { ring_full, ..Counters::default() }));
        if let Some(end) = part.end {
            model.consume(&Batch::ProcessEnd { process: 0, end, monotonic_ns: 9 });
        }
    }
    let (totals, seen) = model.finish();
    (totals, seen.calls.iter().map(|call| call.correlation).collect())
}

#[test]
fn events_in_both_traces_count_once() {
    let first = SessionPart { from: None, launches: 1..101, dropped: 3, end: None };
    let second = SessionPart { from: Some(90), launches: 91..201, dropped: 5, end: Some(ProcessEnd::Exit) };
    let (totals, order) = totals_of(&[first, second]);
    assert_eq!(order, (1..201).collect::<Vec<_>>());
    assert_eq!(totals.counts.launches, 200);
    assert_eq!(totals.processes.len(), 1);
    // Counters count from the process's begin, so the last ones are the totals.
    assert_eq!(totals.losses().iter().collect::<Vec<_>>(), [(&"ring_full", &5)]);
    assert_eq!(totals.processes[0].end.unwrap().0, ProcessEnd::Exit);
}

/// The first collector was killed before it released anything.
#[test]
fn events_that_a_later_trace_repeats_count_once() {
    let first = SessionPart { from: None, launches: 1..101, dropped: 0, end: None };
    let second = SessionPart { from: None, launches: 1..151, dropped: 0, end: None };
    let third = SessionPart { from: Some(120), launches: 121..201, dropped: 0, end: None };
    let (totals, order) = totals_of(&[first, second, third]);
    assert_eq!(order, (1..201).collect::<Vec<_>>());
    assert_eq!((totals.processes.len(), totals.losses().len()), (1, 0));
}

#[test]
fn events_in_neither_trace_are_lost_and_counted() {
    let first = SessionPart { from: None, launches: 1..81, dropped: 0, end: None };
    let second = SessionPart { from: Some(90), launches: 91..101, dropped: 0, end: None };
    let (totals, _) = totals_of(&[first, second]);
    assert_eq!(totals.counts.launches, 90);
    assert_eq!(totals.losses().get("lost_with_collector"), Some(&10));
}

/// Events in the first trace are unknown without it, and not counted as lost.
#[test]
fn later_trace_alone_counts_what_it_has() {
    let second = SessionPart { from: Some(90), launches: 91..101, dropped: 0, end: Some(ProcessEnd::Exit) };
    let (totals, _) = totals_of(&[second]);
    assert_eq!(totals.counts.launches, 10);
    assert!(totals.losses().is_empty());
}

#[test]
fn process_that_ended_is_not_gone_on_with() {
    let ended = || SessionPart { from: None, launches: 1..11, dropped: 2, end: Some(ProcessEnd::Exit) };
    let (totals, _) = totals_of(&[ended(), ended()]);
    assert_eq!((totals.counts.launches, totals.processes.len()), (20, 2));
    assert_eq!(totals.losses().get("ring_full"), Some(&4));
}
