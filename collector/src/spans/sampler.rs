//! The top-N sampler: selects which items of a second become spans.
//!
//! Certain items are always selected, and of the rest the slowest, up to the rate. Seconds are those of the
//! stream: a second ends as soon as an item ends in a later one. Items that come late, as device records do,
//! count for the current second. An item more than a minute late begins a new second, since then one of the
//! two times is wrong; otherwise a single wrong time would keep all later items in one second.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// With so many certain items held, the second ends early.
const CERTAIN_MAX: usize = 4096;
const SECOND_NS: u64 = 1_000_000_000;
/// How long after its end a second still waits for late items, where the sampler learns the time.
const GRACE_NS: u64 = 250_000_000;
/// An item that is later than this begins a new second.
const LATE_SECONDS_MAX: u64 = 60;

#[derive(Debug)]
pub struct TopSampler<T> {
    second: u64,
    /// The most items that are selected for being slow; `None`: all are.
    rate: Option<usize>,
    certain: Vec<T>,
    slowest: BinaryHeap<Ranked<T>>,
    offered: u64,
}

#[derive(Debug)]
struct Ranked<T> {
    duration_ns: u64,
    /// Of two items of one duration the one with the lower number stays.
    number: u64,
    item: T,
}

impl<T> TopSampler<T> {
    pub fn new(rate: Option<usize>) -> TopSampler<T> {
        TopSampler { second: 0, rate, certain: Vec::new(), slowest: BinaryHeap::new(), offered: 0 }
    }

    /// Whether the selected items must be taken before an item that ends at `end_ns` is offered.
    pub fn is_over(&self, end_ns: u64) -> bool {
        self.certain.len() >= CERTAIN_MAX || self.begins_another(end_ns)
    }

    fn begins_another(&self, end_ns: u64) -> bool {
        let second = end_ns / SECOND_NS;
        second > self.second || second + LATE_SECONDS_MAX < self.second
    }

    /// Whether the selected items may be taken now: their second is over, and so is the wait for late items.
    /// Items that come later still count for the second after it.
    pub fn ends_second_by(&mut self, now_ns: u64) -> bool {
        let is_empty = self.certain.is_empty() && self.slowest.is_empty();
        let is_over = self.rate.is_none() || now_ns.saturating_sub(GRACE_NS) / SECOND_NS > self.second;
        if is_over && !is_empty && self.second < now_ns / SECOND_NS {
            self.second += 1;
        }
        is_over && !is_empty
    }

    /// Adds an item. Returns the one that it displaced, which may be the item itself.
    pub fn offer(&mut self, item: T, end_ns: u64, duration_ns: u64, is_certain: bool) -> Option<T> {
        if self.begins_another(end_ns) {
            self.second = end_ns / SECOND_NS;
        }
        let rate = self.rate.filter(|_| !is_certain);
        let Some(rate) = rate else {
            self.certain.push(item);
            return None;
        };
        self.offered += 1;
        self.slowest.push(Ranked { duration_ns, number: self.offered, item });
        if self.slowest.len() > rate { self.slowest.pop().map(|lost| lost.item) } else { None }
    }

    /// Takes the selected items, in no order.
    pub fn selected(&mut self) -> Vec<T> {
        // Collected in place: thousands of items take megabytes.
        let slowest = std::mem::take(&mut self.slowest).into_vec();
        let mut selected: Vec<T> = slowest.into_iter().map(|candidate| candidate.item).collect();
        selected.append(&mut self.certain);
        selected
    }
}

/// The greatest is the one that is displaced first: the fastest.
impl<T> Ord for Ranked<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.duration_ns.cmp(&self.duration_ns).then(self.number.cmp(&other.number))
    }
}

impl<T> PartialOrd for Ranked<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Ranked<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Ranked<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certain_items_and_the_slowest_of_a_second_are_selected() {
        let mut sampler = TopSampler::new(Some(3));
        let mut lost = Vec::new();
        for (name, duration) in [("a", 5), ("b", 1), ("c", 9), ("d", 7), ("e", 5), ("f", 0)] {
            lost.extend(sampler.offer(name, 10, duration, name == "f"));
        }
        assert_eq!(lost, ["b", "e"]);
        assert!(!sampler.is_over(999_999_999));
        assert!(sampler.is_over(1_000_000_000));
        let mut selected = sampler.selected();
        selected.sort_unstable();
        assert_eq!(selected, ["a", "c", "d", "f"]);
        assert_eq!(sampler.offer("late", 5, 0, false), None, "late items count for the current second");
        assert_eq!(sampler.selected(), ["late"]);
    }

    #[test]
    fn wrong_time_costs_one_second() {
        let mut sampler = TopSampler::new(Some(1));
        let second = |at: u64| at * SECOND_NS;
        for (end_ns, is_over) in
            [(100, true), (99, false), (40, false), (1 << 33, true), (101, true), (90, false), (102, true)]
                .map(|(at, is_over)| (second(at), is_over))
        {
            assert_eq!(sampler.is_over(end_ns), is_over, "{end_ns}");
            sampler.selected();
            assert_eq!(sampler.offer(end_ns, end_ns, 1, false), None);
        }
    }

    /// Otherwise the spans of a program that then waits would be held until it does something again.
    #[test]
    fn second_ends_by_itself() {
        let mut sampler = TopSampler::new(Some(2));
        assert!(!sampler.ends_second_by(9 * SECOND_NS), "the second is empty");
        sampler.offer("a", SECOND_NS, 5, false);
        assert!(!sampler.ends_second_by(2 * SECOND_NS + GRACE_NS - 1));
        assert!(sampler.ends_second_by(2 * SECOND_NS + GRACE_NS));
        assert_eq!(sampler.selected(), ["a"]);
        // Items that come even later count for the next second.
        sampler.offer("late", 2 * SECOND_NS - 1, 5, false);
        assert!(!sampler.ends_second_by(3 * SECOND_NS + GRACE_NS - 1));
        assert!(sampler.ends_second_by(3 * SECOND_NS + GRACE_NS));
        let mut all = TopSampler::new(None);
        all.offer("b", 7 * SECOND_NS, 5, false);
        assert!(all.ends_second_by(7 * SECOND_NS), "nothing competes");
    }

    #[test]
    fn items_are_all_selected_without_a_rate() {
        let mut sampler = TopSampler::new(None);
        for at in 0..CERTAIN_MAX {
            assert!(!sampler.is_over(0));
            assert_eq!(sampler.offer(at, 0, 0, false), None);
        }
        assert!(sampler.is_over(0));
        assert_eq!(sampler.selected().len(), CERTAIN_MAX);
    }
}
