//! The OTLP exporter: a queue of encoded requests for each signal, and one thread that sends them.
//!
//! Senders of requests neither wait nor get errors, so that a back end that is unreachable, slow or rejects
//! requests does not disturb the rest of the program. The outcome of every item is counted.

mod backoff;
mod client;
mod config;
mod delivery;
mod endpoint;
mod failure;
mod grpc;
mod headers;
mod http;
mod queue;
mod sender;
mod signal_queue;
mod status;
mod tls;
mod worker;

#[cfg(test)]
mod tests;

pub use config::{Asked, ExporterConfig};
pub use queue::{EncodedRequest, POINTS_MAX_BYTES, REQUEST_MAX_BYTES, SPANS_MAX_BYTES};
pub use sender::{Exporter, RequestSource, Sender};
pub use signal_queue::OnFull;
pub use status::{ExportStatus, SignalStatus};
pub use worker::OnDiagnostic;

/// An OpenTelemetry signal. Each has its own endpoint, headers and queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Signal {
    Traces,
    Metrics,
}

impl Signal {
    pub const ALL: [Signal; 2] = [Signal::Traces, Signal::Metrics];

    /// What the items of its requests are called.
    pub fn items(self) -> &'static str {
        match self {
            Signal::Traces => "spans",
            Signal::Metrics => "data points",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    Grpc,
    HttpProtobuf,
    HttpJson,
}

impl Protocol {
    const ALL: [Protocol; 3] = [Protocol::Grpc, Protocol::HttpProtobuf, Protocol::HttpJson];

    pub fn name(self) -> &'static str {
        match self {
            Protocol::Grpc => "grpc",
            Protocol::HttpProtobuf => "http/protobuf",
            Protocol::HttpJson => "http/json",
        }
    }

    fn parse(name: &str) -> Option<Protocol> {
        Protocol::ALL.into_iter().find(|protocol| protocol.name() == name.trim())
    }
}
