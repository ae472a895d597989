//! The stream between session, file and model.
//!
//! [`coalesce`] gathers cells into batches, which the trace file stores and the model consumes in the same
//! order; [`replay`] reads them back from files. Neither interprets the batches. `clock` reads the clocks of
//! the times in the stream.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub(crate) mod clock;
pub mod coalesce;
pub mod replay;

pub use clock::monotonic_ns;
