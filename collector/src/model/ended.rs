//! Processes that are over: summed up at once, and kept for the report while there is room.
//!
//! A collector may stand for months while programs come and go. What is known of each by itself is bounded by number
//! and by bytes. Past that the one goes that ended first, for what people ask about is what ran last; those that failed
//! go when nothing else is left. What goes is in all sums, and counted.

use std::collections::{BTreeMap, VecDeque};

use crate::batch::Counters;
use crate::model::loss::Loss;
use crate::model::totals::{Counts, Process, Totals};
use crate::model::unkept::Unkept;

/// Processes that are kept, and the bytes that all they said comes to: 64 ranks of a large program's definitions.
const PROCESSES_MAX: usize = 1 << 16;
const BYTES_MAX: usize = 512 << 20;

#[derive(Debug)]
pub(super) struct Ended {
    /// In the order in which they ended, with the bytes that each holds.
    plain: VecDeque<(Process, usize)>,
    plain_bytes: usize,
    /// Those that failed, or had something in flight.
    failed: Vec<Process>,
    failed_bytes: usize,
    /// They ran on when all ended, so that they were held anyway: room is not asked for.
    running: Vec<Process>,
    unkept: Unkept,
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
    pub fn with_room(processes_max: usize, bytes_max: usize) -> Ended {
        Ended {
            plain: VecDeque::new(),
            plain_bytes: 0,
            failed: Vec::new(),
            failed_bytes: 0,
            running: Vec::new(),
            unkept: Unkept::default(),
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
    pub fn add(&mut self, process: Process, losses: Vec<(Loss, u64)>) {
        let process = self.count(process, losses);
        let bytes = process.held_bytes();
        let failed = process.failure.is_some() || !process.in_flight.streams.is_empty();
        // Beside those that failed: what has no room even so must not take that of others.
        let least_bytes = self.failed_bytes.saturating_add(bytes);
        if self.failed.len() >= self.processes_max || least_bytes > self.bytes_max {
            return self.let_go(&process);
        }
        while self.plain.len() + self.failed.len() >= self.processes_max
            || self.plain_bytes.saturating_add(least_bytes) > self.bytes_max
        {
            let Some((oldest, its_bytes)) = self.plain.pop_front() else { break };
            self.plain_bytes -= its_bytes;
            self.let_go(&oldest);
        }
        if failed {
            self.failed_bytes = least_bytes;
            self.failed.push(process);
        } else {
            self.plain_bytes += bytes;
            self.plain.push_back((process, bytes));
        }
    }

    /// The same of a process that runs on.
    pub fn add_running(&mut self, process: Process, losses: Vec<(Loss, u64)>) {
        let process = self.count(process, losses);
        self.running.push(process);
    }

    fn let_go(&mut self, process: &Process) {
        self.unkept.add(process);
        self.lose(Loss::ProcessesNotKept, 1);
    }

    /// Adds it to all sums.
    fn count(&mut self, mut process: Process, losses: Vec<(Loss, u64)>) -> Process {
        for (loss, count) in losses {
            self.lose(loss, count);
        }
        for (reason, count) in process.counters.losses() {
            self.lose_as(reason, count);
        }
        self.processes += 1;
        self.counts.add(&process.counts);
        self.counters.add(&process.counters);
        process.definitions.shrink();
        process
    }

    pub fn sums(&self) -> Sums<'_> {
        Sums { processes: self.processes, counts: &self.counts, counters: &self.counters }
    }

    /// The totals without sessions.
    pub fn into_totals(self) -> Totals {
        let Ended { plain, failed, running, counts, losses, unkept, .. } = self;
        let plain = plain.into_iter().map(|(process, _)| process);
        let mut processes: Vec<Process> = plain.chain(failed).chain(running).collect();
        processes.sort_by_key(|process| process.number);
        Totals { processes, counts, losses, unkept, ..Totals::default() }
    }
}

#[cfg(test)]
mod tests {
    use gputrace_wire::counter::Counter;
    use gputrace_wire::definition::kind;

    use super::*;
    use crate::batch::Definition;
    use crate::model::operation::HostCall;

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
        // By number, then by bytes: the oldest goes, unless the new one has no room by itself.
        for (mut ended, sizes, kept) in [
            (Ended::with_room(2, usize::MAX), [10, 10, 10], vec![1, 2]),
            (Ended::with_room(9, 2 * one), [100_000, 100_001, 10], vec![1, 2]),
            (Ended::with_room(9, 2 * one), [10, 300_000, 10], vec![0, 2]),
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
            assert_eq!(totals.counter(Counter::RecordsDelivered), 9);
        }
    }

    #[test]
    fn what_failed_and_what_runs_on_is_kept_rather_than_the_rest() {
        let failing = |number| Process { failure: Some(HostCall::default()), ..process(number, 10) };
        let mut ended = Ended::with_room(2, usize::MAX);
        ended.add(failing(0), Vec::new());
        for number in [1, 2, 3] {
            ended.add(process(number, 10), Vec::new());
        }
        ended.add(failing(4), Vec::new());
        // Neither what is well, nor one more that failed, takes their place.
        ended.add(process(5, 10), Vec::new());
        ended.add(failing(6), Vec::new());
        ended.add_running(process(7, 10), Vec::new());
        let totals = ended.into_totals();
        assert_eq!(totals.processes.iter().map(|process| process.number).collect::<Vec<_>>(), [0, 4, 7]);
        assert_eq!((totals.losses()["processes_not_kept"], totals.counts.launches), (5, 40));
        assert!(totals.process(4).is_some() && totals.process(5).is_none());
    }
}
