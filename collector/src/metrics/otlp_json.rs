//! Metrics as lines of OTLP/JSON, one request a line: what the OpenTelemetry Collector reads from files.

use std::io::{self, Write};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;

use crate::metrics::sink::MetricsReceiver;

#[derive(Debug)]
pub struct MetricJson<W> {
    output: W,
    requests: u64,
    /// The first thing that went wrong; nothing is written from then on.
    failure: Option<io::Error>,
}

impl<W: Write> MetricJson<W> {
    pub fn new(output: W) -> MetricJson<W> {
        MetricJson { output, requests: 0, failure: None }
    }

    /// How many requests were written, to what.
    pub fn finish(mut self) -> io::Result<(u64, W)> {
        match self.failure {
            Some(failure) => Err(failure),
            None => self.output.flush().map(|()| (self.requests, self.output)),
        }
    }

    fn write(&mut self, request: &ExportMetricsServiceRequest) -> io::Result<()> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.output.write_all(&line)
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
