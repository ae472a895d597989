//! OpenTelemetry metrics of what the model found. docs/METRICS.md is the table of names.
//!
//! [`Metrics`] is a sink of the model. It adds up by process and emits at intervals of the stream's time.
//! Every event is counted, also those that become no span. It reads no clock, so the same stream gives the
//! same metrics. The numbers of kinds, devices, errors and names are bounded; what exceeds a bound is counted
//! in a point that is marked as such.
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

pub use otlp_json::MetricJson;
pub use sender::MetricsSender;
pub use settings::{KERNELS_MAX, Preference, Settings, Temporality};
pub use sink::{Metrics, MetricsReceiver};
