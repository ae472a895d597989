//! The flight recorder: the last seconds of a session in bounded memory, written on request.
//!
//! The window replaces the trace file: it keeps the stream's batches as the encoded blocks of a trace file, a
//! few bytes an event. Events that are too old, by their own times, are evicted and counted. What later
//! events depend on stays: processes, definitions, clocks, the threads of rings. A snapshot is a whole trace:
//! it is written, read and reported like any other, and is marked as an excerpt.

mod block;
mod dumps;
mod kept;
mod kept_samples;
mod marks;
mod scan;
mod snapshot;
#[cfg(test)]
mod tests;
mod window;

pub(crate) use block::Block;
pub use dumps::{Dump, DumpReason, WriteDump};
pub(crate) use dumps::{DumpRequest, Dumper};
pub(crate) use kept::Kept;
pub(crate) use marks::Marks;
pub use snapshot::Snapshot;
pub use window::BYTES_MAX;
pub(crate) use window::Window;
