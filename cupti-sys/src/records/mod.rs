//! CUPTI's activity records, read by prefix.
//!
//! Each family of records only ever grew at its end, so a reader needs no struct per version: it needs each
//! field's offset and the version that first wrote it. A field that the version at hand does not write is
//! `None`.
//!
//! Records of different versions have different lengths: only `cuptiActivityGetNextRecord` may step from one
//! to the next. A reader holds one pointer, copies what it is asked for (records need not be aligned), and
//! neither allocates nor panics. What a time of zero means is the caller's to decide.

#[macro_use]
mod prefix;

mod graph_trace;
mod kernel;
mod memcpy;
mod memcpy_peer;
mod memset;
mod record;

pub use graph_trace::GraphTraceRecord;
pub use kernel::KernelRecord;
pub use memcpy::MemcpyRecord;
pub use memcpy_peer::MemcpyPtoPRecord;
pub use memset::MemsetRecord;
pub use prefix::Field;
pub use record::Record;

#[cfg(test)]
mod tests;
