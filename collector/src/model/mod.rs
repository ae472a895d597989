//! The model: batches in, host calls and executed operations out.
//!
//! Every number that any output shows comes through here, live and from a file alike, so this
//! is where what is counted is decided. It opens nothing, reads no clock and keeps bounded state:
//! its results depend on the batches and their order only.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod callers;
pub mod clock;
pub mod correlate;
mod counts;
pub mod definitions;
mod elapsed;
mod ended;
mod epochs;
mod executed;
mod feed;
mod given_up;
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
pub mod namesakes;
pub mod operation;
mod process;
mod process_totals;
pub mod ranges;
mod running;
mod shelf;
pub mod sink;
mod sinks;
pub mod standing;
pub mod sticky;
#[cfg(test)]
mod takeover_tests;
#[cfg(test)]
mod tests;
pub mod totals;
mod unidentified;
pub mod unkept;
mod waiting;

pub use counts::Counts;
pub use feed::Model;
pub use loss::Loss;
pub use process_totals::Process;
pub use ranges::{RangeName, Ranges, Spans};
pub use standing::Standing;
pub use totals::{Series, Session, Totals};
