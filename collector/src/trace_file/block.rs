//! A block: a header of 40 bytes and a payload, checked as one.
//!
//! ```text
//!   0  "GTB1"               12  ring u32               24  sequence u64
//!   4  type u16             16  raw bytes u32          32  crc32 u32
//!   6  encoding u16         20  stored bytes u32       36  reserved u32, zero
//!   8  process u32
//! ```
//!
//! The checksum covers the header without the checksum itself, and the stored payload. Blocks are numbered
//! from 0, so that a missing one is noticed.

use crate::trace_file::header::{put, u32_at};

pub const MAGIC: u32 = u32::from_le_bytes(*b"GTB1");
pub const HEADER_BYTES: usize = 40;
/// The largest payload, before or after compression.
pub const PAYLOAD_MAX: usize = 16 << 20;

/// Block types. A reader skips unknown ones.
pub mod kind {
    pub const SESSION_BEGIN: u16 = 1;
    pub const PROCESS_BEGIN: u16 = 2;
    pub const DEFINITIONS: u16 = 3;
    pub const CELLS: u16 = 4;
    pub const COUNTERS: u16 = 5;
    pub const PROCESS_END: u16 = 6;
    pub const SESSION_END: u16 = 7;
    pub const EXCERPT: u16 = 8;
    pub const UNRECORDED: u16 = 9;
    pub const SIZE_LIMIT: u16 = 10;
    pub const SERIES_FILE: u16 = 11;
    pub const DEVICE_SAMPLES: u16 = 12;
}

/// How the payload is stored.
pub mod encoding {
    pub const RAW: u16 = 0;
    pub const ZSTD: u16 = 1;
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockHeader {
    pub kind: u16,
    pub encoding: u16,
    pub process: u32,
    pub ring: u32,
    pub raw_bytes: u32,
    pub stored_bytes: u32,
    pub sequence: u64,
    pub checksum: u32,
}

impl BlockHeader {
    /// The header's bytes, its checksum taken over `payload`.
    pub fn to_bytes(self, payload: &[u8]) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        put(&mut bytes, 0, &MAGIC.to_le_bytes());
        put(&mut bytes, 4, &self.kind.to_le_bytes());
        put(&mut bytes, 6, &self.encoding.to_le_bytes());
        put(&mut bytes, 8, &self.process.to_le_bytes());
        put(&mut bytes, 12, &self.ring.to_le_bytes());
        put(&mut bytes, 16, &self.raw_bytes.to_le_bytes());
        put(&mut bytes, 20, &self.stored_bytes.to_le_bytes());
        put(&mut bytes, 24, &self.sequence.to_le_bytes());
        let checksum = checksum(&bytes, payload);
        put(&mut bytes, 32, &checksum.to_le_bytes());
        bytes
    }

    /// Reads a header; `None` if the magic is wrong.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<BlockHeader> {
        let halves = u32_at(bytes, 4);
        (u32_at(bytes, 0) == MAGIC).then_some(BlockHeader {
            kind: halves as u16,
            encoding: (halves >> 16) as u16,
            process: u32_at(bytes, 8),
            ring: u32_at(bytes, 12),
            raw_bytes: u32_at(bytes, 16),
            stored_bytes: u32_at(bytes, 20),
            sequence: u64::from(u32_at(bytes, 24)) | u64::from(u32_at(bytes, 28)) << 32,
            checksum: u32_at(bytes, 32),
        })
    }
}

/// Over the header without its checksum, and the payload.
pub fn checksum(header: &[u8; HEADER_BYTES], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(header.get(..32).unwrap_or(&[]));
    hasher.update(header.get(36..).unwrap_or(&[]));
    hasher.update(payload);
    hasher.finalize()
}
