//! Converts spans to OTLP messages.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1 as proto;

use crate::model::definitions::Definitions;
use crate::spans::resource::{Naming, resource};
use crate::spans::span::{Span, Value};

/// The schema of those attribute names that OpenTelemetry defines.
pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.42.0";
/// OTLP's span flags beside W3C's: whether the next flag is valid, and whether the parent is remote.
const PARENT_IS_KNOWN: u32 = 0x100;
const PARENT_IS_REMOTE: u32 = 0x200;

/// One request with spans of one process.
pub fn request(spans: Vec<proto::Span>, resource: Resource) -> ExportTraceServiceRequest {
    ExportTraceServiceRequest {
        resource_spans: vec![proto::ResourceSpans {
            resource: Some(resource),
            scope_spans: vec![proto::ScopeSpans {
                scope: Some(scope()),
                spans,
                schema_url: SCHEMA_URL.to_owned(),
            }],
            schema_url: SCHEMA_URL.to_owned(),
        }],
    }
}

/// The resource of a process's spans and metrics.
pub fn resource_message(definitions: &Definitions, naming: &Naming) -> Resource {
    let attributes = resource(definitions, naming).into_iter().map(|(key, value)| attribute(&key, value));
    Resource { attributes: attributes.collect(), ..Resource::default() }
}

/// The instrumentation scope: gputrace.
pub fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "gputrace".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

pub fn flags(span: &Span) -> u32 {
    let is_remote = if span.parent_is_remote { PARENT_IS_REMOTE } else { 0 };
    u32::from(span.flags) | PARENT_IS_KNOWN | is_remote
}

pub fn span(span: Span) -> proto::Span {
    let flags = flags(&span);
    proto::Span {
        trace_id: span.trace_id.to_be_bytes().to_vec(),
        span_id: span.id.to_be_bytes().to_vec(),
        parent_span_id: if span.parent == 0 { Vec::new() } else { span.parent.to_be_bytes().to_vec() },
        trace_state: span.trace_state.to_string(),
        flags,
        name: span.name,
        kind: proto::span::SpanKind::Internal as i32,
        start_time_unix_nano: span.start_ns,
        end_time_unix_nano: span.end_ns,
        attributes: span.attributes.into_iter().map(|(key, value)| attribute(key, value)).collect(),
        events: span.events.iter().map(event).collect(),
        status: span
            .error
            .map(|message| proto::Status { message, code: proto::status::StatusCode::Error as i32 }),
        ..proto::Span::default()
    }
}

fn event(event: &crate::spans::span::SpanEvent) -> proto::span::Event {
    let name = event.name.to_owned();
    proto::span::Event { time_unix_nano: event.at_ns, name, ..proto::span::Event::default() }
}

pub fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(any(value)), ..KeyValue::default() }
}

fn any(value: Value) -> AnyValue {
    let value = match value {
        Value::Text(text) => Any::StringValue(text.to_string()),
        Value::Texts(texts) => {
            let values = texts.iter().map(|text| any(Value::Text(text.clone()))).collect();
            Any::ArrayValue(ArrayValue { values })
        }
        Value::Number(number) => Any::IntValue(number),
        Value::Real(real) => Any::DoubleValue(real),
        Value::Flag(flag) => Any::BoolValue(flag),
    };
    AnyValue { value: Some(value) }
}
