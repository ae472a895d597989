//! Spans on their way from the model to the sender: held as they are for half a second, and encoded on the
//! sender's thread.

use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry_proto::tonic::resource::v1::Resource;
use rustc_hash::FxHashMap;

use crate::model::definitions::Definitions;
use crate::otlp::{EncodedRequest, OnFull, Sender, Signal, Source};
use crate::spans::encode::Encoder;
use crate::spans::otlp::resource_message;
use crate::spans::{Naming, Receiver, Span};

/// Spans of one request, at most.
const REQUEST_MAX_SPANS: usize = 1000;
/// With so many held the sender's thread is woken.
const WAKE_AT: usize = 1000;
/// With so many it is late, and who brings them encodes them.
const HELD_MAX: usize = 4096;

/// Takes spans for the sender.
#[derive(Debug)]
pub struct SpanBatcher {
    held: SharedBatches,
    sender: Option<Sender>,
    naming: Naming,
    on_full: OnFull,
}

/// Shared with the sender's thread.
#[derive(Clone, Debug, Default)]
struct SharedBatches(Arc<Mutex<Batches>>);

#[derive(Debug, Default)]
struct Batches {
    spans: usize,
    by_process: FxHashMap<u32, (Resource, Vec<Span>)>,
}

impl SpanBatcher {
    /// The receiver, and what the sender's thread asks. Nothing is sent before [`SpanBatcher::send_by`].
    pub fn new(naming: Naming, on_full: OnFull) -> (SpanBatcher, Box<dyn Source>) {
        let held = SharedBatches::default();
        (SpanBatcher { held: held.clone(), sender: None, naming, on_full }, Box::new(held))
    }

    pub fn send_by(self, sender: Sender) -> SpanBatcher {
        SpanBatcher { sender: Some(sender), ..self }
    }

    /// Hands over what is held.
    pub fn flush(&self) {
        let batches = std::mem::take(&mut *self.held.0.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(sender) = &self.sender {
            batches.encode(sender, self.on_full);
        }
    }
}

impl Receiver for SpanBatcher {
    fn span(&mut self, span: Span, definitions: &Definitions) {
        let Some(sender) = &self.sender else { return };
        let mut batches = self.held.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, spans) = batches
            .by_process
            .entry(span.process)
            .or_insert_with(|| (resource_message(definitions, &self.naming), Vec::new()));
        spans.push(span);
        batches.spans += 1;
        match (batches.spans, self.on_full) {
            (HELD_MAX.., _) | (REQUEST_MAX_SPANS.., OnFull::Waits) => {
                let taken = std::mem::take(&mut *batches);
                drop(batches);
                taken.encode(sender, self.on_full);
            }
            (WAKE_AT, OnFull::DropsOldest) => {
                drop(batches);
                sender.wake();
            }
            _ => {}
        }
    }

    fn process_ended(&mut self, _: u32, _: &Definitions) {}
}

impl Source for SharedBatches {
    fn send(&mut self, to: &Sender) {
        let batches = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        batches.encode(to, OnFull::DropsOldest);
    }
}

impl Batches {
    fn encode(self, sender: &Sender, on_full: OnFull) {
        let max_bytes = sender.request_max_bytes(Signal::Traces);
        for (resource, spans) in self.by_process.into_values() {
            requests(&resource, &spans, max_bytes, |request| sender.send(Signal::Traces, request, on_full));
        }
    }
}

/// Spans of one process in as many requests as they need, each shorter than `max_bytes`.
fn requests(resource: &Resource, spans: &[Span], max_bytes: usize, mut send: impl FnMut(EncodedRequest)) {
    let mut encoder = Encoder::new(resource);
    for span in spans {
        encoder.add(span, max_bytes, REQUEST_MAX_SPANS as u64).map(&mut send);
    }
    encoder.finish().map(send);
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use prost::Message;

    use super::*;
    use crate::otlp::REQUEST_MAX_BYTES;
    use crate::spans::Value;

    #[test]
    fn requests_are_shorter_than_receivers_take_and_hold_everything_once() {
        let long = Value::text(&"\u{e9}".repeat(2000));
        let one = |id| Span {
            process: 1,
            trace_id: 1,
            id,
            parent: 0,
            parent_is_remote: false,
            flags: 1,
            trace_state: "".into(),
            name: "cuda_sync: stream".to_owned(),
            start_ns: 1,
            end_ns: 2,
            attributes: vec![("gpu.kernel", if id > 1500 { long.clone() } else { Value::Flag(true) })],
            events: Vec::new(),
            error: None,
        };
        for max_bytes in [REQUEST_MAX_BYTES, REQUEST_MAX_BYTES / 4] {
            let mut found = Vec::new();
            let all: Vec<_> = (1..=9000).map(one).collect();
            requests(&Resource::default(), &all, max_bytes, |request| {
                assert!(request.body.len() < max_bytes, "{}", request.body.len());
                let read = ExportTraceServiceRequest::decode(&request.body[..]).unwrap();
                let spans = &read.resource_spans[0].scope_spans[0].spans;
                assert!(spans.len() as u64 == request.items && spans.len() <= REQUEST_MAX_SPANS);
                found.extend(spans.iter().map(|span| span.span_id.clone()));
            });
            let all: Vec<_> = (1..=9000u64).map(|id| id.to_be_bytes().to_vec()).collect();
            assert_eq!(found, all);
        }
    }
}
