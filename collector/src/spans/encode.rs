//! Encodes spans as protobuf directly. Building prost's messages first would cost five times as much; a test
//! compares the bytes with what prost encodes.

use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1 as proto;
use prost::Message;
use prost::encoding::{encode_varint, encoded_len_varint};

use crate::otlp::EncodedRequest;
use crate::spans::otlp::{SCHEMA_URL, flags, scope};
use crate::spans::{Span, Value};

/// Wire types of protobuf.
const VARINT: u8 = 0;
const FIXED_64: u8 = 1;
const BYTES: u8 = 2;
const FIXED_32: u8 = 5;

/// Builds requests with spans of one process.
pub struct Encoder {
    resource: Vec<u8>,
    scope: Vec<u8>,
    /// The encoded spans, each with tag and length.
    spans: Vec<u8>,
    count: u64,
}

impl Encoder {
    pub fn new(resource: &Resource) -> Encoder {
        Encoder {
            resource: resource.encode_to_vec(),
            scope: scope().encode_to_vec(),
            spans: Vec::new(),
            count: 0,
        }
    }

    /// The most bytes of a request beside its spans: resource, scope, the schema URL twice, tags and lengths.
    fn around_bytes(&self) -> usize {
        self.resource.len() + self.scope.len() + 2 * SCHEMA_URL.len() + 64
    }

    /// Adds a span. If the request would become too long, returns it without the span and begins another.
    pub fn add(&mut self, span: &Span, max_bytes: usize, max_spans: u64) -> Option<EncodedRequest> {
        let before = self.spans.len();
        write_span(&mut self.spans, span);
        let is_full = self.spans.len() + self.around_bytes() >= max_bytes || self.count >= max_spans;
        let full = (is_full && self.count > 0).then(|| {
            let last = self.spans.split_off(before);
            let full = self.request();
            self.spans = last;
            full
        });
        self.count += 1;
        full
    }

    /// Returns the last request.
    pub fn finish(mut self) -> Option<EncodedRequest> {
        (self.count > 0).then(|| self.request())
    }

    fn request(&mut self) -> EncodedRequest {
        let spans = std::mem::take(&mut self.spans);
        let items = std::mem::take(&mut self.count);
        let schema_bytes = field_bytes(SCHEMA_URL.len());
        let scope_spans = field_bytes(self.scope.len()) + spans.len() + schema_bytes;
        let resource_spans = field_bytes(self.resource.len()) + field_bytes(scope_spans) + schema_bytes;
        let mut body = Vec::with_capacity(field_bytes(resource_spans));
        prefix(&mut body, 1, resource_spans);
        write_bytes(&mut body, 1, &self.resource);
        prefix(&mut body, 2, scope_spans);
        write_bytes(&mut body, 1, &self.scope);
        body.extend_from_slice(&spans);
        write_bytes(&mut body, 3, SCHEMA_URL.as_bytes());
        write_bytes(&mut body, 3, SCHEMA_URL.as_bytes());
        EncodedRequest { body, items }
    }
}

/// Writes a span as field 2 of ScopeSpans.
fn write_span(out: &mut Vec<u8>, span: &Span) {
    prefix(out, 2, span_bytes(span));
    write_bytes(out, 1, &span.trace_id.to_be_bytes());
    write_bytes(out, 2, &span.id.to_be_bytes());
    write_text(out, 3, &span.trace_state);
    if span.parent != 0 {
        write_bytes(out, 4, &span.parent.to_be_bytes());
    }
    write_text(out, 5, &span.name);
    write_number(out, 6, proto::span::SpanKind::Internal as u64);
    write_fixed_64(out, 7, span.start_ns);
    write_fixed_64(out, 8, span.end_ns);
    for (key, value) in &span.attributes {
        prefix(out, 9, attribute_bytes(key, value));
        write_bytes(out, 1, key.as_bytes());
        prefix(out, 2, value_bytes(value));
        write_value(out, value);
    }
    for event in &span.events {
        prefix(out, 11, event_bytes(event.at_ns, event.name));
        write_fixed_64(out, 1, event.at_ns);
        write_text(out, 2, event.name);
    }
    if let Some(message) = &span.error {
        prefix(out, 15, error_bytes(message));
        write_text(out, 2, message);
        write_number(out, 3, proto::status::StatusCode::Error as u64);
    }
    // Field 16 is the only one whose tag takes two bytes.
    encode_varint(u64::from(16 << 3 | FIXED_32), out);
    out.extend_from_slice(&flags(span).to_le_bytes());
}

fn span_bytes(span: &Span) -> usize {
    let attributes = span.attributes.iter().map(|(key, value)| field_bytes(attribute_bytes(key, value)));
    let events = span.events.iter().map(|event| field_bytes(event_bytes(event.at_ns, event.name)));
    // The ids of 16 and 8 bytes, the kind, and the flags, each with its tag and length.
    let fixed = 18 + 10 + 2 + 6;
    fixed
        + text_bytes(&span.trace_state)
        + if span.parent == 0 { 0 } else { 10 }
        + text_bytes(&span.name)
        + fixed_64_bytes(span.start_ns)
        + fixed_64_bytes(span.end_ns)
        + attributes.sum::<usize>()
        + events.sum::<usize>()
        + span.error.as_ref().map_or(0, |message| field_bytes(error_bytes(message)))
}

fn attribute_bytes(key: &str, value: &Value) -> usize {
    field_bytes(key.len()) + field_bytes(value_bytes(value))
}

fn event_bytes(at_ns: u64, name: &str) -> usize {
    fixed_64_bytes(at_ns) + text_bytes(name)
}

fn error_bytes(message: &str) -> usize {
    text_bytes(message) + 2
}

/// Writes an AnyValue. An empty value is written too.
fn write_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Text(text) => write_bytes(out, 1, text.as_bytes()),
        Value::Flag(flag) => {
            tag(out, 2, VARINT);
            out.push(u8::from(*flag));
        }
        Value::Number(number) => {
            tag(out, 3, VARINT);
            encode_varint(number.cast_unsigned(), out);
        }
        Value::Real(real) => {
            tag(out, 4, FIXED_64);
            out.extend_from_slice(&real.to_le_bytes());
        }
        Value::Texts(texts) => {
            prefix(out, 5, texts.iter().map(|text| field_bytes(field_bytes(text.len()))).sum());
            for text in texts {
                prefix(out, 1, field_bytes(text.len()));
                write_bytes(out, 1, text.as_bytes());
            }
        }
    }
}

fn value_bytes(value: &Value) -> usize {
    match value {
        Value::Text(text) => field_bytes(text.len()),
        Value::Flag(_) => 2,
        Value::Number(number) => 1 + encoded_len_varint(number.cast_unsigned()),
        Value::Real(_) => 9,
        Value::Texts(texts) => {
            field_bytes(texts.iter().map(|text| field_bytes(field_bytes(text.len()))).sum())
        }
    }
}

fn tag(out: &mut Vec<u8>, field: u8, kind: u8) {
    out.push(field << 3 | kind);
}

fn prefix(out: &mut Vec<u8>, field: u8, length: usize) {
    tag(out, field, BYTES);
    encode_varint(length as u64, out);
}

/// The length of a field with number below 16, with its tag and length prefix.
fn field_bytes(length: usize) -> usize {
    1 + encoded_len_varint(length as u64) + length
}

fn write_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    prefix(out, field, bytes.len());
    out.extend_from_slice(bytes);
}

/// Writes a string field; an empty string is left out, as proto3 does.
fn write_text(out: &mut Vec<u8>, field: u8, text: &str) {
    if !text.is_empty() {
        write_bytes(out, field, text.as_bytes());
    }
}

fn text_bytes(text: &str) -> usize {
    if text.is_empty() { 0 } else { field_bytes(text.len()) }
}

fn write_number(out: &mut Vec<u8>, field: u8, number: u64) {
    tag(out, field, VARINT);
    encode_varint(number, out);
}

/// Writes a fixed64 field; 0 is left out, as proto3 does.
fn write_fixed_64(out: &mut Vec<u8>, field: u8, number: u64) {
    if number != 0 {
        tag(out, field, FIXED_64);
        out.extend_from_slice(&number.to_le_bytes());
    }
}

fn fixed_64_bytes(number: u64) -> usize {
    if number == 0 { 0 } else { 9 }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::common::v1::KeyValue;
    use proptest::prelude::*;

    use super::*;
    use crate::spans::otlp::{request, span as message};
    use crate::spans::span::SpanEvent;

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            ".{0,200}".prop_map(|text| Value::Text(text.into())),
            prop::collection::vec(".{0,20}", 0..4)
                .prop_map(|texts| Value::Texts(texts.into_iter().map(Into::into).collect())),
            any::<i64>().prop_map(Value::Number),
            Just(Value::Number(0)),
            any::<f64>().prop_filter("equal to itself", |real| !real.is_nan()).prop_map(Value::Real),
            any::<bool>().prop_map(Value::Flag),
        ]
    }

    fn spans() -> impl Strategy<Value = Vec<Span>> {
        let text = ".{0,20}";
        let numbers =
            (any::<u128>(), any::<u64>(), prop_oneof![Just(0), any::<u64>()], any::<u8>(), any::<bool>());
        let times = (prop_oneof![Just(0), any::<u64>()], any::<u64>(), prop::option::of(any::<u64>()));
        let attributes = prop::collection::vec(value(), 0..20);
        let one = (numbers, times, text, text, attributes, prop::option::of(text)).prop_map(
            |(
                (trace_id, id, parent, flags, parent_is_remote),
                (start_ns, end_ns, event),
                state,
                name,
                values,
                error,
            )| Span {
                process: 1,
                trace_id,
                id,
                parent,
                parent_is_remote,
                flags,
                trace_state: state.into(),
                name,
                start_ns,
                end_ns,
                attributes: values.into_iter().map(|value| ("gpu.some.attribute", value)).collect(),
                events: event.into_iter().map(|at_ns| SpanEvent { name: "launch", at_ns }).collect(),
                error,
            },
        );
        prop::collection::vec(one, 1..6)
    }

    proptest! {
        #[test]
        fn encoded_spans_equal_those_of_prost(spans in spans()) {
            let attributes = vec![KeyValue { key: "service.name".to_owned(), ..KeyValue::default() }];
            let resource = Resource { attributes, ..Resource::default() };
            let mut encoder = Encoder::new(&resource);
            for span in &spans {
                prop_assert!(encoder.add(span, usize::MAX, u64::MAX).is_none());
            }
            let encoded = encoder.finish().unwrap();
            prop_assert_eq!(encoded.items, spans.len() as u64);
            let messages = spans.into_iter().map(message).collect();
            prop_assert_eq!(encoded.body, request(messages, resource).encode_to_vec());
        }
    }
}
