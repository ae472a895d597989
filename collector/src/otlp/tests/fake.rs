//! A back end for tests: gives the configured reply to each request and records what it got.

use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::HeaderMap;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceResponse,
};
use prost::Message;
use tokio::sync::oneshot;

use crate::otlp::grpc;

#[derive(Clone, Debug)]
pub enum Reply {
    Ok,
    Partial(i64, &'static str),
    Http(u16, Vec<(&'static str, String)>, &'static str),
    Grpc(u32, &'static str),
    /// Never answers.
    Hangs,
}

#[derive(Clone, Debug)]
pub struct SeenRequest {
    pub path: String,
    pub headers: HeaderMap,
    /// The decompressed message without its frame.
    pub body: Vec<u8>,
    pub at: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Speaks {
    Http,
    Grpc,
}

pub struct Fake {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<SeenRequest>>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Fake {
    /// The last reply is repeated.
    pub fn new(speaks: Speaks, replies: &[Reply]) -> Fake {
        Fake::at(TcpListener::bind("127.0.0.1:0").unwrap(), speaks, replies, None)
    }

    pub fn at(
        listener: TcpListener,
        speaks: Speaks,
        replies: &[Reply],
        tls: Option<rustls::ServerConfig>,
    ) -> Fake {
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (stop, mut stopped) = oneshot::channel();
        let (keeps, replies) = (Arc::clone(&seen), replies.to_vec());
        let tls = tls.map(|tls| tokio_rustls::TlsAcceptor::from(Arc::new(tls)));
        let run = async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (stream, _) = tokio::select! {
                    accepted = listener.accept() => accepted.unwrap(),
                    _ = &mut stopped => return,
                };
                let (keeps, replies, tls) = (Arc::clone(&keeps), replies.clone(), tls.clone());
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        answer(request, speaks, Arc::clone(&keeps), replies.clone())
                    });
                    match tls {
                        // If one side does not trust the other, the connection is closed.
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(TokioIo::new(stream), speaks, service).await;
                            }
                        }
                        None => serve(TokioIo::new(stream), speaks, service).await,
                    }
                });
            }
        };
        let thread = std::thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(run);
            runtime.shutdown_background();
        });
        Fake { address, seen, stop: Some(stop), thread: Some(thread) }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn seen(&self) -> Vec<SeenRequest> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
        let _ = self.thread.take().unwrap().join();
    }
}

type Body = BoxBody<Bytes, std::convert::Infallible>;

async fn serve<I, S>(io: I, speaks: Speaks, service: S)
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    S: hyper::service::Service<
            Request<Incoming>,
            Response = Response<Body>,
            Error = std::convert::Infallible,
        >,
    S::Future: Send + 'static,
{
    // Some tests break connections on purpose.
    let _ = match speaks {
        Speaks::Http => hyper::server::conn::http1::Builder::new().serve_connection(io, service).await,
        Speaks::Grpc => {
            hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await
        }
    };
}

async fn answer(
    request: Request<Incoming>,
    speaks: Speaks,
    seen: Arc<Mutex<Vec<SeenRequest>>>,
    replies: Vec<Reply>,
) -> Result<Response<Body>, std::convert::Infallible> {
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await else { std::future::pending().await };
    let body = body.to_bytes();
    let (is_gzip, message) = match speaks {
        Speaks::Grpc => (body[0] == 1, &body[5..]),
        Speaks::Http => (head.headers.get("content-encoding").is_some_and(|how| how == "gzip"), &body[..]),
    };
    let mut plain = Vec::new();
    if is_gzip {
        GzDecoder::new(message).read_to_end(&mut plain).unwrap();
    } else {
        plain.extend_from_slice(message);
    }
    let number = {
        let mut seen = seen.lock().unwrap();
        let path = head.uri.path_and_query().unwrap().to_string();
        seen.push(SeenRequest { path, headers: head.headers, body: plain, at: Instant::now() });
        seen.len() - 1
    };
    let reply = replies.get(number).or(replies.last()).cloned().unwrap_or(Reply::Ok);
    let partial = match &reply {
        Reply::Partial(rejected, message) => Some((*rejected, *message)),
        _ => None,
    };
    let response = ExportTraceServiceResponse {
        partial_success: partial.map(|(rejected_spans, message)| ExportTracePartialSuccess {
            rejected_spans,
            error_message: message.to_owned(),
        }),
    };
    Ok(match reply {
        Reply::Hangs => {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            Response::new(full(Vec::new()))
        }
        Reply::Http(status, headers, body) => {
            let mut response = Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(name, value);
            }
            response.body(full(body.into())).unwrap()
        }
        Reply::Grpc(code, message) => grpc_response(Vec::new(), code, message),
        Reply::Ok | Reply::Partial(..) if speaks == Speaks::Grpc => {
            grpc_response(grpc::frame(&response.encode_to_vec(), false), 0, "")
        }
        Reply::Ok | Reply::Partial(..) => Response::new(full(response.encode_to_vec())),
    })
}

fn full(body: Vec<u8>) -> Body {
    Full::new(Bytes::from(body)).boxed()
}

fn grpc_response(body: Vec<u8>, code: u32, message: &str) -> Response<Body> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", code.to_string().parse().unwrap());
    trailers.insert("grpc-message", message.parse().unwrap());
    let frames = [Ok(Frame::data(Bytes::from(body))), Ok(Frame::trailers(trailers))];
    let body = StreamBody::new(Frames(frames.into_iter()));
    Response::builder().header("content-type", "application/grpc").body(body.boxed()).unwrap()
}

/// An iterator as a stream.
struct Frames<I>(I);

impl<I: Iterator + Unpin> futures_core::Stream for Frames<I> {
    type Item = I::Item;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<I::Item>> {
        std::task::Poll::Ready(self.0.next())
    }
}
