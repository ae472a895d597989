//! The stream of batches: the session reads them from processes, the trace file stores them, the model
//! consumes them.
//!
//! Live and from a file, the model gets the same batches in the same order, so the numbers agree exactly. A
//! batch owns plain data that was copied from shared memory and checked for bounds, but not for meaning: ids
//! in it may be invalid.

mod device_samples;

use gputrace_wire::cell::{Cell, flag, kind};
use gputrace_wire::counted::Counted;
use gputrace_wire::counter::Counter;
use serde::Serialize;

pub use device_samples::{DeviceIdentity, DeviceMetric, DeviceSample, DeviceSamples};

#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::large_enum_variant, reason = "cells are most of a batch, and lie behind a pointer")]
pub enum Batch {
    /// First in every stream.
    SessionBegin(SessionBegin),
    /// Second in a stream of a flight recorder, which contains only the end of the session.
    Excerpt(Excerpt),
    ProcessBegin(ProcessBegin),
    Definitions {
        process: u32,
        records: Vec<Definition>,
    },
    /// Whole entries of one ring, in the order they were published.
    Cells {
        process: u32,
        ring: u32,
        cells: Vec<Cell>,
    },
    /// Totals since the process began; a process's last ones count.
    Counters(Counters),
    ProcessEnd {
        process: u32,
        end: ProcessEnd,
        monotonic_ns: u64,
    },
    /// What a device did meanwhile. Anywhere between the session's begin and its end: the device may be used
    /// by several processes.
    DeviceSamples(DeviceSamples),
    /// Processes that could not be recorded, and why: one line each. Next to last, if there are any.
    Unrecorded(Vec<String>),
    /// Only in a trace file that holds the first part of the stream, since its size was limited. Stored when
    /// the limit was reached, and again before the session's end with the counts of what was left out.
    SizeLimit(SizeLimit),
    /// In a trace file only: the file is one of a series that rotation makes.
    SeriesFile(SeriesFile),
    /// Last in a stream that was closed in order.
    SessionEnd {
        wall_ns: u64,
    },
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SessionBegin {
    /// Version of the program that recorded.
    pub recorder: String,
    pub command: Vec<String>,
    pub realtime_ns: u64,
    pub monotonic_ns: u64,
    /// TRACEPARENT in the environment of the collector; empty if it was not set.
    pub traceparent: String,
    /// Whether the command got a TRACEPARENT of this session.
    pub hands_on: bool,
}

/// The stream is only the last part of a session: its bounds, and counts of what came before.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Excerpt {
    /// The requested length.
    pub window_ns: u64,
    /// The ends of the first and the last event in the stream, on CLOCK_MONOTONIC.
    pub from_ns: u64,
    pub to_ns: u64,
    /// Why it was written: `exit`, `crash (SIGSEGV)`, `signal` or `asked`.
    pub reason: String,
    pub left_out: LeftOut,
}

/// The size limit of a trace file, and counts of what was left out for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SizeLimit {
    pub max_bytes: u64,
    /// Its `processes` began after the limit was reached and are not in the file at all.
    pub left_out: LeftOut,
}

/// Where a trace file stands in a series: one session's stream, cut into files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeriesFile {
    /// From 1.
    pub number: u32,
    pub mark: SeriesMark,
    /// When the stream was cut, on CLOCK_MONOTONIC.
    pub cut_ns: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum SeriesMark {
    /// Second in every file but the first. The batches up to `Repeated` repeat what earlier files contain
    /// about the processes that still run. A reader that has read those files skips them.
    Begins = 1,
    /// The repetition ends; the stream continues.
    Repeated = 2,
    /// The stream continues in the next file. After this mark, each running process ends as `Running`, and
    /// the file ends.
    GoesOn = 3,
}

/// Counts of what an excerpt or a file of limited size leaves out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LeftOut {
    /// Processes that are not there: they ended before the excerpt, or began after the limit was reached.
    /// Others are complete but for events.
    pub processes: u64,
    /// Entries of all kinds.
    pub entries: u64,
    /// Among the entries: hooked calls, and of these accepted launches of kernels and graphs.
    pub host_calls: u64,
    pub launches: u64,
    pub graph_launches: u64,
    pub device_records: u64,
    /// Entries within the requested length that were evicted because the memory was full.
    #[serde(rename = "for_room")]
    pub over_capacity: u64,
    /// The losses of those processes, over all reasons.
    pub lost: u64,
}

impl LeftOut {
    /// Counts whole entries of a ring.
    pub fn note_entries(&mut self, cells: &[Cell]) {
        let mut rest = cells;
        while let Some(first) = rest.first() {
            rest = rest.get(usize::from(first.cells()).max(1)..).unwrap_or(&[]);
            self.note_entry(first);
        }
    }

    /// Counts an entry by its first cell.
    pub fn note_entry(&mut self, first: &Cell) {
        self.entries += 1;
        let entry = first.kind();
        match entry {
            kind::LAUNCH..=kind::CALL | kind::MEMORY => {
                self.host_calls += 1;
                let accepted = u64::from(first.u16_at(60) == 0 && first.flags() & flag::CAPTURED == 0);
                match entry {
                    kind::LAUNCH => self.launches += accepted,
                    kind::GRAPH_LAUNCH => self.graph_launches += accepted,
                    _ => {}
                }
            }
            kind::COUNTED => {
                self.launches = self.launches.saturating_add(Counted::from_cell(first).launches);
            }
            kind::DEVICE_KERNEL..=47 => self.device_records += 1,
            _ => {}
        }
    }

    /// In the order in which they are stored; new ones go at the end.
    pub fn values(&self) -> [u64; 8] {
        [
            self.processes,
            self.entries,
            self.host_calls,
            self.launches,
            self.graph_launches,
            self.device_records,
            self.over_capacity,
            self.lost,
        ]
    }

    pub fn from_values(values: [u64; 8]) -> LeftOut {
        let [processes, entries, host_calls, launches, graph_launches, device_records, over_capacity, lost] =
            values;
        LeftOut {
            processes,
            entries,
            host_calls,
            launches,
            graph_launches,
            device_records,
            over_capacity,
            lost,
        }
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &LeftOut) {
        let mut sum = self.values();
        for (to, from) in sum.iter_mut().zip(other.values()) {
            *to = to.saturating_add(from);
        }
        *self = LeftOut::from_values(sum);
    }
}

/// A process joined the session. `process` numbers it within the session, from 0.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProcessBegin {
    pub process: u32,
    pub pid: u32,
    pub parent_pid: u32,
    pub generation: u32,
    /// One of [`gputrace_wire::clock::tick`].
    pub tick_kind: u32,
    pub ticks_per_second: u64,
    pub start_ticks: u64,
    pub start_monotonic_ns: u64,
    pub start_realtime_ns: u64,
}

/// A definition, with its fields by index as [`gputrace_wire::definition`] names them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Definition {
    pub kind: u16,
    pub id: u32,
    pub fields: Vec<u64>,
    pub text: Vec<u8>,
}

impl Definition {
    /// The field of that index; 0 if the writer had no such field.
    pub fn field(&self, index: usize) -> u64 {
        self.fields.get(index).copied().unwrap_or(0)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counters {
    pub process: u32,
    pub values: [u64; Counter::COUNT],
    /// Entries that did not fit their ring, over all rings.
    pub ring_full: u64,
    /// Entries written, over all rings.
    pub written: u64,
    pub sampled_hooks: u64,
    pub sampled_ticks: u64,
    /// Launches that were counted instead of recorded, over all rings.
    pub counted_launches: u64,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            process: 0,
            values: [0; Counter::COUNT],
            ring_full: 0,
            written: 0,
            sampled_hooks: 0,
            sampled_ticks: 0,
            counted_launches: 0,
        }
    }
}

impl Counters {
    pub fn value(&self, counter: Counter) -> u64 {
        self.values.get(counter as usize).copied().unwrap_or(0)
    }

    /// The mean cost of the hooks that were measured.
    pub fn hook_cost_ns(&self, ns_per_tick: f64) -> Option<f64> {
        (self.sampled_hooks > 0).then(|| self.sampled_ticks as f64 * ns_per_tick / self.sampled_hooks as f64)
    }

    /// Calls that were only counted while the session was paused.
    pub fn paused_calls(&self) -> u64 {
        Counter::PAUSED.into_iter().fold(0, |sum, counter| sum.saturating_add(self.value(counter)))
    }

    /// The counters of losses, by name.
    pub fn losses(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let lost = Counter::ALL.into_iter().filter(|counter| counter.is_loss());
        lost.map(|counter| (counter.name(), self.value(counter)))
    }

    /// How much was lost, over all reasons.
    pub fn lost(&self) -> u64 {
        self.losses().fold(self.ring_full, |sum, (_, count)| sum.saturating_add(count))
    }

    /// Adds the counters of another process. They are untrusted, so sums saturate.
    pub fn add(&mut self, other: &Counters) {
        let add = |to: &mut u64, from: u64| *to = to.saturating_add(from);
        for (to, from) in self.values.iter_mut().zip(other.values) {
            add(to, from);
        }
        add(&mut self.ring_full, other.ring_full);
        add(&mut self.written, other.written);
        add(&mut self.sampled_hooks, other.sampled_hooks);
        add(&mut self.sampled_ticks, other.sampled_ticks);
        add(&mut self.counted_launches, other.counted_launches);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProcessEnd {
    /// It ran its exit handlers.
    Exit,
    /// It was replaced by another program.
    Exec,
    /// It vanished: killed, crashed or ended without running its exit handlers.
    Vanished,
    /// It was still running when the session ended.
    Running,
}

/// A part that the collector could not read. It is an entry of one cell in the stream, of kind
/// [`gputrace_wire::cell::kind::GAP`], so that it is counted from a file too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    pub reason: GapReason,
    pub count: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum GapReason {
    /// A ring had invalid contents and was not read further.
    DamagedRing = 1,
    DamagedDefinitions = 2,
    /// Definitions that a killed thread left unfinished.
    UnfinishedDefinitions = 3,
    /// A segment that the process sent cannot be used.
    RefusedSegment = 4,
    /// Nothing was lost: the ring is read from the position in `count` on. Another collector read what was
    /// published before, and its trace may contain it.
    TakenOver = 5,
    /// Entries that the collector read and could not store, since the file system was full.
    NotStored = 6,
}

impl Gap {
    pub fn to_cell(&self) -> Cell {
        let mut cell = Cell::new(kind::GAP, 1, 0);
        cell.put_u32(4, self.reason as u32);
        cell.put_u64(8, self.count);
        cell
    }

    /// Reads a gap back; `None` if the reason is not known.
    pub fn from_cell(cell: &Cell) -> Option<Gap> {
        let reason = match cell.u32_at(4) {
            1 => GapReason::DamagedRing,
            2 => GapReason::DamagedDefinitions,
            3 => GapReason::UnfinishedDefinitions,
            4 => GapReason::RefusedSegment,
            5 => GapReason::TakenOver,
            6 => GapReason::NotStored,
            _ => return None,
        };
        Some(Gap { reason, count: cell.u64_at(8) })
    }
}
