//! A finished span: ids, times, name and attributes, in no particular format.

use std::sync::Arc;

/// The longest text of an attribute; kernels' names can have any length.
const TEXT_MAX_BYTES: usize = 4096;

#[derive(Clone, PartialEq, Debug)]
pub struct Span {
    /// The model's number of the process.
    pub process: u32,
    pub trace_id: u128,
    pub id: u64,
    /// 0 for none.
    pub parent: u64,
    /// Whether the parent is a span of another tracer.
    pub parent_is_remote: bool,
    /// W3C trace flags.
    pub flags: u8,
    pub trace_state: Arc<str>,
    pub name: String,
    /// On CLOCK_REALTIME.
    pub start_ns: u64,
    pub end_ns: u64,
    pub attributes: Vec<Attribute>,
    pub events: Vec<SpanEvent>,
    /// The error message, if the operation failed.
    pub error: Option<String>,
}

pub type Attribute = (&'static str, Value);

/// A moment that belongs to a span; it may lie before the span.
#[derive(Clone, PartialEq, Debug)]
pub struct SpanEvent {
    pub name: &'static str,
    pub at_ns: u64,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    Text(Arc<str>),
    Texts(Vec<Arc<str>>),
    Number(i64),
    Real(f64),
    Flag(bool),
}

impl Value {
    pub fn text(text: &str) -> Value {
        let end = text.floor_char_boundary(TEXT_MAX_BYTES);
        Value::Text(text.get(..end).unwrap_or_default().into())
    }

    /// Like [`Value::text`], sharing a text that is short enough.
    pub fn shared(text: Arc<str>) -> Value {
        if text.len() > TEXT_MAX_BYTES { Value::text(&text) } else { Value::Text(text) }
    }

    /// OTLP integers are signed; a larger number becomes the greatest.
    pub fn number(number: impl TryInto<i64>) -> Value {
        Value::Number(number.try_into().unwrap_or(i64::MAX))
    }

    /// Nanoseconds as microseconds.
    pub fn us(ns: u64) -> Value {
        Value::Real(ns as f64 / 1e3)
    }
}

/// Takes finished spans. All spans of a process come before its end.
pub trait SpanReceiver {
    fn span(&mut self, span: Span, definitions: &crate::model::definitions::Definitions);
    fn process_ended(&mut self, process: u32, definitions: &crate::model::definitions::Definitions);
}
