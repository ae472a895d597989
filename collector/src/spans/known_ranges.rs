//! The ranges of a process that may still become spans.
//!
//! A range becomes a span if anything in it does, so that a span's parent always exists. A kernel may run
//! long after the range ended that it was launched in. Therefore an open range is marked when something in it
//! becomes a span, and is emitted at its end; an ended range is held for a while and emitted once it is
//! needed. Past the bound the oldest ended ranges are forgotten; the process is the parent of what still
//! comes of them.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::model::instances::RangeInstance;

/// Ranges that are held after their end.
const ENDED_MAX: usize = 1 << 16;

#[derive(Debug, Default)]
pub struct KnownRanges {
    /// Whether something in the range is a span.
    open: FxHashMap<u32, bool>,
    ended: FxHashMap<u32, EndedRange>,
    /// Ended ranges, the oldest first.
    order: VecDeque<u32>,
    /// Ranges that have become spans and are not emitted yet.
    chosen: Vec<RangeInstance>,
}

#[derive(Debug)]
struct EndedRange {
    range: RangeInstance,
    is_span: bool,
}

impl KnownRanges {
    pub fn begins(&mut self, number: u32) {
        self.open.insert(number, false);
    }

    /// Holds a range that ended. It is a span at once if something in it is.
    pub fn ends(&mut self, range: &RangeInstance) {
        let is_span = self.open.remove(&range.number).unwrap_or(false);
        if is_span {
            self.chosen.push(*range);
        }
        self.ended.insert(range.number, EndedRange { range: *range, is_span });
        self.order.push_back(range.number);
        if self.order.len() > ENDED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.ended.remove(&oldest);
        }
    }

    /// Makes a range a span, if it is still known. Returns its number, else 0.
    pub fn choose(&mut self, number: u32) -> u32 {
        if let Some(is_wanted) = self.open.get_mut(&number) {
            *is_wanted = true;
            return number;
        }
        let Some(ended) = self.ended.get_mut(&number) else { return 0 };
        if !std::mem::replace(&mut ended.is_span, true) {
            self.chosen.push(ended.range);
        }
        number
    }

    /// Takes one of the ranges that became spans.
    pub fn next_chosen(&mut self) -> Option<RangeInstance> {
        self.chosen.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(number: u32, around: u32) -> RangeInstance {
        let (start_ns, end_ns) = (10, 20);
        let (process, thread, caller, is_whole) = (0, 1, 0, true);
        RangeInstance {
            process,
            thread,
            number,
            around,
            caller,
            range: 5,
            start_ns,
            end_ns,
            duration_ns: 0,
            is_whole,
        }
    }

    fn chosen(ranges: &mut KnownRanges) -> Vec<u32> {
        std::iter::from_fn(|| ranges.next_chosen()).map(|range| range.number).collect()
    }

    #[test]
    fn parent_is_a_span_whether_it_ends_before_or_after() {
        let mut ranges = KnownRanges::default();
        ranges.begins(1);
        assert_eq!(ranges.choose(1), 1);
        assert_eq!(chosen(&mut ranges), [0u32; 0], "not before it has ended");
        ranges.ends(&range(1, 0));
        assert_eq!(chosen(&mut ranges), [1]);
        assert_eq!(ranges.choose(1), 1);
        ranges.begins(2);
        ranges.ends(&range(2, 0));
        assert_eq!(chosen(&mut ranges), [0u32; 0]);
        assert_eq!((ranges.choose(2), ranges.choose(2)), (2, 2));
        assert_eq!(chosen(&mut ranges), [2], "once");
        assert_eq!(ranges.choose(3), 0);
    }

    #[test]
    fn forgotten_ranges_are_no_parents() {
        let mut ranges = KnownRanges::default();
        for number in 1..=ENDED_MAX as u32 + 1 {
            ranges.begins(number);
            ranges.ends(&range(number, 0));
        }
        assert_eq!((ranges.choose(1), ranges.choose(2)), (0, 2));
        assert_eq!((ranges.ended.len(), ranges.order.len(), ranges.open.len()), (ENDED_MAX, ENDED_MAX, 0));
    }
}
