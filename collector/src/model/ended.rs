//! Processes that are over: summed up at once, and kept for the report while there is room.
//!
//! A collector may stand for months while programs come and go. What is known of each by itself is bounded by number
//! and by bytes. Past that the one goes that ended first, for what people ask about is what ran last; those that failed
//! go when nothing else is left. What goes is in all sums, and counted.
//!
//! What sinks keep of those that ended is told by name ([`Namesakes`]) once the process itself goes, or once a sink has
//! little room left: then the older half of them, of which the rest is kept as it is.

use std::collections::{BTreeMap, VecDeque};

use crate::batch::Counters;
use crate::model::counts::Counts;
use crate::model::loss::Loss;
use crate::model::namesakes::Namesakes;
use crate::model::process_totals::Process;
use crate::model::sink::Sink;
use crate::model::totals::Totals;
use crate::model::unkept::Unkept;

/// Processes that are kept, and the bytes that all they said comes to: 64 ranks of a large program's definitions.
const PROCESSES_MAX: usize = 1 << 16;
const BYTES_MAX: usize = 512 << 20;
/// Those that go are told together so many at a time, since sinks take a look at all they keep; and sooner where they
/// take this part of the bytes.
const LEAVING_MAX: usize = 64;
const LEAVING_PART: usize = 16;

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
    /// Of both, so many of the first are told together with their namesakes.
    plain_together: usize,
    failed_together: usize,
    /// Those that went and are not told together yet, with the bytes that they hold.
    leaving: Vec<Process>,
    leaving_bytes: usize,
    namesakes: Namesakes,
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
            plain_together: 0,
            failed_together: 0,
            leaving: Vec::new(),
            leaving_bytes: 0,
            namesakes: Namesakes::default(),
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
            return self.let_go(process, bytes, false);
        }
        while self.plain.len() + self.failed.len() >= self.processes_max
            || self.plain_bytes.saturating_add(least_bytes) > self.bytes_max
        {
            let Some((oldest, its_bytes)) = self.plain.pop_front() else { break };
            self.plain_bytes -= its_bytes;
            let is_together = self.plain_together > 0;
            self.plain_together = self.plain_together.saturating_sub(1);
            self.let_go(oldest, its_bytes, is_together);
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

    fn let_go(&mut self, process: Process, bytes: usize, is_together: bool) {
        self.unkept.add(&process);
        self.lose(Loss::ProcessesNotKept, 1);
        if !is_together {
            self.leaving_bytes = self.leaving_bytes.saturating_add(bytes);
            self.leaving.push(process);
        }
    }

    /// Has those told together of which it is time.
    pub fn settle<S: Sink>(&mut self, sink: &mut S) {
        if sink.is_short_of_room() {
            let plain = self.plain.len() - self.plain_together;
            let failed = self.failed.len() - self.failed_together;
            self.tell_together((plain + failed).div_ceil(2), sink);
        } else if self.leaving.len() >= LEAVING_MAX || self.leaving_bytes > self.bytes_max / LEAVING_PART {
            self.tell_together(0, sink);
        }
    }

    /// Those that leave, and so many of the others: those that ended first, and what failed last of all.
    fn tell_together<S: Sink>(&mut self, others: usize, sink: &mut S) {
        let plain = others.min(self.plain.len() - self.plain_together);
        let failed = (others - plain).min(self.failed.len() - self.failed_together);
        if self.leaving.is_empty() && plain + failed == 0 {
            return;
        }
        let plain = self.plain_together..self.plain_together + plain;
        let failed = self.failed_together..self.failed_together + failed;
        (self.plain_together, self.failed_together) = (plain.end, failed.end);
        let of_plain = self.plain.range(plain.clone()).map(|(process, _)| process);
        let of_failed = self.failed.get(failed.clone()).unwrap_or_default();
        sink.tell_together(&mut self.namesakes.take(self.leaving.iter().chain(of_plain).chain(of_failed)));
        self.leaving.clear();
        self.leaving_bytes = 0;
        // Their ranges are told with those of the group.
        for (process, bytes) in self.plain.range_mut(plain) {
            let freed = std::mem::take(&mut process.ranges).held_bytes().min(*bytes);
            *bytes -= freed;
            self.plain_bytes -= freed;
        }
        for process in self.failed.get_mut(failed).unwrap_or_default() {
            let freed = std::mem::take(&mut process.ranges).held_bytes();
            self.failed_bytes = self.failed_bytes.saturating_sub(freed);
        }
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

    /// The totals without sessions. Nothing more ends.
    pub fn into_totals<S: Sink>(mut self, sink: &mut S) -> Totals {
        self.tell_together(0, sink);
        let told_together = self.namesakes.processes();
        let together = std::mem::take(&mut self.namesakes).into_processes();
        let Ended { plain, failed, running, counts, losses, unkept, .. } = self;
        let plain = plain.into_iter().map(|(process, _)| process);
        let mut processes: Vec<Process> = plain.chain(failed).chain(running).collect();
        processes.sort_by_key(|process| process.number);
        Totals { processes, together, told_together, counts, losses, unkept, ..Totals::default() }
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
            let totals = ended.into_totals(&mut ());
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
        let totals = ended.into_totals(&mut ());
        assert_eq!(totals.processes.iter().map(|process| process.number).collect::<Vec<_>>(), [0, 4, 7]);
        assert_eq!((totals.losses()["processes_not_kept"], totals.counts.launches), (5, 40));
        assert!(totals.process(4).is_some() && totals.process(5).is_none());
    }
}
