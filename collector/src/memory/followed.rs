//! A process whose memory is followed: what it has of the driver, and the blocks that are given out of it.

use super::blocks::Blocks;
use super::process_memory::{Budget, ProcessMemory};
use super::refusal::RefusedBlocks;
use super::reordering::{AskedMemory, FreeOutcome, Reordering};
use super::segments::BlockSegments;
use crate::model::block::BlockWhat;

/// Refusals of a process whose blocks are looked at. A program that is refused memory all the time would
/// otherwise take the time of all its blocks for each.
const REFUSALS_WITH_BLOCKS: u64 = 64;

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
            FreeOutcome::Refused { .. } => self.refuse(asked, budget),
            _ => self.memory.apply(asked, budget),
        }
    }

    fn refuse(&mut self, asked: AskedMemory, budget: &mut Budget) {
        let before = self.memory.refused;
        self.memory.apply(asked, budget);
        let Some(blocks) = self.blocks.as_ref().filter(|_| before < REFUSALS_WITH_BLOCKS) else { return };
        let segments = BlockSegments::new(asked.at_ns, self.memory.ranges(), blocks.memory.by_address());
        let refused = RefusedBlocks { segments, holders: blocks.memory.holders() };
        if self.memory.refused > before
            && let Some(refusal) = self.memory.refusals.last_mut()
        {
            refusal.blocks = Some(Box::new(refused));
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
