//! Metrics on their way from the model to the sender: some kilobytes a minute and process.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use prost::Message;

use crate::metrics::page::points_of;
use crate::metrics::sink::Receiver;
use crate::otlp::{EncodedRequest, Full, Sender, Signal};

/// Takes metrics for the sender.
#[derive(Debug)]
pub struct Live {
    sender: Sender,
    full: Full,
}

impl Live {
    pub fn new(sender: Sender, full: Full) -> Live {
        Live { sender, full }
    }
}

impl Receiver for Live {
    fn metrics(&mut self, request: ExportMetricsServiceRequest) {
        let items = points_of(&request) as u64;
        let request = EncodedRequest { body: request.encode_to_vec(), items };
        match self.full {
            Full::Drops => self.sender.send(Signal::Metrics, request),
            Full::Waits => self.sender.send_waiting(Signal::Metrics, request),
        }
    }
}
