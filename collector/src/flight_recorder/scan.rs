//! Scans a batch of cells for the times and counts of its events, and for its marks.

use gputrace_wire::call::LONG_DURATION_SHIFT;
use gputrace_wire::cell::{Cell, flag, kind};
use gputrace_wire::clock::Anchor;
use gputrace_wire::clock::mark::EpochBegin;

use crate::batch::LeftOut;
use crate::flight_recorder::marks::Marks;
use crate::model::clock::Clocks;

/// The first kind that is an event; lower kinds describe the stream itself.
const FIRST_EVENT: u16 = kind::LAUNCH;

#[derive(Debug, Default)]
pub struct Scan {
    /// The first and the last end of an event, on CLOCK_MONOTONIC.
    pub ended_ns: Option<(u64, u64)>,
    /// Whether there is an event; its time may be unknown.
    pub has_events: bool,
    pub counts: LeftOut,
    pub marks: Marks,
}

/// Scans whole entries of one ring. `epoch` is the ring's current epoch and is updated.
pub fn scan(ring: u32, cells: &[Cell], clocks: &mut Clocks, epoch: &mut u32) -> Scan {
    let mut scan = Scan::default();
    // The least and the greatest end by clock. Conversion keeps the order, so only these are converted.
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
            kind::LAUNCH..=kind::CALL | kind::MEMORY => {
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
                // The records before it belong to the previous epoch.
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
