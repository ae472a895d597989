//! A process whose memory is followed: what it has of the driver, and the blocks that are given out of it.

use super::blocks::Blocks;
use super::process_memory::{Budget, ProcessMemory};
use super::reordering::{AskedMemory, FreeOutcome, Reordering};
use super::segments::BlockSegments;
use crate::model::block::BlockWhat;

#[derive(Clone, Debug)]
pub(super) struct FollowedProcess {
    pub memory: ProcessMemory,
    /// Of a caching allocator in the process; only where blocks are recorded.
    pub blocks: Option<Box<Blocks>>,
    /// Of both: a block is given out after its driver allocation was made.
    reordering: Reordering,
    asked_ns: Option<u64>,
    part_ns: Option<[u64; 2]>,
}

impl FollowedProcess {
    pub fn new(asked_ns: Option<u64>, part_ns: Option<[u64; 2]>) -> FollowedProcess {
        let memory = ProcessMemory::new(asked_ns, part_ns);
        FollowedProcess { memory, blocks: None, reordering: Reordering::default(), asked_ns, part_ns }
    }

    pub fn add(&mut self, asked: AskedMemory, budget: &mut Budget) {
        self.reordering.add(asked);
        while let Some(asked) = self.reordering.next() {
            self.apply(asked, budget);
        }
    }

    /// Follows what is held back up to that time.
    pub fn catch_up(&mut self, at_ns: u64, budget: &mut Budget) {
        while let Some(asked) = self.reordering.next_up_to(at_ns) {
            self.apply(asked, budget);
        }
    }

    /// Follows all that is held back, and forgets single allocations.
    pub fn end(&mut self, end_ns: u64, budget: &mut Budget) {
        self.catch_up(u64::MAX, budget);
        self.reordering = Reordering::default();
        if let Some(blocks) = &mut self.blocks {
            let segments = BlockSegments::new(end_ns, self.memory.ranges(), blocks.memory.by_address());
            blocks.end(segments, end_ns, budget);
        }
        self.memory.end(end_ns, budget);
    }

    fn apply(&mut self, asked: AskedMemory, budget: &mut Budget) {
        match asked.what {
            FreeOutcome::Block(what) => self.block(asked, what, budget),
            _ => self.memory.apply(asked, budget),
        }
    }

    fn block(&mut self, asked: AskedMemory, what: BlockWhat, budget: &mut Budget) {
        let new = || Box::new(Blocks::new(self.asked_ns, self.part_ns));
        let blocks = self.blocks.get_or_insert_with(new);
        if blocks.leaves_peak(&what) {
            let (ranges, all) = (self.memory.ranges(), blocks.memory.by_address());
            let segments = BlockSegments::new(asked.at_ns, ranges, all);
            blocks.at_peak(segments);
        }
        blocks.apply(asked, what, budget);
    }
}
