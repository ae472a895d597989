//! What only the CUDA driver knows about a device.

use serde::{Deserialize, Serialize};

/// Limits and abilities of a CUDA device, by `cuDeviceGetAttribute`. An attribute that the driver does not
/// know is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CudaProperties {
    /// "0000:01:00.0", by which it is matched with a device of the inventory.
    pub pci_bus_id: String,
    pub multiprocessors: Option<u32>,
    pub clock_khz: Option<u32>,
    pub memory_clock_khz: Option<u32>,
    pub memory_bus_bits: Option<u32>,
    pub l2_cache_bytes: Option<u32>,
    pub shared_bytes_per_block: Option<u32>,
    /// What a kernel gets that asks for more than the usual limit.
    pub shared_bytes_per_block_opt_in: Option<u32>,
    pub shared_bytes_per_multiprocessor: Option<u32>,
    pub registers_per_block: Option<u32>,
    pub registers_per_multiprocessor: Option<u32>,
    pub warp_size: Option<u32>,
    pub max_threads_per_block: Option<u32>,
    pub max_threads_per_multiprocessor: Option<u32>,
    pub max_blocks_per_multiprocessor: Option<u32>,
    /// Threads in x, y and z.
    pub max_block: Option<[u32; 3]>,
    /// Blocks in x, y and z.
    pub max_grid: Option<[u32; 3]>,
    pub ecc: Option<bool>,
    /// Whether the device shares the host's memory.
    pub integrated: Option<bool>,
    pub unified_addressing: Option<bool>,
    pub managed_memory: Option<bool>,
    pub concurrent_kernels: Option<bool>,
    pub copy_engines: Option<u32>,
}
