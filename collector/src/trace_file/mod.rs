//! The trace file: the stream in compressed, checksummed blocks, written as the program runs.
//!
//! Owns the bytes on disk and nothing of their meaning: what goes in is a [`crate::batch::Batch`]
//! and the same comes out, bit for bit. `docs/format/trace-file.md` is the format in prose and
//! changes in the same commit. A reader trusts nothing: lengths are capped, checksums are
//! checked, and everything before the first damage is still given out.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod block;
mod bytes;
mod columns;
mod damage;
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
