//! Offsets of the times in a record, by kind. Record layouts are append-only: an offset never changes.

/// Byte offsets of the 64-bit times in a record of that kind. Empty for kinds without times, and for kinds
/// whose times CUPTI does not provide (PC sampling; OpenACC and OpenMP are unknown here). From the headers
/// of CUDA 11.8 to 13.5.
pub const fn offsets(kind: u32) -> &'static [usize] {
    match kind {
        // MEMCPY, MEMSET, MEMCPY2.
        1 | 2 | 22 => &[16, 24],
        // KERNEL, CONCURRENT_KERNEL: start, end, completed, queued, submitted.
        3 | 10 => &[16, 24, 32, 120, 128],
        // DRIVER, RUNTIME, INTERNAL_LAUNCH_API; SYNCHRONIZATION; GRAPH_TRACE, DEVICE_GRAPH_TRACE.
        4 | 5 | 48 | 38 | 51 | 53 => &[8, 16],
        // MARKER, ENVIRONMENT.
        12 | 20 => &[8],
        // OVERHEAD.
        17 => &[24, 32],
        // UNIFIED_MEMORY_COUNTER; JIT.
        25 | 52 => &[16, 24],
        // CUDA_EVENT's device time, since CUDA 12.8.
        36 => &[40],
        // MEMORY2, MEMORY_POOL.
        49 => &[32],
        50 => &[56],
        // GRAPH_HOST_NODE, HOST_LAUNCH.
        56 => &[40, 48],
        58 => &[32, 40],
        _ => &[],
    }
}
