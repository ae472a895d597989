//! What a caching allocator inside a program reports of its blocks.

use gputrace_wire::block::Block;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockEvent {
    /// The model's number of the process.
    pub process: u32,
    /// Thread definition.
    pub thread: u32,
    /// On CLOCK_MONOTONIC.
    pub at_ns: u64,
    pub what: BlockWhat,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockWhat {
    /// A block was given out or taken back.
    Changed(Block),
    /// From here on blocks are recorded, or are not.
    Switched { is_on: bool },
}
