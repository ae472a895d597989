//! OTLP's way out: what is encoded is queued, and one thread of its own sends it to back ends.
//!
//! Whoever has something to send never waits and never hears an error: a back end that is away,
//! slow or refuses costs the rest of the program nothing, and what becomes of each item is counted.

mod answer;
mod backoff;
mod client;
mod config;
mod endpoint;
mod failure;
mod grpc;
mod headers;
mod http;
mod lane;
mod queue;
mod sender;
mod status;
mod tls;
mod worker;

#[cfg(test)]
mod tests;

pub use config::{Asked, Config};
pub use lane::OnFull;
pub use queue::{EncodedRequest, POINTS_MAX_BYTES, REQUEST_MAX_BYTES, SPANS_MAX_BYTES};
pub use sender::{Exporter, Sender, Source};
pub use status::{SignalStatus, Status};
pub use worker::News;

/// What a request is of; each has an endpoint, headers and a queue of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Signal {
    Traces,
    Metrics,
}

impl Signal {
    pub const ALL: [Signal; 2] = [Signal::Traces, Signal::Metrics];

    /// What its requests consist of.
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
