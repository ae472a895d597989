//! An allocation for which the driver had not enough memory, and who held it then.

use super::held_memory::HeldMemory;
use super::segments::BlockSegments;

/// The time in which the same thread may get what it was refused, as caching allocators do after they gave
/// their cache back.
pub const GIVEN_LATER_NS: u64 = 500_000_000;
/// How many of those who held the most are kept of a refusal.
pub(super) const HOLDERS_KEPT: usize = 10;

#[derive(Clone, Debug)]
pub struct MemoryRefusal {
    pub at_ns: u64,
    pub thread: u32,
    pub stack: u32,
    pub api: u32,
    pub kind: usize,
    pub bytes: u64,
    /// What the process held on the device.
    pub held: HeldMemory,
    /// The sites that held the most on the device, the most first: an index into the process's sites.
    pub holders: Vec<(usize, HeldMemory)>,
    /// Whether the thread got so much memory of the kind within [`GIVEN_LATER_NS`].
    pub given_later: bool,
    /// What a caching allocator had given out then, where its blocks are recorded.
    pub blocks: Option<Box<RefusedBlocks>>,
}

/// A caching allocator's blocks when there was not enough memory.
#[derive(Clone, Debug)]
pub struct RefusedBlocks {
    pub segments: BlockSegments,
    /// The sites that held the most, the most first: an index into the sites of the blocks.
    pub holders: Vec<(usize, HeldMemory)>,
}
