//! The collector: from the rings of traced processes, or from a trace file, to reports.
//!
//! `session` reads the rings of live processes into a stream of batches; `trace_file` writes and reads the
//! same stream. `model` joins it into host calls and operations for its sinks: `aggregate`, `spans` and
//! `metrics`. `report` and `flame` render the aggregates, with names from `label`. Live data and files go
//! through the same pipeline, so that their numbers agree.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod aggregate;
pub mod batch;
pub mod command_line;
pub mod error;
pub mod failed_calls;
pub mod flame;
pub mod flight_recorder;
mod histogram;
pub mod label;
pub mod metrics;
pub mod model;
pub mod names;
pub mod otlp;
pub mod report;
pub mod session;
pub mod source;
pub mod spans;
pub mod stream;
pub mod symbols;
pub mod trace_file;

pub use error::Error;
