//! The trace file: the stream in compressed, checksummed blocks, written as the program runs.
//!
//! Owns the bytes on disk and does not interpret them: each [`crate::batch::Batch`] that is written is read
//! back unchanged. `docs/format/trace-file.md` describes the format and changes in the same commit. The
//! reader trusts nothing: it limits lengths, verifies checksums, and still returns everything before the
//! first damage.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod block;
mod bytes;
mod columns;
mod damage;
mod device_samples;
pub(crate) mod encode;
mod header;
mod payload;
mod reader;
mod schema;
mod shape;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use block::HEADER_BYTES as BLOCK_HEADER_BYTES;
pub use damage::{Damage, DamageReason};
pub(crate) use encode::BlockEncoder;
pub use header::{VERSION_MAJOR, VERSION_MINOR};
pub(crate) use reader::BlockDecoder;
pub use reader::TraceReader;
pub use writer::TraceWriter;
