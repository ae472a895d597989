//! Writes metrics as OTLP/JSON, one request a line, as the OpenTelemetry Collector reads files.

use std::io::{self, Write};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;

use crate::metrics::sink::MetricsReceiver;
use crate::names::json_line;

#[derive(Debug)]
pub struct MetricJson<W> {
    output: W,
    requests: u64,
    /// The first write error; nothing is written after it.
    failure: Option<io::Error>,
}

impl<W: Write> MetricJson<W> {
    pub fn new(output: W) -> MetricJson<W> {
        MetricJson { output, requests: 0, failure: None }
    }

    /// Returns how many requests were written, and the output.
    pub fn finish(mut self) -> io::Result<(u64, W)> {
        match self.failure {
            Some(failure) => Err(failure),
            None => self.output.flush().map(|()| (self.requests, self.output)),
        }
    }

    fn write(&mut self, request: &ExportMetricsServiceRequest) -> io::Result<()> {
        self.output.write_all(&json_line(request)?)
    }
}

impl<W: Write> MetricsReceiver for MetricJson<W> {
    fn metrics(&mut self, request: ExportMetricsServiceRequest) {
        if self.failure.is_none() {
            self.failure = self.write(&request).err();
            self.requests += 1;
        }
    }
}
