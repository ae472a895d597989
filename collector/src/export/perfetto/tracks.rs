//! Tracks: numbers, descriptions, and the sequence that a track's events are in.

use std::io;

use rustc_hash::FxHashSet;

use crate::export::perfetto::message::Message;
use crate::export::perfetto::sequence::{EventFields, EventType, Name, Packets, SEQUENCES_MAX, Sequence};
use crate::names::line_safe;

/// Linux gives no larger thread ids, so larger numbers are free for those that share an id.
const SYSTEM_ID_MAX: u32 = 1 << 22;

/// The order among the tracks of a process, and among those of a device: a positive number of 32 bits.
pub mod rank {
    pub const RANGES: u64 = 1;
    pub const DEVICE: u64 = 2;
    pub const STREAM: u64 = 1;
    pub const QUEUE: u64 = 1 << 28;
    pub const BANDWIDTH: u64 = QUEUE + 1;
    pub const MEMORY: u64 = 1 << 28;
    pub const UNTIMED: u64 = 1 << 29;
    pub const SAMPLED: u64 = 1;

    /// A device or stream by its number.
    pub fn numbered(first: u64, number: u32) -> u64 {
        first + u64::from(number.min(1 << 24))
    }
}

/// Units of counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CounterUnit {
    Count,
    Bytes,
    /// One that Perfetto has no number for.
    Named(&'static str),
}

/// Everything that is written to: packets, sequences, tracks.
pub struct Tracks {
    pub packets: Packets,
    sequences: Vec<Sequence>,
    /// The number of the last track.
    last: u64,
    /// How many slices and moments were written.
    pub written: u64,
}

/// Ids of processes or threads as Perfetto needs them: unique, though systems give them again.
#[derive(Debug, Default)]
pub struct SystemIds {
    used: FxHashSet<u32>,
    made: u32,
}

impl SystemIds {
    /// The id itself if it is free, else a number that no system gives.
    pub fn unique(&mut self, id: u32) -> u32 {
        if (1..=SYSTEM_ID_MAX).contains(&id) && self.used.insert(id) {
            return id;
        }
        self.made += 1;
        SYSTEM_ID_MAX + self.made
    }
}

mod field {
    pub const UUID: u32 = 1;
    pub const NAME: u32 = 2;
    pub const PROCESS: u32 = 3;
    pub const THREAD: u32 = 4;
    pub const PARENT: u32 = 5;
    pub const COUNTER: u32 = 8;
    pub const CHILD_ORDER: u32 = 11;
    pub const RANK: u32 = 12;
    /// Children have ranks.
    pub const BY_RANK: u64 = 3;
}

impl Tracks {
    pub fn new(packets: Packets) -> Tracks {
        Tracks { packets, sequences: vec![Sequence::new(1, 0)], last: 0, written: 0 }
    }

    /// The sequence for a new track: one of its own as long as there are few, then a shared one.
    pub fn sequence_of(&mut self, track: u64) -> usize {
        let known = self.sequences.len();
        if known < SEQUENCES_MAX as usize {
            self.sequences.push(Sequence::new(known as u32 + 1, track));
            return known;
        }
        1 + track as usize % (known - 1)
    }

    fn add(&mut self, build: impl FnOnce(&mut Message)) -> io::Result<u64> {
        self.last += 1;
        let uuid = self.last;
        if let Some(first) = self.sequences.first_mut() {
            first.describe(&mut self.packets, |track| {
                track.number(field::UUID, uuid);
                build(track);
            })?;
        }
        Ok(uuid)
    }

    pub fn process(&mut self, pid: u32, name: &str, command: &[String]) -> io::Result<u64> {
        self.add(|track| {
            track.number(field::CHILD_ORDER, field::BY_RANK);
            track.message(field::PROCESS, |process| {
                process.number(1, pid.into());
                command.iter().for_each(|word| process.text(2, &line_safe(word)));
                process.text(6, &line_safe(name));
            });
        })
    }

    pub fn thread(&mut self, process: u64, pid: u32, tid: u32, name: &str) -> io::Result<u64> {
        self.add(|track| {
            track.number(field::PARENT, process);
            track.message(field::THREAD, |thread| {
                thread.number(1, pid.into());
                thread.number(2, tid.into());
                thread.text(5, &line_safe(name));
            });
        })
    }

    /// A track above the processes, whose children are sorted by their ranks.
    pub fn group(&mut self, name: &str) -> io::Result<u64> {
        self.add(|track| {
            track.text(field::NAME, &line_safe(name));
            track.number(field::CHILD_ORDER, field::BY_RANK);
        })
    }

    pub fn child(&mut self, parent: u64, name: &str, rank: u64) -> io::Result<u64> {
        self.add(|track| {
            track.text(field::NAME, &line_safe(name));
            track.number(field::PARENT, parent);
            track.number(field::CHILD_ORDER, field::BY_RANK);
            track.number(field::RANK, rank);
        })
    }

    pub fn counter(&mut self, parent: u64, name: &str, rank: u64, unit: CounterUnit) -> io::Result<u64> {
        self.add(|track| {
            track.text(field::NAME, name);
            track.number(field::PARENT, parent);
            track.number(field::RANK, rank);
            track.message(field::COUNTER, |counter| match unit {
                CounterUnit::Count => counter.number(3, 2),
                CounterUnit::Bytes => counter.number(3, 3),
                CounterUnit::Named(name) => counter.text(6, name),
            });
        })
    }

    /// Writes an event to a sequence; `build` adds what it contains.
    #[inline(always)]
    pub fn event(
        &mut self,
        sequence: usize,
        (event, track, at_ns): (EventType, u64, u64),
        build: impl FnOnce(&mut EventFields<'_>),
    ) -> io::Result<()> {
        let Some(sequence) = self.sequences.get_mut(sequence) else { return Ok(()) };
        self.written += u64::from(matches!(event, EventType::Begin | EventType::Instant));
        sequence.event(&mut self.packets, (event, track, at_ns), build)
    }

    /// Writes the end of the innermost slice of a track.
    #[inline(always)]
    pub fn end(&mut self, sequence: usize, track: u64, at_ns: u64) -> io::Result<()> {
        self.event(sequence, (EventType::End, track, at_ns), |_| {})
    }

    /// Writes a moment with a text on a track above the processes.
    pub fn note(&mut self, at_ns: u64, text: &str) -> io::Result<()> {
        let name = "incomplete recording";
        let track = self.add(|track| track.text(field::NAME, name))?;
        self.event(0, (EventType::Instant, track, at_ns), |event| {
            event.name(Name::Fixed(name), || text.to_owned());
        })
    }

    pub fn counter_value(&mut self, track: u64, at_ns: u64, value: i64) -> io::Result<()> {
        self.event(0, (EventType::Counter, track, at_ns), |event| event.counter_value(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_ids_are_unique_though_systems_give_them_again() {
        let mut ids = SystemIds::default();
        let given: Vec<u32> = [7, 7, 0, u32::MAX, 7, 8].map(|id| ids.unique(id)).to_vec();
        assert_eq!(given, [7, SYSTEM_ID_MAX + 1, SYSTEM_ID_MAX + 2, SYSTEM_ID_MAX + 3, SYSTEM_ID_MAX + 4, 8]);
    }
}
