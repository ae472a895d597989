//! One signal's connection: sends a request over its protocol and interprets the response.

use std::io::Write;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, TE, USER_AGENT};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::otlp::config::SignalTarget;
use crate::otlp::delivery::{Delivery, one_line};
use crate::otlp::{Protocol, failure, grpc, http, tls};

type Pool = hyper_util::client::legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// The most bytes of a response that are read.
const ANSWER_MAX_BYTES: usize = 1 << 20;
/// How long an idle connection is kept; load balancers drop them after a minute.
const IDLE: Duration = Duration::from_secs(45);
const AGENT: &str = concat!("gputrace/", env!("CARGO_PKG_VERSION"));

pub struct Client {
    target: SignalTarget,
    tls: rustls::ClientConfig,
    pool: Pool,
    /// Whether the back end ever answered.
    is_known: bool,
}

impl Client {
    /// Reads the certificates.
    pub fn new(target: SignalTarget) -> Result<Client, String> {
        let tls = if target.endpoint.is_tls() {
            tls::config(&target.tls)?
        } else {
            // Never used, but the connector requires one.
            let provider = rustls::crypto::ring::default_provider();
            rustls::ClientConfig::builder_with_provider(provider.into())
                .with_safe_default_protocol_versions()
                .map_err(|error| format!("no TLS: {error}"))?
                .with_root_certificates(rustls::RootCertStore::empty())
                .with_no_client_auth()
        };
        let pool = pool(&target, &tls);
        Ok(Client { target, tls, pool, is_known: false })
    }

    pub fn target(&self) -> &SignalTarget {
        &self.target
    }

    /// Encodes and compresses a request's body, once for all attempts.
    pub fn prepare(&self, body: Vec<u8>) -> Result<Bytes, String> {
        let SignalTarget { protocol, gzip, signal, .. } = self.target;
        let body = if protocol == Protocol::HttpJson { http::to_json(signal, &body)? } else { body };
        let body = if gzip { compressed(&body)? } else { body };
        Ok(if protocol == Protocol::Grpc { grpc::frame(&body, gzip) } else { body }.into())
    }

    pub async fn send(&mut self, body: Bytes) -> Delivery {
        let request = match self.request(body) {
            Ok(request) => request,
            Err(error) => return Delivery::Rejected { why: format!("no request can be made: {error}") },
        };
        let protocol = self.target.protocol;
        let exchange = async {
            let response = match self.pool.request(request).await {
                Ok(response) => response,
                Err(error) => return failure::explain(&error, protocol, self.is_known),
            };
            self.is_known = true;
            let (head, body) = response.into_parts();
            match Limited::new(body, ANSWER_MAX_BYTES).collect().await {
                Ok(body) => {
                    let trailers = body.trailers().cloned();
                    let body = body.to_bytes();
                    if protocol == Protocol::Grpc {
                        grpc::answer(head.status, &head.headers, &body, trailers.as_ref())
                    } else {
                        http::answer(protocol, head.status, &head.headers, &body)
                    }
                }
                Err(error) => Delivery::unreachable(one_line(&format!("its answer ended early: {error}"))),
            }
        };
        let answer = tokio::time::timeout(self.target.timeout, exchange).await;
        answer.unwrap_or_else(|_| {
            // The other end of this connection may be gone.
            self.pool = pool(&self.target, &self.tls);
            Delivery::unreachable(format!("no answer within {} ms", self.target.timeout.as_millis()))
        })
    }

    fn request(&self, body: Bytes) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
        let SignalTarget { protocol, gzip, endpoint, headers, timeout, .. } = &self.target;
        let mut request = Request::post(endpoint.uri.clone());
        for (name, value) in headers {
            request = request.header(name, value);
        }
        // Our own name, unless the user set one.
        if !headers.iter().any(|(name, _)| name == USER_AGENT) {
            request = request.header(USER_AGENT, AGENT);
        }
        request = match protocol {
            Protocol::Grpc => {
                let request = request
                    .header(CONTENT_TYPE, "application/grpc")
                    .header(TE, "trailers")
                    // A server that gets gzip may answer with gzip.
                    .header("grpc-accept-encoding", "gzip,identity")
                    .header("grpc-timeout", format!("{}m", timeout.as_millis().min(99_999_999)));
                if *gzip { request.header("grpc-encoding", "gzip") } else { request }
            }
            Protocol::HttpProtobuf | Protocol::HttpJson => {
                let kind = match protocol {
                    Protocol::HttpJson => "application/json",
                    _ => "application/x-protobuf",
                };
                let request = request.header(CONTENT_TYPE, kind).header(ACCEPT, kind);
                if *gzip { request.header(CONTENT_ENCODING, "gzip") } else { request }
            }
        };
        request.body(Full::new(body))
    }
}

fn pool(target: &SignalTarget, tls: &rustls::ClientConfig) -> Pool {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(target.timeout));
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_or_http();
    let is_grpc = target.protocol == Protocol::Grpc;
    let connector = if is_grpc {
        connector.enable_http2().wrap_connector(tcp)
    } else {
        connector.enable_http1().wrap_connector(tcp)
    };
    hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .http2_only(is_grpc)
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .build(connector)
}

fn compressed(body: &[u8]) -> Result<Vec<u8>, String> {
    let mut gzip = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
    gzip.write_all(body)
        .and_then(|()| gzip.finish())
        .map_err(|error| format!("a request cannot be compressed: {error}"))
}
