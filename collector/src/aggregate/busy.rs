//! How long a device was busy: the union of the times of everything it executed; and why it was idle between.
//!
//! Streams run concurrently and their records come buffer by buffer, so intervals come out of order.
//! They are kept until there are too many; then those well before the latest one are folded into sums.
//! An interval that reaches into the folded time is cut there and counted as late: the sum of busy time is
//! then a lower bound.
//!
//! Most intervals come in order and are appended at once. Those that do not are collected, and merged with
//! the known ones many at a time.

use std::collections::VecDeque;

use crate::aggregate::idle::{Idle, Lead};

/// Separate intervals kept. A trace with fewer operations is exact in any order.
const PENDING_MAX: usize = 1 << 17;
/// New intervals are merged when there are this part of those kept.
const FRESH_SHARE: usize = 64;
/// Intervals that end at most so long before the latest one are folded last.
const HORIZON_NS: u64 = 10_000_000_000;

/// A time in which the device was busy without a pause. The order is that of the starts, and of equal starts
/// any that does not depend on the order of arrival.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct BusyInterval {
    start_ns: u64,
    /// Why its first operation did not start earlier.
    lead: Lead,
    end_ns: u64,
}

#[derive(Clone, Debug)]
pub struct Busy {
    /// Disjoint intervals in order.
    pending: VecDeque<BusyInterval>,
    pending_max: usize,
    /// Intervals that are not merged yet, in any order.
    fresh: Vec<BusyInterval>,
    folded_ns: u64,
    /// Everything before this time is folded; 0 if nothing is.
    frontier_ns: u64,
    /// The gaps between folded intervals.
    idle: Idle,
    late: u64,
    span_ns: Option<(u64, u64)>,
}

impl Default for Busy {
    fn default() -> Self {
        Busy::with_bound(PENDING_MAX)
    }
}

impl Busy {
    fn with_bound(pending_max: usize) -> Busy {
        Busy {
            pending: VecDeque::new(),
            pending_max,
            fresh: Vec::new(),
            folded_ns: 0,
            frontier_ns: 0,
            idle: Idle::default(),
            late: 0,
            span_ns: None,
        }
    }

    #[inline]
    pub(super) fn add(&mut self, start_ns: u64, duration_ns: u64, lead: Lead) {
        let end_ns = start_ns.saturating_add(duration_ns);
        let (first, last) = self.span_ns.unwrap_or((start_ns, end_ns));
        self.span_ns = Some((first.min(start_ns), last.max(end_ns)));
        let mut start = start_ns;
        if start < self.frontier_ns {
            self.late += 1;
            start = self.frontier_ns;
        }
        if end_ns <= start {
            return;
        }
        let interval = BusyInterval { start_ns: start, lead, end_ns };
        match self.pending.back_mut() {
            // A device that is never idle.
            Some(back) if back.start_ns < start && start <= back.end_ns => {
                back.end_ns = end_ns.max(back.end_ns);
                return;
            }
            Some(back) if start <= back.start_ns => {
                self.fresh.push(interval);
                if self.fresh.len() >= (self.pending_max / FRESH_SHARE).max(1) {
                    self.merge();
                }
                return;
            }
            _ => self.pending.push_back(interval),
        }
        // The intervals to be merged must fit too, so that the deque never grows.
        if self.pending.len() > self.pending_max - self.pending_max / FRESH_SHARE {
            self.merge();
            self.fold();
        }
    }

    /// Merges the new intervals with the known ones.
    fn merge(&mut self) {
        self.fresh.sort_unstable();
        let Some(lowest) = self.fresh.first().map(|interval| interval.start_ns) else { return };
        let behind = self.pending.partition_point(|interval| interval.end_ns < lowest);
        let known = self.pending.split_off(behind);
        let mut known = known.into_iter().peekable();
        let mut fresh = self.fresh.drain(..).peekable();
        loop {
            let next = match (known.peek(), fresh.peek()) {
                (Some(one), Some(other)) if one <= other => known.next(),
                (_, Some(_)) => fresh.next(),
                (_, None) => known.next(),
            };
            let Some(next) = next else { break };
            match self.pending.back_mut() {
                Some(last) if next.start_ns <= last.end_ns => last.end_ns = next.end_ns.max(last.end_ns),
                _ => self.pending.push_back(next),
            }
        }
        drop(fresh);
        if self.pending.len() > self.pending_max - self.pending_max / FRESH_SHARE {
            self.fold();
        }
    }

    fn fold(&mut self) {
        let latest = self.span_ns.map_or(0, |(_, last)| last);
        let horizon = latest.saturating_sub(HORIZON_NS);
        while let Some(first) = self.pending.front() {
            if first.end_ns >= horizon && self.pending.len() <= self.pending_max / 2 {
                break;
            }
            self.fold_first();
        }
    }

    fn fold_first(&mut self) {
        let Some(BusyInterval { start_ns, lead, end_ns }) = self.pending.pop_front() else { return };
        // The time before the first operation is no gap.
        if self.frontier_ns > 0 {
            self.idle.gap(start_ns.saturating_sub(self.frontier_ns), &lead);
        }
        self.folded_ns += end_ns - start_ns;
        self.frontier_ns = end_ns;
    }

    /// The time during which at least one operation was executed, and why none was in the time between.
    pub fn into_sums(mut self) -> (u64, Idle) {
        self.merge();
        while !self.pending.is_empty() {
            self.fold_first();
        }
        (self.folded_ns, self.idle)
    }

    #[cfg(test)]
    pub fn busy_ns(&self) -> u64 {
        self.clone().into_sums().0
    }

    /// Intervals that reached into the folded time.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// From the first start to the last end, on CLOCK_MONOTONIC.
    pub fn span_ns(&self) -> Option<(u64, u64)> {
        self.span_ns
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn overlapping_intervals_count_once() {
        let mut busy = Busy::default();
        for (start, duration) in [(100, 50), (120, 10), (150, 10), (300, 5), (140, 30), (90, 10), (400, 0)] {
            busy.add(start, duration, Lead::UNKNOWN);
        }
        assert_eq!(busy.busy_ns(), 80 + 5);
        assert_eq!(busy.span_ns(), Some((90, 400)));
        assert_eq!(busy.late(), 0);
    }

    #[test]
    fn late_interval_is_cut_and_counted() {
        let mut busy = Busy::with_bound(4);
        for at in 0..8u64 {
            busy.add(at * HORIZON_NS, 1_000, Lead::UNKNOWN);
        }
        assert_eq!(busy.busy_ns(), 8_000);
        busy.add(0, 5, Lead::UNKNOWN);
        busy.add(7 * HORIZON_NS - 100, 200, Lead::UNKNOWN);
        assert_eq!((busy.busy_ns(), busy.late()), (8_100, 1));
    }

    #[test]
    fn senseless_times_do_not_overflow() {
        let mut busy = Busy::default();
        busy.add(u64::MAX, u64::MAX, Lead::UNKNOWN);
        busy.add(u64::MAX - 5, u64::MAX, Lead::UNKNOWN);
        busy.add(0, u64::MAX, Lead::UNKNOWN);
        assert_eq!(busy.busy_ns(), u64::MAX);
    }

    fn intervals() -> impl Strategy<Value = Vec<(u64, u64)>> {
        prop::collection::vec((0u64..2_000, 0u64..60), 1..200)
    }

    proptest! {
        #[test]
        fn busy_time_is_the_union_of_single_moments(mut intervals in intervals(), seed in any::<u64>()) {
            let mut moments = std::collections::BTreeSet::new();
            for (start, duration) in &intervals {
                moments.extend(*start..start + duration);
            }
            let mut busy = Busy::default();
            intervals.iter().for_each(|(start, duration)| busy.add(*start, *duration, Lead::UNKNOWN));
            prop_assert_eq!(busy.busy_ns(), moments.len() as u64);
            intervals.sort_by_key(|(start, duration)| (start ^ seed).wrapping_mul(0x9e37_79b9) ^ duration);
            let mut shuffled = Busy::default();
            intervals.iter().for_each(|(start, duration)| shuffled.add(*start, *duration, Lead::UNKNOWN));
            prop_assert_eq!(shuffled.busy_ns(), moments.len() as u64);
        }

        #[test]
        fn intervals_merged_many_at_a_time_have_the_same_union(intervals in intervals()) {
            let (mut many, mut single) = (Busy::with_bound(20 * FRESH_SHARE), Busy::with_bound(FRESH_SHARE - 1));
            for (start, duration) in intervals {
                many.add(start, duration, Lead::UNKNOWN);
                single.add(start, duration, Lead::UNKNOWN);
                prop_assert!(many.fresh.len() <= 20 && single.fresh.is_empty());
                prop_assert!(single.late() > 0 || many.busy_ns() == single.busy_ns());
            }
        }

        #[test]
        fn busy_time_and_gaps_add_up_to_the_span(intervals in intervals(), bound in 1usize..300) {
            let mut busy = Busy::with_bound(bound);
            intervals.iter().for_each(|(start, duration)| busy.add(*start, *duration, Lead::UNKNOWN));
            let ends = |(start, duration): &&(u64, u64)| (*duration > 0).then_some((*start, start + duration));
            let first = intervals.iter().filter_map(|one| ends(&one)).map(|(start, _)| start).min();
            let last = intervals.iter().filter_map(|one| ends(&one)).map(|(_, end)| end).max();
            let (span_ns, late) = (last.unwrap_or(0) - first.unwrap_or(0), busy.late());
            let (busy_ns, idle) = busy.into_sums();
            // What is late may be before everything that was folded.
            prop_assert!(busy_ns + idle.total_ns() <= span_ns);
            prop_assert!(late > 0 || busy_ns + idle.total_ns() == span_ns);
        }

        #[test]
        fn folding_in_order_loses_nothing(mut intervals in intervals()) {
            intervals.sort_unstable();
            let (mut bounded, mut free) = (Busy::with_bound(3), Busy::default());
            for (start, duration) in intervals {
                bounded.add(start, duration, Lead::UNKNOWN);
                free.add(start, duration, Lead::UNKNOWN);
            }
            prop_assert_eq!(bounded.busy_ns(), free.busy_ns());
        }

        #[test]
        fn folding_never_claims_too_much(intervals in intervals()) {
            let (mut bounded, mut free) = (Busy::with_bound(3), Busy::default());
            for (start, duration) in intervals {
                bounded.add(start, duration, Lead::UNKNOWN);
                free.add(start, duration, Lead::UNKNOWN);
                prop_assert!(bounded.pending.len() <= 4);
            }
            prop_assert!(bounded.busy_ns() <= free.busy_ns());
            prop_assert!(bounded.late() > 0 || bounded.busy_ns() == free.busy_ns());
        }
    }
}
