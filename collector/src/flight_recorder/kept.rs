//! What is kept of a process for as long as it lives, and of a dead one while the window has
//! events of it.

use std::collections::BTreeMap;

use crate::batch::{Batch, Counters, LeftOut, ProcessBegin, ProcessEnd};
use crate::flight_recorder::block::Block;
use crate::flight_recorder::marks::Marks;
use crate::model::clock::Clocks;

#[derive(Debug)]
pub struct Kept {
    pub begin: ProcessBegin,
    /// Never dropped while the process is kept: an id of an hour ago is used now.
    pub definitions: Vec<Block>,
    /// Marks of what went.
    pub before: Marks,
    pub clocks: Clocks,
    /// The device records' epoch by ring.
    pub epochs: BTreeMap<u32, u32>,
    pub counters: Counters,
    pub end: Option<(ProcessEnd, u64)>,
    /// Batches in the window, and those of them with events.
    pub batches: usize,
    pub batches_with_events: usize,
    /// What went of it and what is in the window.
    pub counts: LeftOut,
}

impl Kept {
    pub fn new(begin: ProcessBegin) -> Kept {
        Kept {
            clocks: Clocks::new(&begin),
            counters: Counters { process: begin.process, ..Counters::default() },
            begin,
            definitions: Vec::new(),
            before: Marks::default(),
            epochs: BTreeMap::new(),
            end: None,
            batches: 0,
            batches_with_events: 0,
            counts: LeftOut::default(),
        }
    }

    /// About what it takes in memory, its batches in the window aside.
    pub fn bytes(&self) -> usize {
        let definitions: usize = self.definitions.iter().map(Block::bytes).sum();
        let epochs = self.epochs.len() * 2 * size_of::<(u32, u32)>();
        size_of::<Kept>() + definitions + self.before.bytes() + epochs
    }

    /// What it says to have lost.
    pub fn lost(&self) -> u64 {
        self.counters.losses().fold(self.counters.ring_full, |sum, (_, count)| sum.saturating_add(count))
    }

    /// Its last batches, if nothing more comes: one that has not ended still runs at `now_ns`.
    pub fn ending(&self, now_ns: u64) -> [Batch; 2] {
        let (end, monotonic_ns) = self.end.unwrap_or((ProcessEnd::Running, now_ns));
        let process = self.begin.process;
        [Batch::Counters(self.counters.clone()), Batch::ProcessEnd { process, end, monotonic_ns }]
    }
}
