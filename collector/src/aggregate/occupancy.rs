//! Theoretical occupancy: how many blocks of a kernel fit a multiprocessor at a time, what limits them, and
//! the block size of which most warps fit.
//!
//! The rules are those of `cuOccupancyMaxActiveBlocksPerMultiprocessor` and
//! `cuOccupancyMaxPotentialBlockSize`, from their inputs: block size, registers, shared memory and the
//! device's limits, with shared memory taken at its largest carve-out. A cluster spreads its blocks over
//! multiprocessors, so it does not enter. Limits that the program's author set (`__launch_bounds__`) are not
//! known.

use serde::Serialize;

use crate::model::definitions::Device;
use crate::model::operation::Kernel;

/// Registers are given out in units of this many to each warp, from compute capability 3.0 on.
const REGISTER_UNIT: u32 = 256;
/// Bounds the search for the best block, whatever a trace holds: devices have 32 warps in a block at most.
const BLOCK_WARPS_MAX: u32 = 1024;

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Occupancy {
    /// Blocks that a multiprocessor holds at a time.
    pub blocks: u32,
    /// Warps in those blocks over the warps that a multiprocessor can hold, 0 to 1.
    pub share: f64,
}

/// What can keep a multiprocessor from holding one more block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OccupancyLimit {
    Registers,
    SharedMemory,
    /// The warps of whole blocks: one more block has more warps than are left.
    BlockSize,
    /// The number of blocks: they are so small that more warps would fit.
    Blocks,
}

/// The block size of which most threads fit a multiprocessor.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BestBlock {
    pub threads: u32,
    pub occupancy: Occupancy,
}

/// The occupancy of a launch. `None` where something that it depends on is not known, or where
/// the limits say that it could not have run, so that they cannot be right.
pub fn occupancy(kernel: &Kernel, device: &Device) -> Option<Occupancy> {
    of_threads(kernel, threads(kernel)?, device).map(|(occupancy, _)| occupancy)
}

/// All that limit the occupancy of a launch alike; nothing does where every warp is used.
pub fn occupancy_limits(kernel: &Kernel, device: &Device) -> Option<Vec<OccupancyLimit>> {
    let (occupancy, by_limit) = of_threads(kernel, threads(kernel)?, device)?;
    let limits = by_limit.into_iter().filter(|(_, blocks)| *blocks == occupancy.blocks);
    let limits = limits.map(|(limit, _)| limit);
    Some(if occupancy.share < 1.0 { limits.collect() } else { Vec::new() })
}

/// The block size that `cuOccupancyMaxPotentialBlockSize` answers for the registers and the shared memory of
/// a launch: the largest of those with most threads on a multiprocessor.
pub fn best_block(kernel: &Kernel, device: &Device) -> Option<BestBlock> {
    let warp_size = or(device.warp_size, 32);
    let threads_max = or(device.max_threads_per_block, 1024);
    let warps_max = threads_max.div_ceil(warp_size);
    if warps_max > BLOCK_WARPS_MAX {
        return None;
    }
    let fitting = (1..=warps_max).filter_map(|warps| {
        // Only the last can be cut, where the largest block is not of whole warps.
        let threads = warps.saturating_mul(warp_size).min(threads_max);
        let (occupancy, _) = of_threads(kernel, threads, device)?;
        Some(BestBlock { threads, occupancy })
    });
    fitting.max_by_key(|block| u64::from(block.threads) * u64::from(block.occupancy.blocks))
}

fn threads(kernel: &Kernel) -> Option<u32> {
    kernel.block.iter().try_fold(1u32, |all, side| all.checked_mul(*side))
}

/// The occupancy with blocks of so many threads, and how many blocks each limit allows.
fn of_threads(
    kernel: &Kernel,
    threads: u32,
    device: &Device,
) -> Option<(Occupancy, [(OccupancyLimit, u32); 4])> {
    let generation = Generation::of(device.compute_major, device.compute_minor)?;
    let warp_size = or(device.warp_size, 32);
    if threads == 0 || kernel.registers == 0 || device.max_threads_per_multiprocessor < warp_size {
        return None;
    }
    let warps = threads.div_ceil(warp_size);
    let warps_max = device.max_threads_per_multiprocessor / warp_size;
    let by_registers = by_registers(kernel.registers, warps, warp_size, device, &generation)?;
    let by_limit = [
        (OccupancyLimit::Registers, by_registers),
        (OccupancyLimit::SharedMemory, by_shared_memory(kernel, device, &generation)?),
        (OccupancyLimit::BlockSize, warps_max / warps),
        (OccupancyLimit::Blocks, or(device.max_blocks_per_multiprocessor, generation.blocks)),
    ];
    let blocks = by_limit.iter().map(|(_, blocks)| *blocks).min()?;
    if blocks == 0 || threads > or(device.max_threads_per_block, 1024) {
        return None;
    }
    let share = f64::from(blocks * warps) / f64::from(warps_max);
    Some((Occupancy { blocks, share }, by_limit))
}

/// Each of a multiprocessor's partitions has its share of the registers, and a warp lives in one.
fn by_registers(
    registers: u32,
    warps: u32,
    warp_size: u32,
    device: &Device,
    generation: &Generation,
) -> Option<u32> {
    let available = device.registers_per_multiprocessor;
    let per_warp = registers.checked_mul(warp_size)?.checked_next_multiple_of(REGISTER_UNIT)?;
    // A launch is checked as if all partitions held equally many of its warps. Pascal's big chip
    // has two, but is held to the four of its siblings.
    let assumed = per_warp.checked_mul(warps.checked_next_multiple_of(4)?)?;
    if available == 0 {
        return None;
    }
    if assumed > or(device.registers_per_block, available) {
        return Some(0);
    }
    let warps_fit = available / generation.partitions / per_warp * generation.partitions;
    Some(warps_fit / warps)
}

fn by_shared_memory(kernel: &Kernel, device: &Device, generation: &Generation) -> Option<u32> {
    let reserved = if generation.reserves_shared { device.reserved_shared_bytes_per_block } else { 0 };
    let needed =
        kernel.static_shared_bytes.checked_add(kernel.dynamic_shared_bytes)?.checked_add(reserved)?;
    if needed == 0 {
        return Some(u32::MAX);
    }
    if device.shared_bytes_per_multiprocessor == 0 {
        return None;
    }
    let taken = needed.checked_next_multiple_of(generation.shared_unit)?;
    if taken > or(device.shared_bytes_per_block_optin, u32::MAX).saturating_add(reserved) {
        return Some(0);
    }
    Some(device.shared_bytes_per_multiprocessor / taken)
}

/// What a device does not say about itself but its compute capability implies.
struct Generation {
    partitions: u32,
    shared_unit: u32,
    /// Whether the driver takes some shared memory of every block for itself.
    reserves_shared: bool,
    /// Blocks a multiprocessor, for drivers that do not know.
    blocks: u32,
}

impl Generation {
    fn of(major: u32, minor: u32) -> Option<Generation> {
        let blocks = match (major, minor) {
            (7, 5) | (10, 7) => 16,
            (8, 9) | (10, 1) | (11, 0) | (12.., _) => 24,
            (8, 1..) => 16,
            _ => 32,
        };
        let (partitions, shared_unit, reserves_shared) = match (major, minor) {
            (0..5, _) => return None,
            (6, 0) => (2, 256, false),
            (5..8, _) => (4, 256, false),
            _ => (4, 128, true),
        };
        Some(Generation { partitions, shared_unit, reserves_shared, blocks })
    }
}

fn or(value: u32, otherwise: u32) -> u32 {
    if value == 0 { otherwise } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limits as `cuDeviceGetAttribute` gives them.
    fn device(major: u32, minor: u32) -> Device {
        let (threads, shared, reserved, blocks) = match (major, minor) {
            (5, 0) => (2048, 65_536, 0, 32),
            (6, 0) => (2048, 65_536, 0, 32),
            (5, 2) | (6, 1) | (7, 0) => (2048, 98_304, 0, 32),
            (7, 5) => (1024, 65_536, 0, 16),
            (8, 0) => (2048, 167_936, 1024, 32),
            (8, 6) => (1536, 102_400, 1024, 16),
            (8, 9) | (12, 0) => (1536, 102_400, 1024, 24),
            _ => (2048, 233_472, 1024, 32),
        };
        Device {
            compute_major: major,
            compute_minor: minor,
            warp_size: 32,
            max_threads_per_multiprocessor: threads,
            max_threads_per_block: 1024,
            max_blocks_per_multiprocessor: blocks,
            registers_per_multiprocessor: 65_536,
            registers_per_block: 65_536,
            shared_bytes_per_multiprocessor: shared,
            shared_bytes_per_block_optin: match major {
                5 | 6 => 49_152,
                7 => shared,
                _ => shared - 1024,
            },
            reserved_shared_bytes_per_block: reserved,
            ..Device::default()
        }
    }

    fn kernel(threads: u32, registers: u32, fixed: u32, dynamic: u32) -> Kernel {
        Kernel {
            block: [threads, 1, 1],
            registers,
            static_shared_bytes: fixed,
            dynamic_shared_bytes: dynamic,
            ..Kernel::default()
        }
    }

    #[test]
    fn blocks_equal_those_of_the_cuda_occupancy_calculator() {
        // capability.minor, threads, registers, static and dynamic shared bytes, blocks that fit.
        let known = include_str!("tests/occupancy.txt");
        let mut seen = 0;
        for line in known.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split_whitespace();
            let (major, minor) = words.next().unwrap().split_once('.').unwrap();
            let device = device(major.parse().unwrap(), minor.parse().unwrap());
            let [threads, registers, fixed, dynamic, blocks] = std::array::from_fn(|_| {
                let word: u32 = words.next().unwrap().parse().unwrap();
                word
            });
            let found = occupancy(&kernel(threads, registers, fixed, dynamic), &device);
            assert_eq!(found.map_or(0, |o| o.blocks), blocks, "{line}");
            seen += 1;
        }
        assert!(seen >= 200, "only {seen}");
    }

    #[test]
    fn limits_and_best_blocks_equal_those_of_the_cuda_occupancy_calculator() {
        let letters = |limits: Vec<OccupancyLimit>| -> Vec<char> {
            let letter = |limit| match limit {
                OccupancyLimit::BlockSize => 'w',
                OccupancyLimit::Registers => 'r',
                OccupancyLimit::SharedMemory => 's',
                OccupancyLimit::Blocks => 'b',
            };
            limits.into_iter().map(letter).collect()
        };
        let mut seen = 0;
        for line in include_str!("tests/best_block.txt").lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |at: usize| words[at].parse::<u32>().unwrap();
            let (major, minor) = words[0].split_once('.').unwrap();
            let device = device(major.parse().unwrap(), minor.parse().unwrap());
            let kernel = kernel(number(1), number(2), number(3), number(4));
            let mut limits = letters(occupancy_limits(&kernel, &device).unwrap());
            limits.sort_unstable();
            let mut wanted: Vec<char> = words[6].chars().filter(|letter| *letter != '-').collect();
            wanted.sort_unstable();
            let best = best_block(&kernel, &device).unwrap();
            let found = (occupancy(&kernel, &device).unwrap().blocks, best.threads, best.occupancy.blocks);
            assert_eq!((found, limits), ((number(5), number(7), number(8)), wanted), "{line}");
            seen += 1;
        }
        assert!(seen >= 80, "only {seen}");
    }

    #[test]
    fn best_block_of_hostile_limits_ends() {
        let most = Device {
            warp_size: 1,
            max_threads_per_block: u32::MAX,
            max_threads_per_multiprocessor: u32::MAX,
            max_blocks_per_multiprocessor: u32::MAX,
            registers_per_multiprocessor: u32::MAX,
            registers_per_block: u32::MAX,
            ..device(9, 0)
        };
        assert_eq!(best_block(&kernel(256, 32, 0, 0), &most), None);
        let wide = Device { warp_size: u32::MAX, ..most.clone() };
        assert_eq!(best_block(&kernel(256, u32::MAX, u32::MAX, 1), &wide), None);
        assert_eq!(best_block(&kernel(256, 1, 0, 0), &wide), None);
        let many = Device { max_threads_per_block: 1024, ..most };
        assert_eq!(best_block(&kernel(256, 32, 0, 0), &many).unwrap().threads, 1024);
        for unknown in [(0, Device::default()), (32, Device::default()), (0, device(9, 0))] {
            assert_eq!(best_block(&kernel(256, unknown.0, 0, 0), &unknown.1), None);
            assert_eq!(occupancy_limits(&kernel(256, unknown.0, 0, 0), &unknown.1), None);
        }
        // The block of the launch does not matter, so that a best one is known where that is not.
        let endless = Kernel { block: [u32::MAX; 3], ..kernel(1, 32, 0, 0) };
        assert_eq!(occupancy_limits(&endless, &device(9, 0)), None);
        assert_eq!(best_block(&endless, &device(9, 0)).unwrap().threads, 1024);
        // The largest block need not be of whole warps.
        let odd =
            Device { max_threads_per_block: 1000, max_threads_per_multiprocessor: 1024, ..device(9, 0) };
        assert_eq!(best_block(&kernel(1, 32, 0, 0), &odd).unwrap().threads, 512);
        assert_eq!(best_block(&kernel(1, 32, 0, 120_000), &odd).unwrap().threads, 1000);
    }

    #[test]
    fn share_is_of_warps() {
        let found = occupancy(&kernel(256, 32, 0, 0), &device(9, 0)).unwrap();
        assert_eq!((found.blocks, found.share), (8, 1.0));
        let half = occupancy(&kernel(128, 64, 0, 0), &device(9, 0)).unwrap();
        assert_eq!((half.blocks, half.share), (8, 0.5));
        // 33 threads take two warps.
        let found = occupancy(&kernel(33, 16, 0, 0), &device(8, 0)).unwrap();
        assert_eq!((found.blocks, found.share), (32, 1.0));
    }

    #[test]
    fn occupancy_of_unknown_limits_is_not_guessed() {
        assert_eq!(occupancy(&kernel(256, 0, 0, 0), &device(9, 0)), None);
        assert_eq!(occupancy(&kernel(256, 32, 0, 0), &Device::default()), None);
        assert_eq!(occupancy(&kernel(0, 32, 0, 0), &device(9, 0)), None);
        let huge = Kernel { block: [u32::MAX, u32::MAX, 2], ..kernel(1, 32, u32::MAX, u32::MAX) };
        assert_eq!(occupancy(&huge, &device(9, 0)), None);
    }

    #[test]
    fn old_drivers_do_not_say_how_many_blocks_fit() {
        let quiet = Device { max_blocks_per_multiprocessor: 0, ..device(8, 6) };
        assert_eq!(occupancy(&kernel(32, 16, 0, 0), &quiet).unwrap().blocks, 16);
    }
}
