//! What the fuzz targets share: taking values off the front of the input, a file's header, and traces.

pub mod batches;

use gputrace_collector::trace_file;
use std::sync::atomic::AtomicU64;

/// The input, read from its front. What is not there reads as 0, so that short inputs count too.
pub struct Input<'a>(pub &'a [u8]);

impl Input<'_> {
    pub fn u64(&mut self) -> u64 {
        let (front, rest) = self.0.split_at(self.0.len().min(8));
        self.0 = rest;
        let mut bytes = [0; 8];
        bytes[..front.len()].copy_from_slice(front);
        u64::from_le_bytes(bytes)
    }

    pub fn u8(&mut self) -> u8 {
        let first = self.0.first().copied().unwrap_or(0);
        self.0 = self.0.get(1..).unwrap_or(&[]);
        first
    }

    /// `count` words, as shared memory has them.
    pub fn words(&mut self, count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(self.u64())).collect()
    }
}

/// A trace file's header, as this version writes it.
pub fn trace_file_header() -> Vec<u8> {
    let version = u32::from(trace_file::VERSION_MAJOR) << 16 | u32::from(trace_file::VERSION_MINOR);
    let mut header = b"gputrace".to_vec();
    for word in [version, 64, gputrace_wire::VERSION] {
        header.extend(word.to_le_bytes());
    }
    header.resize(60, 0);
    header.extend(crc32fast::hash(&header).to_le_bytes());
    header
}
