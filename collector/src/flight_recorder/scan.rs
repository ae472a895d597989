//! What a batch of cells says of itself: when its events were, how many, and its marks.

use gputrace_wire::call::LONG_DURATION_SHIFT;
use gputrace_wire::cell::{Cell, flag, kind};
use gputrace_wire::clock::Anchor;
use gputrace_wire::clock::mark::EpochBegin;

use crate::batch::LeftOut;
use crate::flight_recorder::marks::Marks;
use crate::model::clock::Clocks;

/// The kinds that are events: what the stream says of itself is none.
const FIRST_EVENT: u16 = kind::LAUNCH;

#[derive(Debug, Default)]
pub struct Scan {
    /// On CLOCK_MONOTONIC, the ends of the event that ended first and of the one that ended last.
    pub ended_ns: Option<(u64, u64)>,
    /// Whether there is an event at all; its time may be unknown.
    pub has_events: bool,
    pub counts: LeftOut,
    pub marks: Marks,
}

/// Looks through whole entries of one ring. `epoch` is the ring's, and goes on.
pub fn scan(ring: u32, cells: &[Cell], clocks: &mut Clocks, epoch: &mut u32) -> Scan {
    let mut scan = Scan::default();
    // Least and greatest ends, by clock: mapping keeps their order, so only these are mapped.
    let mut calls: Option<(u64, u64)> = None;
    let mut records: Option<(u64, u64)> = None;
    let widen = |range: &mut Option<(u64, u64)>, at: u64| {
        *range = Some(range.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
    };
    let mut rest = cells;
    while let Some(first) = rest.first() {
        rest = rest.get(usize::from(first.cells()).max(1)..).unwrap_or(&[]);
        scan.counts.note_entry(first);
        let entry = first.kind();
        scan.has_events |= entry >= FIRST_EVENT;
        match entry {
            kind::LAUNCH..=kind::CALL => {
                let shift = if first.flags() & flag::LONG_DURATION != 0 { LONG_DURATION_SHIFT } else { 0 };
                let duration = u64::from(first.u32_at(16)) << shift;
                widen(&mut calls, first.u64_at(8).saturating_add(duration));
            }
            kind::DEVICE_KERNEL..=47 => {
                let (start, end) = (first.u64_at(8), first.u64_at(16));
                if start != 0 && end >= start {
                    widen(&mut records, end);
                }
            }
            kind::ANCHOR => clocks.anchor(&Anchor::from_cell(first)),
            kind::EPOCH_BEGIN => {
                // Times before it are of the epoch before.
                if let Some(range) = records.take() {
                    map(&mut scan.ended_ns, range, |at| clocks.device_to_monotonic_ns(*epoch, at));
                }
                *epoch = EpochBegin::from_cell(first).epoch;
            }
            _ => {}
        }
        scan.marks.take(ring, first);
    }
    if let Some(range) = calls {
        map(&mut scan.ended_ns, range, |at| clocks.monotonic_ns(at));
    }
    if let Some(range) = records {
        map(&mut scan.ended_ns, range, |at| clocks.device_to_monotonic_ns(*epoch, at));
    }
    scan
}

fn map(ended_ns: &mut Option<(u64, u64)>, (first, last): (u64, u64), mut to_ns: impl FnMut(u64) -> u64) {
    let (first_ns, last_ns) = (to_ns(first), to_ns(last));
    let (known_first_ns, known_last_ns) = ended_ns.unwrap_or((first_ns, last_ns));
    *ended_ns = Some((known_first_ns.min(first_ns), known_last_ns.max(last_ns)));
}
