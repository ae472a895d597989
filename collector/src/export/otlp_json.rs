//! `otlp-json`: OpenTelemetry spans, as [`crate::spans`] makes them.

use std::io::{self, Write};

use crate::export::{Event, Format, FormatEntry, Target, Trace};
use crate::model::definitions::Definitions;
use crate::model::instances::RangeInstance;
use crate::model::sink::Sink;
use crate::spans::{SpanJson, SpanSink};

pub(super) const FORMAT: FormatEntry = FormatEntry {
    name: "otlp-json",
    about: "OpenTelemetry spans or metrics, one request a line, as the Collector reads them",
    target: Target::Stream,
    open: |destination| Ok(Box::new(OtlpJson { output: Some(destination.stream()?), spans: None })),
};

struct OtlpJson {
    /// Until the choices are known.
    output: Option<Box<dyn Write>>,
    spans: Option<SpanSink<SpanJson<Box<dyn Write>>>>,
}

impl Format for OtlpJson {
    fn begin(&mut self, trace: &mut Trace<'_>) -> io::Result<()> {
        let receiver = self.output.take().map(|output| SpanJson::new(output, trace.choices.naming.clone()));
        self.spans = receiver.map(|receiver| SpanSink::new(receiver, trace.choices.sampling));
        Ok(())
    }

    fn event(&mut self, event: Event<'_>, _: &mut Trace<'_>) -> io::Result<()> {
        let Some(spans) = &mut self.spans else { return Ok(()) };
        match event {
            Event::ProcessBegins { number, process, session } => {
                spans.process_begins(number, process, session);
            }
            Event::Defines { number, definitions } => spans.defines(number, definitions),
            Event::Call(call, definitions) => spans.host_call(call, definitions),
            Event::Operation(operation, definitions) => spans.operation(operation, definitions),
            Event::Caller { process, number, caller, definitions } => {
                spans.caller(process, number, caller, definitions);
            }
            Event::RangeBegins(range, definitions) => spans.range_begins(range, definitions),
            Event::Range(range, definitions) => spans.range_ends(range, definitions),
            Event::ProcessEnds { number, last_seen_ns, definitions } => {
                spans.process_ends(number, last_seen_ns, definitions);
            }
            // No part of a span.
            Event::Samples(_) | Event::Block(_) => {}
        }
        // A disk that is full ends the export at once.
        spans.receiver().ok_so_far()
    }

    /// A span's parent is the range around it, also where no filter asks for ranges.
    fn left_out_range(&mut self, range: &RangeInstance, has_ended: bool, definitions: &Definitions) {
        match (&mut self.spans, has_ended) {
            (Some(spans), false) => spans.range_begins(range, definitions),
            (Some(spans), true) => spans.range_ends_as_parent(range, definitions),
            (None, _) => {}
        }
    }

    fn finish(&mut self, trace: &mut Trace<'_>) -> io::Result<u64> {
        let Some(spans) = self.spans.take() else { return Ok(0) };
        let (complaints, written) = spans.finish();
        trace.warnings.extend(complaints);
        written.finish().map(|(count, _)| count)
    }
}
