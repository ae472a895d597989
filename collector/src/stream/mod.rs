//! The stream on its way: live batches gathered into larger ones, stored ones played back.
//!
//! What [`coalesce`] lets out is at once what the trace file stores and what the model sees, in
//! that order; [`replay`] reads it back. Neither looks into what the batches mean. `clock` reads the
//! clocks that the times in the stream are on.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub(crate) mod clock;
pub mod coalesce;
pub mod replay;
