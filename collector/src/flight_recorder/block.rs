//! A block of a trace file in memory: encoded once, and shared by the snapshots that contain it.

use std::sync::Arc;

use crate::trace_file::encode::Encoded;

#[derive(Clone, Debug)]
pub struct Block {
    kind: u16,
    encoding: u16,
    process: u32,
    ring: u32,
    raw_bytes: u32,
    stored: Arc<[u8]>,
}

impl Block {
    pub fn new(encoded: &Encoded) -> Block {
        Block {
            kind: encoded.kind,
            encoding: encoded.encoding,
            process: encoded.process,
            ring: encoded.ring,
            raw_bytes: encoded.raw_bytes,
            stored: encoded.stored.into(),
        }
    }

    pub fn encoded(&self) -> Encoded<'_> {
        Encoded {
            kind: self.kind,
            encoding: self.encoding,
            process: self.process,
            ring: self.ring,
            raw_bytes: self.raw_bytes,
            stored: &self.stored,
        }
    }

    /// The bytes that the block takes in memory.
    pub fn bytes(&self) -> usize {
        self.stored.len() + size_of::<Block>() + 2 * size_of::<usize>()
    }
}
