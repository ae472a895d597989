//! Spans: what the model knows, as OpenTelemetry has it. docs/SPANS.md is the table of names.
//!
//! A sink of the model's decides what becomes a span and under which other it stands, and gives
//! finished spans to a receiver, which writes or sends them. No clock is read and nothing is drawn
//! at random: the same stream makes the same spans, with the same ids.

mod contest;
mod describe;
mod error_names;
mod history;
mod ids;
mod joined;
mod known_ranges;
mod otlp;
pub mod otlp_json;
mod process;
mod resource;
mod sampling;
mod sink;
mod span;
#[cfg(test)]
mod tests;
mod trace_context;

pub use otlp_json::OtlpJson;
pub use resource::Naming;
pub use sampling::Sampling;
pub use sink::Spans;
pub use span::{Receiver, Span, Value};
