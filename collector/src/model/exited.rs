//! Processes that have exited: each is added to the totals at once, and kept for the report up to a bound.
//!
//! The bound is a number of processes and the bytes of what they defined. Past it, the process that exited
//! first is evicted: the totals keep its sums, its definitions are dropped. The order of exits is that of the
//! stream, so a live report and one made from the file agree.

use std::collections::VecDeque;

use crate::batch::Counters;
use crate::model::counts::Counts;
use crate::model::loss::Loss;
use crate::model::process_totals::Process;
use crate::model::totals::Totals;

/// Processes that are kept, and the bytes of their definitions: 64 ranks of a large program.
const PROCESSES_MAX: usize = 1 << 16;
const BYTES_MAX: usize = 512 << 20;

#[derive(Debug)]
pub(super) struct Exited {
    /// In the order in which they exited, with the bytes that each holds.
    kept: VecDeque<(Process, usize)>,
    kept_bytes: usize,
    /// Those that ran on when the last session ended. They were held anyway, and are never evicted.
    running: Vec<Process>,
    /// Of these processes, kept or evicted.
    processes: usize,
    totals: Totals,
    processes_max: usize,
    bytes_max: usize,
}

impl Default for Exited {
    fn default() -> Exited {
        Exited::bounded(PROCESSES_MAX, BYTES_MAX)
    }
}

/// The totals of all exited processes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sums<'a> {
    pub processes: usize,
    pub counts: &'a Counts,
    pub counters: &'a Counters,
}

impl Exited {
    pub fn bounded(processes_max: usize, bytes_max: usize) -> Exited {
        Exited {
            kept: VecDeque::new(),
            kept_bytes: 0,
            running: Vec::new(),
            processes: 0,
            totals: Totals::default(),
            processes_max,
            bytes_max,
        }
    }

    pub fn lose(&mut self, loss: Loss, count: u64) {
        self.totals.lose(loss.name(), count);
    }

    pub fn add(&mut self, mut process: Process) {
        self.count(&mut process);
        let bytes = process.held_bytes();
        // One that is too large by itself must not evict all others.
        if bytes > self.bytes_max {
            return self.totals.evict(&process);
        }
        self.kept_bytes += bytes;
        self.kept.push_back((process, bytes));
        while self.kept.len() > self.processes_max || self.kept_bytes > self.bytes_max {
            let Some((first, its_bytes)) = self.kept.pop_front() else { break };
            self.kept_bytes -= its_bytes;
            self.totals.evict(&first);
        }
    }

    /// A process still ran when the last session ended.
    pub fn add_running(&mut self, mut process: Process) {
        self.count(&mut process);
        self.running.push(process);
    }

    fn count(&mut self, process: &mut Process) {
        process.definitions.shrink();
        self.processes += 1;
        self.totals.add(process);
    }

    pub fn sums(&self) -> Sums<'_> {
        Sums { processes: self.processes, counts: &self.totals.counts, counters: &self.totals.counters }
    }

    /// Drops the processes that are kept. Their sums stay.
    pub fn forget(&mut self) {
        let Totals { counts, counters, .. } = std::mem::take(&mut self.totals);
        let empty = Exited::bounded(self.processes_max, self.bytes_max);
        let totals = Totals { counts, counters, ..Totals::default() };
        *self = Exited { processes: self.processes, totals, ..empty };
    }

    /// The totals, without sessions.
    pub fn into_totals(self) -> Totals {
        let kept = self.kept.into_iter().map(|(process, _)| process);
        let mut processes: Vec<Process> = kept.chain(self.running).collect();
        processes.sort_by_key(|process| process.number);
        Totals { processes, ..self.totals }
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

    fn numbers(totals: &Totals) -> Vec<u32> {
        totals.processes.iter().map(|process| process.number).collect()
    }

    #[test]
    fn evicted_process_stays_in_all_sums() {
        let one = process(0, 100_000).held_bytes();
        assert!((100_000..110_000).contains(&one), "{one}");
        // By number, then by bytes: the first to exit goes, unless the new one is too large by itself.
        for (mut exited, sizes, kept) in [
            (Exited::bounded(2, usize::MAX), [10, 10, 10], vec![1, 2]),
            (Exited::bounded(9, 2 * one), [100_000, 100_001, 10], vec![1, 2]),
            (Exited::bounded(9, 2 * one), [10, 300_000, 10], vec![0, 2]),
        ] {
            for (number, size) in (0..).zip(sizes) {
                let losses = vec![(Loss::RingFull, 2)];
                exited.add(Process { losses, ..process(number, size) });
            }
            let Sums { processes, counts, counters } = exited.sums();
            assert_eq!((processes, counts.launches, counters.ring_full), (3, 15, 6));
            assert_eq!(counters.values[Counter::RecordsDelivered as usize], 9);
            let totals = exited.into_totals();
            assert_eq!(numbers(&totals), kept);
            let losses: Vec<_> = totals.losses().iter().map(|(reason, count)| (*reason, *count)).collect();
            assert_eq!(losses, [("processes_not_kept", 1), ("ring_full", 6)]);
            assert_eq!(totals.counter(Counter::RecordsDelivered), 9);
            assert_eq!((totals.evicted.processes, totals.evicted.counts.launches), (1, 5));
        }
    }

    #[test]
    fn running_process_is_never_evicted_and_a_lost_context_is_counted() {
        let mut exited = Exited::bounded(1, usize::MAX);
        exited.add_running(process(0, 10));
        exited.add(Process { failure: Some(HostCall::default()), ..process(1, 10) });
        exited.add(process(2, 10));
        let totals = exited.into_totals();
        assert_eq!(numbers(&totals), [0, 2]);
        assert_eq!((totals.losses()["processes_not_kept"], totals.counts.launches), (1, 15));
        assert_eq!((totals.evicted.failed, totals.evicted.lost), (1, 0));
        assert!(totals.process(2).is_some() && totals.process(1).is_none());
    }
}
