//! Processes that are over: summed up at once, and kept for the report while there is room.
//!
//! A collector may stand for months while programs come and go. What is known of each by itself is bounded by number
//! and by bytes; the first ones are kept, as in the aggregates. Later ones are in all sums, and counted.

use std::collections::BTreeMap;

use gputrace_wire::counter::Counter;

use crate::batch::Counters;
use crate::model::loss::Loss;
use crate::model::totals::{Counts, Process, Totals};

/// Processes that are kept, and the bytes that all they said comes to: 64 ranks of a large program's definitions.
const PROCESSES_MAX: usize = 1 << 16;
const BYTES_MAX: usize = 512 << 20;

#[derive(Debug)]
pub(super) struct Ended {
    kept: Vec<Process>,
    kept_bytes: usize,
    /// Of these, whether kept or not.
    processes: usize,
    counts: Counts,
    counters: Counters,
    losses: BTreeMap<&'static str, u64>,
    processes_max: usize,
    bytes_max: usize,
}

impl Default for Ended {
    fn default() -> Ended {
        Ended::with_room(PROCESSES_MAX, BYTES_MAX)
    }
}

/// What all of them come to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sums<'a> {
    pub processes: usize,
    pub counts: &'a Counts,
    pub counters: &'a Counters,
}

impl Ended {
    fn with_room(processes_max: usize, bytes_max: usize) -> Ended {
        Ended {
            kept: Vec::new(),
            kept_bytes: 0,
            processes: 0,
            counts: Counts::default(),
            counters: Counters::default(),
            losses: BTreeMap::new(),
            processes_max,
            bytes_max,
        }
    }

    pub fn lose(&mut self, loss: Loss, count: u64) {
        self.lose_as(loss.name(), count);
    }

    fn lose_as(&mut self, reason: &'static str, count: u64) {
        if count > 0 {
            let total = self.losses.entry(reason).or_default();
            *total = total.saturating_add(count);
        }
    }

    /// Nothing more comes of that process, of which that was lost.
    pub fn add(&mut self, mut process: Process, losses: Vec<(Loss, u64)>) {
        for (loss, count) in losses {
            self.lose(loss, count);
        }
        for counter in Counter::ALL.into_iter().filter(|counter| counter.is_loss()) {
            let value = process.counters.values.get(counter as usize).copied().unwrap_or(0);
            self.lose_as(counter.name(), value);
        }
        self.processes += 1;
        self.counts.add(&process.counts);
        self.counters.add(&process.counters);
        process.definitions.shrink();
        let bytes = process.held_bytes();
        if self.kept.len() < self.processes_max && self.kept_bytes.saturating_add(bytes) <= self.bytes_max {
            self.kept_bytes += bytes;
            self.kept.push(process);
        } else {
            self.lose(Loss::ProcessesNotKept, 1);
        }
    }

    pub fn sums(&self) -> Sums<'_> {
        Sums { processes: self.processes, counts: &self.counts, counters: &self.counters }
    }

    /// The totals without sessions.
    pub fn into_totals(mut self) -> Totals {
        self.kept.sort_by_key(|process| process.number);
        Totals { processes: self.kept, counts: self.counts, losses: self.losses, ..Totals::default() }
    }
}

#[cfg(test)]
mod tests {
    use gputrace_wire::definition::kind;

    use super::*;
    use crate::batch::Definition;

    fn process(number: u32, text_bytes: usize) -> Process {
        let mut process = Process { number, ..Process::default() };
        process.counters.values[Counter::RecordsDelivered as usize] = 3;
        process.counters.ring_full = 2;
        process.counts.launches = 5;
        let text = vec![b'x'; text_bytes];
        process.definitions.add(&Definition { kind: kind::NAME, id: 1, fields: Vec::new(), text });
        process.definitions.shrink();
        process
    }

    #[test]
    fn what_is_not_kept_is_in_all_sums_and_counted() {
        let one = process(0, 100_000).held_bytes();
        assert!((100_000..110_000).contains(&one), "{one}");
        // By number, then by bytes: what is too large leaves room for what is smaller.
        for (mut ended, sizes, kept) in [
            (Ended::with_room(2, usize::MAX), [10, 10, 10], vec![0, 1]),
            (Ended::with_room(9, 2 * one), [100_000, 100_001, 10], vec![0, 2]),
        ] {
            for (number, size) in (0..).zip(sizes) {
                ended.add(process(number, size), vec![(Loss::RingFull, 2)]);
            }
            let Sums { processes, counts, counters } = ended.sums();
            assert_eq!((processes, counts.launches, counters.ring_full), (3, 15, 6));
            assert_eq!(counters.values[Counter::RecordsDelivered as usize], 9);
            let totals = ended.into_totals();
            assert_eq!(totals.processes.iter().map(|process| process.number).collect::<Vec<_>>(), kept);
            let losses: Vec<_> = totals.losses().iter().map(|(reason, count)| (*reason, *count)).collect();
            assert_eq!(losses, [("processes_not_kept", 1), ("ring_full", 6)]);
        }
    }
}
