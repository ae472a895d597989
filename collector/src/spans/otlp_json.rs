//! Writes spans as OTLP/JSON, one request a line, as the OpenTelemetry Collector reads files.

use std::io::{self, Write};

use opentelemetry_proto::tonic::trace::v1 as proto;
use rustc_hash::FxHashMap;

use crate::model::definitions::Definitions;
use crate::names::json_line;
use crate::otlp::REQUEST_MAX_BYTES;
use crate::spans::otlp;
use crate::spans::resource::Naming;
use crate::spans::span::{Span, SpanReceiver};

/// The most spans of one process in a request.
const HELD_MAX: usize = 2000;

#[derive(Debug)]
pub struct SpanJson<W> {
    output: W,
    naming: Naming,
    held: FxHashMap<u32, Vec<proto::Span>>,
    spans: u64,
    /// The first write error; nothing is written after it.
    failure: Option<io::Error>,
}

impl<W: Write> SpanJson<W> {
    pub fn new(output: W, naming: Naming) -> SpanJson<W> {
        SpanJson { output, naming, held: FxHashMap::default(), spans: 0, failure: None }
    }

    /// Returns how many spans were written, and the output.
    pub fn finish(mut self) -> io::Result<(u64, W)> {
        match self.failure {
            Some(failure) => Err(failure),
            None => self.output.flush().map(|()| (self.spans, self.output)),
        }
    }

    /// The first write error, once: what is written after it is incomplete.
    pub fn ok_so_far(&mut self) -> io::Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }

    fn write(&mut self, spans: Vec<proto::Span>, definitions: &Definitions) {
        if spans.is_empty() || self.failure.is_some() {
            return;
        }
        self.spans += spans.len() as u64;
        if let Err(failure) = self.write_split(spans, definitions) {
            self.failure = Some(failure);
        }
    }

    /// Writes one request, or halves of it until each is short enough.
    fn write_split(&mut self, spans: Vec<proto::Span>, definitions: &Definitions) -> io::Result<()> {
        let request = otlp::request(spans, otlp::resource_message(definitions, &self.naming));
        let line = json_line(&request)?;
        let mut spans: Vec<proto::Span> = request
            .resource_spans
            .into_iter()
            .flat_map(|of| of.scope_spans)
            .flat_map(|of| of.spans)
            .collect();
        if line.len() <= REQUEST_MAX_BYTES || spans.len() < 2 {
            return self.output.write_all(&line);
        }
        let second = spans.split_off(spans.len() / 2);
        self.write_split(spans, definitions)?;
        self.write_split(second, definitions)
    }
}

impl<W: Write> SpanReceiver for SpanJson<W> {
    fn span(&mut self, span: Span, definitions: &Definitions) {
        let held = self.held.entry(span.process).or_default();
        held.push(otlp::span(span));
        if held.len() >= HELD_MAX {
            let full = std::mem::take(held);
            self.write(full, definitions);
        }
    }

    fn process_ended(&mut self, process: u32, definitions: &Definitions) {
        let rest = self.held.remove(&process).unwrap_or_default();
        self.write(rest, definitions);
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;

    use super::*;
    use crate::spans::span::{SpanEvent, Value};

    fn span(number: u64, text_bytes: usize) -> Span {
        Span {
            process: 1,
            trace_id: 0xabc,
            id: number + 1,
            parent: 0x77,
            parent_is_remote: true,
            flags: 1,
            trace_state: "vendor=x".into(),
            name: "cuda_kernel: gemm".to_owned(),
            start_ns: u64::MAX - 1,
            end_ns: u64::MAX,
            attributes: vec![
                ("gpu.kernel", Value::text(&"\u{e9}".repeat(text_bytes / 2))),
                ("gpu.duration_us", Value::Real(1.5)),
                ("gpu.is_slow", Value::Flag(true)),
                ("gpu_transfer.bytes", Value::number(u64::MAX)),
                ("gputrace.baggage", Value::Texts(vec!["a".into(), "b".into()])),
            ],
            events: vec![SpanEvent { name: "launch", at_ns: 7 }],
            error: Some("it failed".to_owned()),
        }
    }

    fn written(spans: impl Iterator<Item = Span>) -> Vec<String> {
        let definitions = Definitions::default();
        let mut output = SpanJson::new(Vec::new(), Naming::default());
        spans.for_each(|span| output.span(span, &definitions));
        output.process_ended(1, &definitions);
        let (_, bytes) = output.finish().unwrap();
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    }

    fn read_back(line: &str) -> Vec<proto::Span> {
        let request: ExportTraceServiceRequest = serde_json::from_str(line).unwrap();
        request.resource_spans.into_iter().flat_map(|of| of.scope_spans).flat_map(|of| of.spans).collect()
    }

    #[test]
    fn span_is_read_back_as_it_was() {
        let lines = written(std::iter::once(span(4, 10)));
        assert_eq!(lines.len(), 1);
        assert!(
            lines[0].contains(r#""endTimeUnixNano":"18446744073709551615""#),
            "a number past 2^53 is text"
        );
        let read = read_back(&lines[0]);
        assert_eq!(read, [otlp::span(span(4, 10))]);
        assert_eq!(read[0].flags, 0x301);
        assert_eq!(read[0].parent_span_id, 0x77u64.to_be_bytes());
    }

    #[test]
    fn requests_are_split_below_what_receivers_take() {
        let lines = written((0..5_000).map(|number| span(number, 4_000)));
        assert!(lines.len() > 5, "{}", lines.len());
        assert!(lines.iter().all(|line| line.len() < REQUEST_MAX_BYTES));
        let ids: Vec<Vec<u8>> =
            lines.iter().flat_map(|line| read_back(line)).map(|span| span.span_id).collect();
        let all: Vec<Vec<u8>> = (1..=5_000u64).map(|id| id.to_be_bytes().to_vec()).collect();
        assert_eq!(ids, all, "each once, in order");
    }

    #[test]
    fn failing_output_is_reported() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let definitions = Definitions::default();
        let mut output = SpanJson::new(Full, Naming::default());
        output.span(span(1, 10), &definitions);
        output.process_ended(1, &definitions);
        assert_eq!(output.finish().err().map(|error| error.kind()), Some(io::ErrorKind::StorageFull));
    }
}
