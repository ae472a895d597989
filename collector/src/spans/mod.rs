//! Spans: what the model knows, as OpenTelemetry has it. docs/SPANS.md is the table of names.
//!
//! A sink of the model's decides what becomes a span and under which other it stands, and gives
//! finished spans to a receiver, which writes or sends them. No clock is read and nothing is drawn
//! at random: the same stream makes the same spans, with the same ids.

mod batcher;
mod code;
mod contest;
pub(crate) mod describe;
mod encode;
pub(crate) mod ids;
pub(crate) mod joined;
mod known_ranges;
pub(crate) mod otlp;
pub mod otlp_json;
mod process;
pub(crate) mod resource;
pub mod run;
pub(crate) mod sampling;
mod sink;
pub(crate) mod span;
#[cfg(test)]
mod tests;
mod trace_context;

pub use batcher::SpanBatcher;
pub use otlp_json::OtlpJson;
pub use resource::Naming;
pub use sampling::Sampling;
pub use sink::Spans;
pub use span::{Receiver, Span, Value};
