//! How many blocks of a function fit on one multiprocessor.

use crate::device as d;
use crate::module::Function;

/// Registers are given to warps in pieces of this many.
const REGISTER_UNIT: u32 = 256;
/// Schedulers of a multiprocessor, each with its own part of the registers.
const SCHEDULERS: u32 = 4;
/// Shared memory is given out in pieces of this many bytes.
const SHARED_UNIT: u32 = 128;

/// Blocks per multiprocessor for a kernel of these needs; 0 means that it cannot run.
pub fn blocks(registers: u32, static_shared: u32, dynamic_shared: u32, threads: u32) -> u32 {
    if threads == 0 || threads > d::MAX_THREADS_PER_BLOCK {
        return 0;
    }
    let warps = threads.div_ceil(d::WARP_SIZE);
    let by_warps = (d::MAX_THREADS_PER_MULTIPROCESSOR / d::WARP_SIZE) / warps;
    let per_warp = (registers.max(1) * d::WARP_SIZE).next_multiple_of(REGISTER_UNIT);
    let by_registers = if per_warp * warps.next_multiple_of(SCHEDULERS) > d::REGISTERS_PER_MULTIPROCESSOR {
        0
    } else {
        d::REGISTERS_PER_MULTIPROCESSOR / SCHEDULERS / per_warp * SCHEDULERS / warps
    };
    let asked = u64::from(static_shared) + u64::from(dynamic_shared);
    let by_shared = if asked > u64::from(d::SHARED_BYTES_PER_BLOCK_OPT_IN) {
        0
    } else {
        let taken = (asked as u32 + d::RESERVED_SHARED_BYTES_PER_BLOCK).next_multiple_of(SHARED_UNIT);
        d::SHARED_BYTES_PER_MULTIPROCESSOR / taken
    };
    by_warps.min(by_registers).min(by_shared).min(d::MAX_BLOCKS_PER_MULTIPROCESSOR)
}

impl Function {
    /// Blocks of this function per multiprocessor.
    pub fn blocks_per_multiprocessor(&self, threads: u32, dynamic_shared: u32) -> u32 {
        if threads > self.max_threads() || dynamic_shared > self.max_dynamic_shared {
            return 0;
        }
        blocks(self.entry.registers, self.entry.shared_bytes, dynamic_shared, threads)
    }

    /// The block size, at most `limit`, that fills a multiprocessor best, and the grid that fills the device.
    pub fn best_block(&self, dynamic_shared: impl Fn(u32) -> u32, limit: u32) -> (u32, u32) {
        let limit = if limit == 0 { self.max_threads() } else { limit.min(self.max_threads()) };
        let mut best = (0, 0, 0);
        for threads in (1..=limit / d::WARP_SIZE).map(|warps| warps * d::WARP_SIZE) {
            let blocks = self.blocks_per_multiprocessor(threads, dynamic_shared(threads));
            if blocks * threads >= best.0 && blocks > 0 {
                best = (blocks * threads, threads, blocks);
            }
        }
        (best.2 * d::MULTIPROCESSORS, best.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_each_applied() {
        assert_eq!(blocks(16, 0, 0, 32), 32, "blocks");
        assert_eq!(blocks(16, 0, 0, 256), 8, "warps");
        assert_eq!(blocks(64, 0, 0, 256), 4, "registers");
        assert_eq!(blocks(16, 48 * 1024, 0, 256), 4, "shared memory");
        assert_eq!(blocks(255, 0, 0, 1024), 0, "one block needs too many registers");
        assert_eq!(blocks(16, 0, 233_000, 32), 0, "one block needs too much shared memory");
        assert_eq!(blocks(16, 0, 0, 1025), 0, "too many threads");
    }
}
