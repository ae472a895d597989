//! Memory by line: who allocated what, who held it at the peak, and what was never freed.
//!
//! A part of the aggregates, so that a live session and a file give the same figures. Only allocations that
//! are live are kept one by one; of freed ones sums remain. What the driver takes for itself (contexts,
//! modules, local memory) is no allocation of the program and is not here.

mod blocks;
mod caching;
mod change;
mod followed;
mod growth;
mod held_memory;
mod imported_again;
mod journal;
mod kind_memory;
mod ledger;
mod live;
mod mappings;
mod observed_use;
mod pools;
mod process_memory;
mod refusal;
mod reordering;
mod segments;
mod site;
mod sizes;
mod timeline;

#[cfg(test)]
mod blocks_tests;
#[cfg(test)]
mod tests;

pub use blocks::{BlockDevice, Blocks};
pub use caching::caching_library;
pub use change::{AllocationKey, BLOCK, KINDS, MemoryChange, NAMES, REGISTERED, Space, is_of_host};
pub use growth::Growth;
pub use held_memory::HeldMemory;
pub use journal::JournalStep;
pub use kind_memory::KindMemory;
pub use ledger::{MemoryLedger, MemoryOf};
pub use mappings::Mappings;
pub use observed_use::ObservedUse;
pub use pools::{PoolChange, PoolMemory, PoolOf, Pools};
pub use process_memory::{ProcessMemory, UnmatchedFrees, is_of_device};
pub use refusal::{GIVEN_LATER_NS, MemoryRefusal, RefusedBlocks};
pub use reordering::REORDERED_NS;
pub use segments::{BlockSegment, BlockSegments};
pub use site::{LeakedSites, Moment, Site, SiteAtEnd};
pub use sizes::Sizes;
pub use timeline::LiveBytes;
