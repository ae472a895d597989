//! Metrics: what the model counts, as OpenTelemetry has it. docs/METRICS.md is the table of names.
//!
//! A sink of the model's adds up by process and tells now and then, by the stream's time. Every event is counted, those that
//! become no span too. No clock is read: the same stream makes the same metrics. Kinds, devices, errors and names are
//! bounded in number; what does not fit stands under a point that says so.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod device;
mod instruments;
mod kernels;
mod memory;
pub mod otlp_json;
mod page;
mod process;
mod sender;
mod settings;
mod sink;
#[cfg(test)]
mod tests;
mod total;

pub use otlp_json::OtlpJson;
pub use sender::MetricsSender;
pub use settings::{KERNELS_MAX, Preference, Settings, Temporality};
pub use sink::{Metrics, Receiver};
