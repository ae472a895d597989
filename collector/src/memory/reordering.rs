//! Puts a process's calls for memory into the order of their times.
//!
//! Rings are read one after the other, so a free may arrive before the allocation that another thread made.
//! Calls are held until no earlier one is expected any more.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::change::MemoryChange;
use crate::model::block::BlockWhat;

/// How much earlier than the latest known call one may be that still arrives. Rings are read every few
/// milliseconds.
pub const REORDERED_NS: u64 = 1_000_000_000;
/// The most calls that are held. With more, the earliest is taken though an earlier one may arrive.
const HELD_MAX: usize = (1 << 14) - 1;

/// A call for memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AskedMemory {
    pub at_ns: u64,
    pub thread: u32,
    pub stack: u32,
    pub api: u32,
    pub duration_ns: u64,
    pub what: FreeOutcome,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FreeOutcome {
    Changed(MemoryChange),
    /// A graph will allocate it when it is launched. The address is 0 where no call said it.
    InGraph {
        address: u64,
        bytes: u64,
    },
    /// What a caching allocator reports.
    Block(BlockWhat),
    /// The driver had not enough memory.
    Refused {
        kind: usize,
        bytes: u64,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Arrived {
    /// Among calls of the same time, the order of arrival is that of each thread.
    number: u64,
    asked: AskedMemory,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Reordering {
    held: BinaryHeap<Reverse<Arrived>>,
    arrived: u64,
    latest_ns: u64,
}

impl Reordering {
    pub fn add(&mut self, asked: AskedMemory) {
        self.arrived += 1;
        self.latest_ns = self.latest_ns.max(asked.at_ns);
        self.held.push(Reverse(Arrived { number: self.arrived, asked }));
    }

    /// The earliest call, if none before it is expected.
    pub fn next(&mut self) -> Option<AskedMemory> {
        let first = self.held.peek()?.0.asked.at_ns;
        let is_due = self.held.len() > HELD_MAX || self.latest_ns - first > REORDERED_NS;
        is_due.then(|| self.next_up_to(u64::MAX))?
    }

    /// The earliest call that is not later than that.
    pub fn next_up_to(&mut self, at_ns: u64) -> Option<AskedMemory> {
        if self.held.peek()?.0.asked.at_ns > at_ns {
            return None;
        }
        self.held.pop().map(|first| first.0.asked)
    }
}

impl Ord for Arrived {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.asked.at_ns, self.number).cmp(&(other.asked.at_ns, other.number))
    }
}

impl PartialOrd for Arrived {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
