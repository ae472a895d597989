//! The flight recorder: the last seconds of a session in bounded memory, written when asked for.
//!
//! Stands where the trace file stands otherwise: takes the stream's batches and keeps them as the
//! encoded blocks that a trace file is made of, a few bytes an event. What grows too old, by the
//! times of the events themselves, goes and is counted; what later events need to be understood
//! (who a process is, its definitions, clocks, whose a ring is) stays. A snapshot of that is a
//! whole trace: it is written, read and reported like any other, and says that it is an excerpt.

mod block;
mod dumps;
mod kept;
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
