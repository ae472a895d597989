//! Ranges that began before the interval that was asked for. Whether such a range reaches into the interval
//! is known once something of its thread does: then its begin is passed on, in front of that, or not at all.

use rustc_hash::FxHashMap;

use crate::model::instances::RangeInstance;

/// By process, the ranges whose begin was not passed on yet, in the order in which they began.
#[derive(Default, Debug)]
pub(super) struct EarlyRanges(FxHashMap<u32, Vec<RangeInstance>>);

impl EarlyRanges {
    pub fn begins(&mut self, range: &RangeInstance) {
        self.0.entry(range.process).or_default().push(*range);
    }

    /// The thread that began a range, if its begin was not passed on.
    pub fn thread_of(&self, range: &RangeInstance) -> Option<u32> {
        let held = self.0.get(&range.process)?;
        held.iter().find(|begun| begun.number == range.number).map(|begun| begun.thread)
    }

    /// Forgets a range that ended before the interval.
    pub fn remove(&mut self, range: &RangeInstance) {
        if let Some(held) = self.0.get_mut(&range.process) {
            held.retain(|begun| begun.number != range.number);
        }
    }

    /// Takes out the ranges of a thread, outermost first.
    pub fn take(&mut self, process: u32, thread: u32) -> Vec<RangeInstance> {
        match self.0.get_mut(&process) {
            Some(held) if !held.is_empty() => held.extract_if(.., |range| range.thread == thread).collect(),
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(thread: u32, number: u32) -> RangeInstance {
        RangeInstance {
            process: 1,
            thread,
            number,
            around: 0,
            caller: 0,
            range: 1,
            start_ns: u64::from(number),
            end_ns: 100,
            duration_ns: 0,
            is_whole: true,
        }
    }

    #[test]
    fn early_ranges_are_taken_once_in_the_order_of_their_begins() {
        let mut early = EarlyRanges::default();
        [range(1, 10), range(2, 11), range(1, 12), range(1, 13)].iter().for_each(|range| early.begins(range));
        early.remove(&range(1, 12));
        // The end of a range may come from another thread than its begin.
        assert_eq!(early.thread_of(&range(7, 13)), Some(1));
        assert_eq!(early.thread_of(&range(1, 12)), None);
        assert_eq!(early.take(1, 1), [range(1, 10), range(1, 13)]);
        assert_eq!(early.take(1, 1), []);
        assert_eq!(early.take(1, 2), [range(2, 11)]);
    }
}
