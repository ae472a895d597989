//! The devices: how many, what they are called, and how fast they are.
//!
//! Owns the figures that give operations their length. All devices are equal.

use crate::error::{Code, Result};
use crate::settings::settings;

/// The name every simulated device carries, so that no output can be taken for a real one's.
pub const NAME: &str = "gputrace simulated device";
/// The version that `cuDriverGetVersion` returns.
pub const DRIVER_VERSION: i32 = 13000;

pub const MULTIPROCESSORS: u32 = 132;
pub const MAX_THREADS_PER_MULTIPROCESSOR: u32 = 2048;
pub const MAX_THREADS_PER_BLOCK: u32 = 1024;
pub const MAX_BLOCKS_PER_MULTIPROCESSOR: u32 = 32;
pub const WARP_SIZE: u32 = 32;
pub const REGISTERS_PER_MULTIPROCESSOR: u32 = 65536;
pub const SHARED_BYTES_PER_MULTIPROCESSOR: u32 = 233_472;
pub const SHARED_BYTES_PER_BLOCK: u32 = 49_152;
pub const SHARED_BYTES_PER_BLOCK_OPT_IN: u32 = 232_448;
pub const RESERVED_SHARED_BYTES_PER_BLOCK: u32 = 1024;
pub const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
pub const MAX_GRID: [u32; 3] = [2_147_483_647, 65535, 65535];

/// From a call to the earliest start of its operation on the device.
pub const QUEUE_LATENCY_NS: u64 = 3_000;

/// How long a kernel runs that does not state its time: 2 µs, and 1 µs for each filling of the device.
pub fn kernel_duration_ns(grid: [u32; 3], block: [u32; 3]) -> u64 {
    let blocks = grid.iter().map(|&side| u64::from(side)).product::<u64>();
    let threads = blocks.saturating_mul(block.iter().map(|&side| u64::from(side)).product());
    let resident = u64::from(MULTIPROCESSORS * MAX_THREADS_PER_MULTIPROCESSOR);
    2_000 + (u128::from(threads) * 1_000 / u128::from(resident)) as u64
}

/// The ways bytes can go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    HostDevice,
    HostHost,
    WithinDevice,
    BetweenDevices,
    Fill,
}

/// How long moving or setting `bytes` takes.
pub fn transfer_duration_ns(route: Route, bytes: u64) -> u64 {
    let (latency_ns, bytes_per_us) = match route {
        Route::HostDevice => (1_500, 25_000),
        Route::HostHost => (1_000, 25_000),
        Route::WithinDevice => (1_000, 2_000_000),
        Route::BetweenDevices => (2_000, 200_000),
        Route::Fill => (1_000, 2_000_000),
    };
    latency_ns + (u128::from(bytes) * 1_000 / bytes_per_us) as u64
}

/// How many devices there are.
pub fn count() -> u32 {
    settings().devices
}

/// Checks a `CUdevice`.
pub fn check(device: i32) -> Result<u32> {
    u32::try_from(device).ok().filter(|&device| device < count()).ok_or(Code::INVALID_DEVICE)
}

/// Memory of each device.
pub fn memory_bytes() -> u64 {
    settings().memory_bytes
}

/// The device's UUID: fixed, different for each, and readable as made up.
pub fn uuid(device: u32) -> [u8; 16] {
    let mut uuid = *b"gputrace-sim\0\0\0\0";
    uuid[12..].copy_from_slice(&device.to_be_bytes());
    uuid
}

/// The device's PCI bus number.
pub fn pci_bus(device: u32) -> u32 {
    0x10 + device
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_the_stated_ones() {
        assert_eq!(kernel_duration_ns([1, 1, 1], [32, 1, 1]), 2_000);
        assert_eq!(kernel_duration_ns([264, 1, 1], [1024, 1, 1]), 3_000);
        assert_eq!(transfer_duration_ns(Route::HostDevice, 25_000_000), 1_500 + 1_000_000);
        assert_eq!(transfer_duration_ns(Route::WithinDevice, 2_000_000_000), 1_000 + 1_000_000);
    }

    #[test]
    fn device_beyond_the_last_is_refused() {
        assert_eq!(check(-1), Err(Code::INVALID_DEVICE));
        assert_eq!(check(64), Err(Code::INVALID_DEVICE));
    }
}
