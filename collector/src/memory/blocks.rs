//! The blocks that a caching allocator inside a process gave out of its driver allocations ("segments").
//!
//! Blocks are followed as driver allocations are, by another [`ProcessMemory`]. What was given out before
//! blocks were recorded is not known one by one; the allocator's own totals, which come with each block, tell
//! its bytes. The same totals check our sums.

use std::collections::BTreeMap;

use gputrace_wire::block::Block;

use super::change::{BLOCK, MemoryChange, Space};
use super::pools::PoolOf;
use super::process_memory::{Budget, ProcessMemory};
use super::reordering::{AskedMemory, FreeOutcome};
use super::segments::BlockSegments;
use crate::model::block::BlockWhat;

/// Devices that are followed one by one; more makes no sense.
const DEVICES_MAX: usize = 64;

/// What the allocator has on one device, by its own count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockDevice {
    /// Given out, as last reported, and the most.
    pub allocated_bytes: u64,
    pub peak_bytes: u64,
    pub peak_ns: u64,
    /// Taken from the driver, as last reported, and the most; and what it was at the peak of what was given
    /// out.
    pub reserved_bytes: u64,
    pub reserved_peak_bytes: u64,
    pub reserved_at_peak_bytes: u64,
    /// The most that was taken from the driver and not given out.
    pub cached_most_bytes: u64,
    /// Given out before blocks were recorded.
    pub before_bytes: u64,
    /// How often the allocator's count was not the one that follows from the blocks, and by how much in all.
    pub differences: u64,
    pub different_bytes: u64,
    /// How often the two were compared.
    pub compared: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Blocks {
    pub memory: ProcessMemory,
    devices: BTreeMap<u32, BlockDevice>,
    /// Whether a switch off was the last switch, and when.
    pub off_since_ns: Option<u64>,
    /// How often blocks were recorded again after they were not.
    pub interruptions: u64,
    /// Of devices beyond those that are followed.
    pub beyond: u64,
    /// When what was given out was the most, or nearly: `BlockSegments::allocated` has how much.
    pub at_peak: Option<BlockSegments>,
    pub at_end: Option<BlockSegments>,
    /// Blocks that came and went since `at_peak` was made.
    changes: u64,
}

impl Blocks {
    pub(super) fn new(asked_ns: Option<u64>, part_ns: Option<[u64; 2]>) -> Blocks {
        Blocks { memory: ProcessMemory::new(asked_ns, part_ns), ..Blocks::default() }
    }

    /// By number.
    pub fn devices(&self) -> impl Iterator<Item = (u32, &BlockDevice)> {
        self.devices.iter().map(|(number, device)| (*number, device))
    }

    /// Whether the change ends a new peak, and looking at all segments is worth its time: it takes as long as
    /// there are blocks, so it must not come at each of many small peaks.
    pub(super) fn leaves_peak(&self, what: &BlockWhat) -> bool {
        let BlockWhat::Changed(block) = what else { return false };
        let (held, peak) = (self.memory.on_device, self.memory.peak);
        let seen = self.at_peak.as_ref().map_or(0, |segments| segments.allocated.bytes);
        block.bytes < 0
            && held.bytes == peak.bytes
            && held.bytes > seen
            && (held.bytes - seen > held.bytes / 64 || self.changes >= held.count / 4)
    }

    pub(super) fn at_peak(&mut self, segments: BlockSegments) {
        self.at_peak = Some(segments);
        self.changes = 0;
    }

    /// `segments` are those of now.
    pub(super) fn end(&mut self, segments: BlockSegments, end_ns: u64, budget: &mut Budget) {
        if self.memory.on_device.bytes == self.memory.peak.bytes {
            self.at_peak(segments.clone());
        }
        self.at_end = Some(segments);
        self.memory.end(end_ns, budget);
    }

    pub(super) fn apply(&mut self, asked: AskedMemory, what: BlockWhat, budget: &mut Budget) {
        match what {
            BlockWhat::Changed(block) => {
                self.changes += 1;
                self.compare(&block, asked.at_ns);
                let key = (Space::Addresses, block.address);
                let change = match u64::try_from(block.bytes) {
                    Ok(bytes) => MemoryChange::Allocated {
                        key,
                        kind: BLOCK,
                        bytes,
                        from: PoolOf::Nothing,
                        is_size_unknown: false,
                    },
                    Err(_) => MemoryChange::Freed { key },
                };
                self.memory.apply(AskedMemory { what: FreeOutcome::Changed(change), ..asked }, budget);
            }
            BlockWhat::Switched { is_on: false } => self.off_since_ns = Some(asked.at_ns),
            BlockWhat::Switched { is_on: true } => {
                if self.off_since_ns.take().is_some() {
                    self.interruptions += 1;
                    // Which of the blocks are still there is not known.
                    let change = FreeOutcome::Changed(MemoryChange::ContextEnded);
                    self.memory.apply(AskedMemory { what: change, ..asked }, budget);
                    self.memory.contexts_ended = 0;
                    self.devices.values_mut().for_each(|device| device.is_compared_anew());
                }
            }
        }
    }

    fn compare(&mut self, block: &Block, at_ns: u64) {
        if self.devices.len() >= DEVICES_MAX && !self.devices.contains_key(&block.device) {
            self.beyond += 1;
            return;
        }
        self.devices.entry(block.device).or_default().reports(block, at_ns);
    }
}

impl BlockDevice {
    fn reports(&mut self, block: &Block, at_ns: u64) {
        let before = block.allocated_bytes.saturating_add_signed(block.bytes.saturating_neg());
        if self.compared == 0 {
            // Nothing is known of what was before.
            self.before_bytes = before;
        } else if before != self.allocated_bytes {
            self.differences += 1;
            self.different_bytes = self.different_bytes.saturating_add(before.abs_diff(self.allocated_bytes));
        }
        self.compared += 1;
        self.allocated_bytes = block.allocated_bytes;
        self.reserved_bytes = block.reserved_bytes;
        self.reserved_peak_bytes = self.reserved_peak_bytes.max(block.reserved_bytes);
        if block.allocated_bytes > self.peak_bytes {
            (self.peak_bytes, self.peak_ns) = (block.allocated_bytes, at_ns);
            self.reserved_at_peak_bytes = block.reserved_bytes;
        }
        let cached = block.reserved_bytes.saturating_sub(block.allocated_bytes);
        self.cached_most_bytes = self.cached_most_bytes.max(cached);
    }

    fn is_compared_anew(&mut self) {
        self.compared = 0;
    }
}
