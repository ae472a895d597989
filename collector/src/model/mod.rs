//! The model: batches in, host calls and executed operations out.
//!
//! The model decides what is counted: every number in every output comes from here, live and from a
//! file. It opens no files, reads no clock and keeps bounded state, so its results depend only on the
//! batches and their order.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod before;
pub mod block;
pub mod callers;
pub mod clock;
pub mod correlate;
mod cost;
pub mod counted;
mod counts;
pub mod definitions;
mod elapsed;
mod epochs;
mod evicted;
mod executed;
mod exited;
mod feed;
mod graphs;
pub mod history;
pub mod host_copies;
pub mod in_flight;
#[cfg(test)]
mod in_flight_tests;
pub mod instances;
#[cfg(test)]
mod instances_tests;
mod key;
pub mod loss;
mod noted_ids;
pub mod operation;
mod overflow;
mod pending_call;
mod process;
pub mod process_snapshot;
mod process_totals;
pub mod ranges;
pub mod recording;
mod running_process;
mod since_launch;
pub mod sink;
mod sinks;
pub mod sticky;
#[cfg(test)]
mod takeover_tests;
#[cfg(test)]
mod tests;
pub mod totals;
mod unidentified;
pub mod untimed;

pub use cost::CostSums;
pub use counts::Counts;
pub use evicted::Evicted;
pub use feed::Model;
pub use loss::Loss;
pub use process_snapshot::ProcessSnapshot;
pub use process_totals::Process;
pub use ranges::{RangeName, Ranges, Spans};
pub use totals::{Series, Session, Totals};
