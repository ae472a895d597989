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
