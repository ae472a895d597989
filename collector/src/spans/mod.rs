//! OpenTelemetry spans of what the model found. docs/SPANS.md is the table of names.
//!
//! [`SpanSink`] is fed by the model. It decides what becomes a span and which span is its parent, and passes
//! finished spans to a [`SpanReceiver`], which writes or sends them. It reads no clock and draws no random
//! number, so the same stream gives the same spans with the same ids.

mod batcher;
mod code;
pub(crate) mod describe;
mod encode;
pub(crate) mod ids;
mod known_ranges;
pub(crate) mod otlp;
pub mod otlp_json;
mod process;
pub(crate) mod process_trace;
pub(crate) mod resource;
pub mod run;
mod sampler;
pub(crate) mod sampling;
mod sink;
pub(crate) mod span;
#[cfg(test)]
mod tests;
mod trace_context;

pub use batcher::SpanBatcher;
pub use otlp_json::SpanJson;
pub use resource::Naming;
pub use sampling::Sampling;
pub use sink::SpanSink;
pub use span::{Span, SpanReceiver, Value};
