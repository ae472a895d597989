//! The state of a process that the window keeps while the process runs, and later while it holds events of
//! it.

use std::collections::BTreeMap;

use crate::batch::{Batch, Counters, LeftOut, ProcessBegin, ProcessEnd};
use crate::flight_recorder::block::Block;
use crate::flight_recorder::marks::Marks;
use crate::model::clock::Clocks;

#[derive(Debug)]
pub struct Kept {
    pub begin: ProcessBegin,
    /// Never dropped while the process is kept, since old ids are still used.
    pub definitions: Vec<Block>,
    /// Marks of evicted batches.
    pub before: Marks,
    pub clocks: Clocks,
    /// The epoch of device records, by ring.
    pub epochs: BTreeMap<u32, u32>,
    pub counters: Counters,
    pub end: Option<(ProcessEnd, u64)>,
    /// The number of batches in the window, and of those with events.
    pub batches: usize,
    pub batches_with_events: usize,
    /// Counts of all its events, evicted ones too.
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

    /// Roughly the bytes in memory, without batches in the window.
    pub fn bytes(&self) -> usize {
        let definitions: usize = self.definitions.iter().map(Block::bytes).sum();
        let epochs = self.epochs.len() * 2 * size_of::<(u32, u32)>();
        size_of::<Kept>() + definitions + self.before.bytes() + epochs
    }

    /// The losses that the process counted.
    pub fn lost(&self) -> u64 {
        self.counters.lost()
    }

    /// The process's last batches in a snapshot. A process that has not ended is still running at `now_ns`.
    pub fn ending(&self, now_ns: u64) -> [Batch; 2] {
        let (end, monotonic_ns) = self.end.unwrap_or((ProcessEnd::Running, now_ns));
        let process = self.begin.process;
        [Batch::Counters(self.counters.clone()), Batch::ProcessEnd { process, end, monotonic_ns }]
    }
}
