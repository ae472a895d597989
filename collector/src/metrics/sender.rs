//! Encodes a process's metrics, some kilobytes a minute, and queues them for the OTLP sender.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use prost::Message;

use crate::metrics::page::points_of;
use crate::metrics::sink::Receiver;
use crate::otlp::{EncodedRequest, OnFull, Sender, Signal};

#[derive(Debug)]
pub struct MetricsSender {
    sender: Sender,
    on_full: OnFull,
}

impl MetricsSender {
    pub fn new(sender: Sender, on_full: OnFull) -> MetricsSender {
        MetricsSender { sender, on_full }
    }
}

impl Receiver for MetricsSender {
    fn metrics(&mut self, request: ExportMetricsServiceRequest) {
        let items = points_of(&request) as u64;
        let request = EncodedRequest { body: request.encode_to_vec(), items };
        self.sender.send(Signal::Metrics, request, self.on_full);
    }
}
