//! An OTLP back end over HTTP that does as it is told, and keeps what it was sent.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use flate2::read::GzDecoder;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use prost::Message;
use serde_json::Value;

use crate::harness::session::eventually;

/// What becomes of a request with spans; those with metrics are always taken.
#[derive(Clone, Debug)]
pub enum Reply {
    Takes,
    TakesSlowly(Duration),
    Rejects(i64, &'static str),
    Answers(u16, &'static str),
    /// As a proxy that wants a login does: 200 and a page, to metrics too.
    LoginPage,
    Hangs,
}

#[derive(Clone, Debug)]
pub struct Request {
    pub path: String,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Decompressed.
    pub body: Vec<u8>,
    pub is_taken: bool,
}

impl Request {
    fn is_of_spans(&self) -> bool {
        is_of_spans(&self.path)
    }
}

fn is_of_spans(path: &str) -> bool {
    path.split('?').next().is_some_and(|path| path.ends_with("/v1/traces"))
}

/// Spans by their ids, each with its resource: as `export` writes them.
pub type Spans = BTreeMap<String, (Value, Value)>;

pub struct BackEnd {
    address: SocketAddr,
    is_tls: bool,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    replies: Vec<Reply>,
    requests: Mutex<Vec<Request>>,
    connections: Mutex<Vec<TcpStream>>,
    stops: AtomicBool,
    tls: Option<Arc<rustls::ServerConfig>>,
}

impl BackEnd {
    /// The last reply is for all that come after.
    pub fn new(replies: &[Reply]) -> BackEnd {
        BackEnd::at("127.0.0.1:0".parse().unwrap(), replies, None)
    }

    pub fn at(address: SocketAddr, replies: &[Reply], tls: Option<rustls::ServerConfig>) -> BackEnd {
        // A port that was let go of may be somebody's own end of a connection for a moment.
        let listener = eventually("a free port", || TcpListener::bind(address).ok());
        let shared = Arc::new(Shared {
            replies: replies.to_vec(),
            requests: Mutex::default(),
            connections: Mutex::default(),
            stops: AtomicBool::new(false),
            tls: tls.map(Arc::new),
        });
        let address = listener.local_addr().unwrap();
        let (is_tls, serves) = (shared.tls.is_some(), Arc::clone(&shared));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if serves.stops.load(Ordering::SeqCst) {
                    return;
                }
                serves.connections.lock().unwrap().push(stream.try_clone().unwrap());
                let serves = Arc::clone(&serves);
                std::thread::spawn(move || {
                    let own = stream.try_clone().unwrap();
                    serves.connection(stream);
                    let _ = own.shutdown(Shutdown::Both);
                });
            }
        });
        BackEnd { address, is_tls, shared, thread: Some(thread) }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("{}://{}", if self.is_tls { "https" } else { "http" }, self.address)
    }

    pub fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// Of those with spans.
    pub fn traces(&self) -> Vec<Request> {
        self.requests().into_iter().filter(|request| request.is_of_spans()).collect()
    }

    /// What it took.
    #[track_caller]
    pub fn spans(&self) -> Spans {
        let mut spans = Spans::new();
        for request in self.traces().iter().filter(|request| request.is_taken) {
            let json = match request.headers["content-type"].as_str() {
                "application/json" => serde_json::from_slice(&request.body).unwrap(),
                _ => {
                    let message = ExportTraceServiceRequest::decode(&request.body[..]).unwrap();
                    serde_json::to_value(message).unwrap()
                }
            };
            for (id, span) in spans_of(&json) {
                assert!(spans.insert(id, span).is_none(), "it came twice");
            }
        }
        spans
    }

    #[track_caller]
    pub fn waits_for_spans(&self, count: usize) {
        eventually("the spans", || (self.spans().len() >= count).then_some(()));
    }
}

impl Drop for BackEnd {
    /// As if it were killed: connections break.
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::SeqCst);
        for connection in self.shared.connections.lock().unwrap().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
        let _ = TcpStream::connect(self.address);
        let _ = self.thread.take().unwrap().join();
    }
}

/// The spans of a request that is JSON.
pub fn spans_of(request: &Value) -> Spans {
    let mut spans = Spans::new();
    for of in request["resourceSpans"].as_array().unwrap() {
        for scope in of["scopeSpans"].as_array().unwrap() {
            assert_eq!(scope["scope"]["name"], "gputrace");
            for span in scope["spans"].as_array().unwrap() {
                let mut span = span.clone();
                let mut resource = of["resource"].clone();
                sort(&mut span["attributes"]);
                sort(&mut resource["attributes"]);
                spans.insert(span["spanId"].as_str().unwrap().to_owned(), (span, resource));
            }
        }
    }
    spans
}

/// Sorts attributes by key, since their order means nothing. A process's devices are known better later on.
fn sort(attributes: &mut Value) {
    if let Some(attributes) = attributes.as_array_mut() {
        attributes.retain(|attribute| attribute["key"] != "gpu.tracing.capabilities");
        attributes.sort_by_key(|attribute| attribute["key"].as_str().unwrap_or_default().to_owned());
    }
}

trait Stream: Read + Write + Send {}
impl<S: Read + Write + Send> Stream for S {}

impl Shared {
    fn connection(&self, stream: TcpStream) {
        let mut stream: Box<dyn Stream> = match &self.tls {
            None => Box::new(stream),
            Some(tls) => {
                let connection = rustls::ServerConnection::new(Arc::clone(tls)).unwrap();
                Box::new(rustls::StreamOwned::new(connection, stream))
            }
        };
        // Ends with the connection, or with whatever comes that is no HTTP.
        while let Some((path, headers, body)) = request(&mut *stream) {
            let is_of_spans = is_of_spans(&path);
            let reply = {
                let mut requests = self.requests.lock().unwrap();
                let number = requests.iter().filter(|request| request.is_of_spans()).count();
                let reply = self.replies.get(number).or(self.replies.last()).cloned();
                let reply = reply.filter(|reply| is_of_spans || matches!(reply, Reply::LoginPage));
                let reply = reply.unwrap_or(Reply::Takes);
                let is_taken = !matches!(reply, Reply::Answers(..) | Reply::LoginPage | Reply::Hangs);
                requests.push(Request { path, headers, body, is_taken });
                reply
            };
            let mut partial = None;
            let (status, more) = match reply {
                Reply::Takes => (200, ""),
                Reply::TakesSlowly(wait) => {
                    std::thread::sleep(wait);
                    (200, "")
                }
                Reply::Rejects(rejected_spans, message) => {
                    let error_message = message.to_owned();
                    partial = Some(ExportTracePartialSuccess { rejected_spans, error_message });
                    (200, "")
                }
                Reply::Answers(status, more) => (status, more),
                Reply::LoginPage => (200, ""),
                // Until the other end gives up, or this one dies.
                Reply::Hangs => {
                    let _ = stream.read(&mut [0]);
                    return;
                }
            };
            let (kind, body) = match reply {
                Reply::LoginPage => {
                    ("text/html; charset=utf-8", b"<!DOCTYPE html><title>Sign in</title>".to_vec())
                }
                _ => {
                    let response = ExportTraceServiceResponse { partial_success: partial };
                    ("application/x-protobuf", response.encode_to_vec())
                }
            };
            let head = format!(
                "HTTP/1.1 {status} Said\r\n{more}content-type: {kind}\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            if stream.write_all(&[head.as_bytes(), &body].concat()).and_then(|()| stream.flush()).is_err() {
                return;
            }
        }
    }
}

type Parts = (String, BTreeMap<String, String>, Vec<u8>);

/// One request with a length.
fn request(stream: &mut dyn Stream) -> Option<Parts> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if head.len() > 1 << 16 || stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    let mut lines = head.lines();
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let headers: BTreeMap<_, _> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
        .collect();
    let mut body = vec![0; headers.get("content-length")?.parse().ok()?];
    stream.read_exact(&mut body).ok()?;
    if headers.get("content-encoding").is_some_and(|encoding| encoding == "gzip") {
        let mut plain = Vec::new();
        GzDecoder::new(&body[..]).read_to_end(&mut plain).ok()?;
        body = plain;
    }
    Some((path, headers, body))
}

/// Where nobody listens.
pub fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}
