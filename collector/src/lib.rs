//! The collector's library: drains traced processes, keeps the stream, and models it.
//!
//! `session` reads live processes through shared memory, `trace_file` stores and reads the same
//! stream, `model` makes host calls and operations of it and feeds whoever listens: aggregates,
//! reports and flamegraphs. `label` names what they show. Live and from a file are one pipeline,
//! so that their numbers agree.
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
