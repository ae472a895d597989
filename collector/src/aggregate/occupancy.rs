//! Theoretical occupancy: how many blocks of a kernel fit a multiprocessor at a time.
//!
//! The rules are those of `cuOccupancyMaxActiveBlocksPerMultiprocessor`, from its inputs: block
//! size, registers, shared memory and the device's limits, with shared memory taken at its
//! largest carve-out. A cluster spreads its blocks over multiprocessors, so it does not enter.

use crate::model::definitions::Device;
use crate::model::operation::Kernel;

/// Registers are given out in units of this many to each warp, from compute capability 3.0 on.
const REGISTER_UNIT: u32 = 256;

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Occupancy {
    /// Blocks that a multiprocessor holds at a time.
    pub blocks: u32,
    /// Warps in those blocks over the warps that a multiprocessor can hold, 0 to 1.
    pub share: f64,
}

/// The occupancy of a launch. `None` where something that it depends on is not known, or where
/// the limits say that it could not have run, so that they cannot be right.
pub fn occupancy(kernel: &Kernel, device: &Device) -> Option<Occupancy> {
    let threads = kernel.block.iter().try_fold(1u32, |all, side| all.checked_mul(*side))?;
    let generation = Generation::of(device.compute_major, device.compute_minor)?;
    let warp_size = or(device.warp_size, 32);
    if threads == 0 || kernel.registers == 0 || device.max_threads_per_multiprocessor < warp_size {
        return None;
    }
    let warps = threads.div_ceil(warp_size);
    let warps_max = device.max_threads_per_multiprocessor / warp_size;
    let blocks = [
        or(device.max_blocks_per_multiprocessor, generation.blocks),
        warps_max / warps,
        by_registers(kernel.registers, warps, warp_size, device, &generation)?,
        by_shared_memory(kernel, device, &generation)?,
    ]
    .into_iter()
    .min()?;
    if blocks == 0 || threads > or(device.max_threads_per_block, 1024) {
        return None;
    }
    Some(Occupancy { blocks, share: f64::from(blocks * warps) / f64::from(warps_max) })
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
