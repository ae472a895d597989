//! The collector's library: reads traced processes, stores the stream of events, and models it.
//!
//! `session` reads live processes through shared memory, `trace_file` stores and reads the same stream, and
//! `model` joins it into host calls and operations for the sinks: aggregates, spans and metrics. `report` and
//! `flame` write outputs with names from `label`, and `export` writes the formats of other tools. A live
//! stream and a file take the same path, so their numbers agree.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

#[cfg(test)]
extern crate self as gputrace_collector;

pub mod aggregate;
pub mod batch;
pub mod command_line;
pub mod error;
pub mod export;
pub mod failed_calls;
pub mod filter;
pub mod flame;
pub mod flight_recorder;
mod histogram;
pub mod label;
pub mod live;
pub mod memory;
pub mod metrics;
pub mod model;
pub mod names;
pub mod otlp;
pub mod report;
pub mod session;
pub mod source;
pub mod spans;
pub mod stream;
mod student;
pub mod symbols;
pub mod trace_file;

pub use error::Error;
