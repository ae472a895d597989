//! For each event: which of the filters' range conditions the ranges around it fulfil.
//!
//! Ranges that ended are kept for a while, since operations that were launched in them come later. Only the
//! latest [`ENDED_MAX`] of them are kept, which bounds the memory.

use std::collections::VecDeque;

use gputrace_wire::range::POSITIONS_MAX;
use rustc_hash::FxHashMap;

use crate::model::instances::RangeInstance;
use crate::model::operation::HostCall;

const ENDED_MAX: usize = 1 << 16;

#[derive(Default, Debug)]
pub(super) struct Within {
    /// By process and range number.
    ranges: FxHashMap<(u32, u32), KnownRange>,
    /// The keys of the ranges that ended, the earliest first.
    ended: VecDeque<(u32, u32)>,
}

#[derive(Clone, Copy, Debug)]
struct KnownRange {
    /// The conditions that its own name fulfils, a bit each.
    bits: u64,
    around: u32,
    /// [`u64::MAX`] while it is open.
    end_ns: u64,
}

impl Within {
    pub fn begins(&mut self, range: &RangeInstance, bits: u64) {
        let known = KnownRange { bits, around: range.around, end_ns: u64::MAX };
        self.ranges.insert((range.process, range.number), known);
    }

    pub fn ends(&mut self, range: &RangeInstance) {
        let key = (range.process, range.number);
        let Some(known) = self.ranges.get_mut(&key) else { return };
        known.end_ns = range.end_ns;
        self.ended.push_back(key);
        if self.ended.len() > ENDED_MAX
            && let Some(oldest) = self.ended.pop_front()
        {
            self.ranges.remove(&oldest);
        }
    }

    pub fn of_call(&self, call: &HostCall) -> u64 {
        self.bits(call.process, call.range, call.start_ns)
    }

    /// The conditions that a range, or any range around it, fulfils at `at_ns`. Only ranges that were open
    /// then count: ranges of different domains may end in any order, so an outer one may end before an inner
    /// one.
    pub fn bits(&self, process: u32, mut range: u32, at_ns: u64) -> u64 {
        let mut bits = 0;
        for _ in 0..POSITIONS_MAX {
            let Some(known) = self.ranges.get(&(process, range)) else { break };
            if known.end_ns > at_ns {
                bits |= known.bits;
            }
            range = known.around;
        }
        bits
    }
}
