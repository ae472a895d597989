//! The exporter with back ends that work, are slow, reject, are unreachable, or are something else.

mod fake;

use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1 as proto;
use prost::Message;

use crate::otlp::queue::REQUEST_MAX_BYTES;
use crate::otlp::signal_queue::max_bytes;
use crate::otlp::{
    Asked, EncodedRequest, Exporter, ExporterConfig, OnDiagnostic, OnFull, RequestSource, Sender, Signal,
    SignalStatus,
};
use fake::{Fake, Reply, Speaks};

/// Long enough for a busy machine.
const LONG: Duration = Duration::from_secs(30);

struct Run {
    exporter: Exporter,
    diagnostics: Arc<Mutex<Vec<String>>>,
}

fn start(url: &str, variables: &[(&str, &str)]) -> Run {
    start_with(url, variables, Vec::new(), None).unwrap()
}

fn start_with(
    url: &str,
    variables: &[(&str, &str)],
    sources: Vec<Box<dyn RequestSource>>,
    patience: Option<Duration>,
) -> Result<Run, String> {
    let config = ExporterConfig::new(&Asked::parse(url), |name| {
        variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    })?;
    let diagnostics = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&diagnostics);
    let hear: OnDiagnostic = Arc::new(move |text| hears.lock().unwrap().push(text.to_owned()));
    Ok(Run { exporter: Exporter::start(config, sources, hear, patience)?, diagnostics })
}

impl Run {
    fn sender(&self) -> Sender {
        self.exporter.sender()
    }

    fn send(&self, request: EncodedRequest) {
        self.sender().send(Signal::Traces, request, OnFull::DropsOldest);
    }

    fn traces(&self) -> SignalStatus {
        self.sender().status().traces.unwrap()
    }

    fn waits_until(&self, what: impl Fn(&SignalStatus) -> bool) {
        let begin = Instant::now();
        while !what(&self.traces()) {
            assert!(begin.elapsed() < LONG, "{:?}", self.traces());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn finish(self, limit: Duration) -> (SignalStatus, Vec<String>) {
        let status = self.exporter.finish(limit).traces.unwrap();
        (status, self.diagnostics.lock().unwrap().clone())
    }
}

/// A request with `count` spans, whose ids begin at `first`.
fn spans(first: u64, count: u64) -> EncodedRequest {
    let span = |id: u64| proto::Span { span_id: id.to_be_bytes().to_vec(), ..proto::Span::default() };
    let spans = (first..first + count).map(span).collect();
    let scope_spans = vec![proto::ScopeSpans { spans, ..proto::ScopeSpans::default() }];
    let resource_spans = vec![proto::ResourceSpans { scope_spans, ..proto::ResourceSpans::default() }];
    let request = ExportTraceServiceRequest { resource_spans };
    EncodedRequest { body: request.encode_to_vec(), items: count }
}

const VARIABLE: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";

#[test]
fn protocols_carry_the_same_spans() {
    for (protocol, speaks) in
        [("grpc", Speaks::Grpc), ("http/protobuf", Speaks::Http), ("http/json", Speaks::Http)]
    {
        for gzip in ["gzip", "none"] {
            let fake = Fake::new(speaks, &[Reply::Ok]);
            let variables = [
                (VARIABLE, protocol),
                ("OTEL_EXPORTER_OTLP_COMPRESSION", gzip),
                ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b"),
            ];
            let run = start(&fake.url(), &variables);
            run.send(spans(7, 3));
            run.send(spans(70, 2));
            let (status, diagnostics) = run.finish(LONG);
            assert_eq!((status.sent, status.requests, status.undelivered()), (5, 2, 0), "{status:?}");
            assert!(diagnostics.is_empty(), "{diagnostics:?}");
            let seen = fake.seen();
            assert_eq!(seen.len(), 2);
            assert_eq!(seen[0].headers["x-key"], "a b");
            let sent = ExportTraceServiceRequest::decode(&spans(7, 3).body[..]).unwrap();
            let read = match protocol {
                "http/json" => serde_json::from_slice(&seen[0].body).unwrap(),
                _ => ExportTraceServiceRequest::decode(&seen[0].body[..]).unwrap(),
            };
            assert_eq!(read, sent);
            if speaks == Speaks::Grpc {
                assert_eq!(seen[0].path, "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
                assert!(seen[0].headers["grpc-accept-encoding"].to_str().unwrap().contains("gzip"));
            } else {
                assert_eq!(seen[0].path, "/v1/traces");
            }
        }
    }
}

/// A request to be retried is sent again with the same bytes, after the wait that the back end asked for.
#[test]
fn retryable_requests_are_sent_again() {
    let busy = Reply::Http(503, vec![("retry-after", "1".to_owned())], "");
    for (speaks, replies) in [
        (Speaks::Http, vec![busy, Reply::Ok]),
        (Speaks::Grpc, vec![Reply::Grpc(14, "not yet"), Reply::Grpc(10, ""), Reply::Ok]),
    ] {
        let fake = Fake::new(speaks, &replies);
        let protocol = if speaks == Speaks::Grpc { "grpc" } else { "http/protobuf" };
        let run = start(&fake.url(), &[(VARIABLE, protocol)]);
        run.send(spans(1, 4));
        run.waits_until(|status| status.sent == 4);
        let seen = fake.seen();
        assert!(seen.windows(2).all(|two| two[0].body == two[1].body));
        if speaks == Speaks::Http {
            let waited = seen[1].at - seen[0].at;
            assert!(waited >= Duration::from_secs(1), "{waited:?}");
        }
        let (status, diagnostics) = run.finish(LONG);
        assert_eq!((status.retries, status.rejected), (replies.len() as u64 - 1, 0));
        assert_eq!(diagnostics.len(), 2, "that it waits and that it goes on, once each: {diagnostics:?}");
        assert!(
            diagnostics[0].contains("takes no spans: it answers ")
                && diagnostics[1].contains("takes spans again")
        );
    }
}

#[test]
fn rejected_requests_are_counted_and_not_sent_again() {
    for (speaks, refusal, why) in [
        (Speaks::Http, Reply::Http(400, vec![], "bad"), "it answers 400: bad"),
        (Speaks::Http, Reply::Http(401, vec![], ""), "OTEL_EXPORTER_OTLP_HEADERS"),
        (Speaks::Grpc, Reply::Grpc(3, "bad"), "it answers invalid argument: bad"),
        (Speaks::Grpc, Reply::Grpc(8, "full"), "it answers resource exhausted: full"),
    ] {
        let fake = Fake::new(speaks, &[refusal.clone(), refusal, Reply::Ok]);
        let protocol = if speaks == Speaks::Grpc { "grpc" } else { "http/protobuf" };
        let run = start(&fake.url(), &[(VARIABLE, protocol)]);
        (0..3).for_each(|at| run.send(spans(at * 10, 2)));
        let (status, diagnostics) = run.finish(LONG);
        assert_eq!((status.rejected, status.sent, status.retries), (4, 2, 0), "{status:?}");
        assert_eq!(fake.seen().len(), 3);
        assert_eq!(diagnostics.len(), 1, "{diagnostics:?}");
        assert!(diagnostics[0].contains(why), "{diagnostics:?}");
    }
}

#[test]
fn partial_success_is_counted_and_said_once() {
    for speaks in [Speaks::Http, Speaks::Grpc] {
        let fake = Fake::new(
            speaks,
            &[Reply::Partial(2, "too old"), Reply::Partial(1, "again"), Reply::Partial(99, "")],
        );
        let protocol = if speaks == Speaks::Grpc { "grpc" } else { "http/protobuf" };
        let run = start(&fake.url(), &[(VARIABLE, protocol)]);
        (0..3).for_each(|at| run.send(spans(at * 10, 5)));
        let (status, diagnostics) = run.finish(LONG);
        // No more items can be rejected than were sent.
        assert_eq!((status.sent, status.rejected, status.retries), (3 + 4, 2 + 1 + 5, 0));
        assert_eq!(diagnostics.len(), 1, "{diagnostics:?}");
        assert!(diagnostics[0].contains("rejects spans, of this request 2: too old"), "{diagnostics:?}");
    }
}

/// The queue waits for an unreachable back end, and for one that ends during a request.
#[test]
fn back_end_that_comes_back_gets_what_was_queued() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let run = start(&format!("http://{address}"), &[(VARIABLE, "grpc")]);
    (0..3).for_each(|at| run.send(spans(at * 10, 10)));
    run.waits_until(|status| status.retries >= 2);
    assert_eq!((run.traces().queued, run.traces().sent), (30, 0));
    assert!(run.traces().last_error.unwrap().contains("connection refused"), "{:?}", run.traces());
    let hung = Fake::at(TcpListener::bind(address).unwrap(), Speaks::Grpc, &[Reply::Ok, Reply::Hangs], None);
    run.waits_until(|status| status.sent == 10);
    let begin = Instant::now();
    while hung.seen().len() < 2 {
        assert!(begin.elapsed() < LONG);
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(hung);
    let well = Fake::at(TcpListener::bind(address).unwrap(), Speaks::Grpc, &[Reply::Ok], None);
    run.waits_until(|status| status.sent == 30);
    let (status, _) = run.finish(LONG);
    assert_eq!((status.undelivered(), well.seen().len()), (0, 2));
}

#[test]
fn back_end_that_does_not_answer_costs_the_timeout_and_the_end_its_limit() {
    let fake = Fake::new(Speaks::Http, &[Reply::Hangs]);
    let run = start(&fake.url(), &[("OTEL_EXPORTER_OTLP_TIMEOUT", "100")]);
    run.send(spans(1, 5));
    run.waits_until(|status| status.retries > 0);
    let begin = Instant::now();
    let (status, _) = run.finish(Duration::from_millis(300));
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    assert_eq!((status.sent, status.queued), (0, 5));
    assert_eq!(status.last_error.unwrap(), "no answer within 100 ms");
}

/// Senders never wait, however full the queue is; it drops its oldest requests.
#[test]
fn full_queue_is_bounded_and_counts_what_goes() {
    let fake = Fake::new(Speaks::Http, &[Reply::Hangs]);
    let run = start(&fake.url(), &[]);
    let large = EncodedRequest { body: vec![0; REQUEST_MAX_BYTES - 1], items: 1000 };
    let number = max_bytes(Signal::Traces) / REQUEST_MAX_BYTES + 4;
    let begin = Instant::now();
    for _ in 0..number {
        run.send(large.clone());
        let bytes = run.traces().queued_bytes as usize;
        assert!(bytes <= max_bytes(Signal::Traces) + REQUEST_MAX_BYTES, "{bytes}");
    }
    assert!(begin.elapsed() < Duration::from_secs(8), "less than one answer's time: {:?}", begin.elapsed());
    let begin = Instant::now();
    while run.diagnostics.lock().unwrap().is_empty() {
        assert!(begin.elapsed() < LONG);
        std::thread::sleep(Duration::from_millis(5));
    }
    let (status, diagnostics) = run.finish(Duration::ZERO);
    assert_eq!(status.queued + status.dropped, number as u64 * 1000);
    assert!(status.dropped >= 2000, "{status:?}");
    assert!(diagnostics[0].contains("spans are dropped: 24 MiB of them wait already"), "{diagnostics:?}");
}

/// A request that the back end cannot process does not block the others for ever.
#[test]
fn request_aborted_again_and_again_is_rejected() {
    let mut replies = vec![Reply::Grpc(11, "too long"); 5];
    replies.push(Reply::Ok);
    let fake = Fake::new(Speaks::Grpc, &replies);
    let run = start(&fake.url(), &[(VARIABLE, "grpc")]);
    run.send(spans(1, 1));
    run.send(spans(5, 2));
    run.waits_until(|status| status.sent == 2);
    let (status, _) = run.finish(LONG);
    assert_eq!((status.rejected, status.sent), (1, 2));
}

#[test]
fn wrong_protocol_is_reported() {
    for (speaks, protocol, why) in [
        (Speaks::Http, "grpc", "gRPC is usually spoken on port 4317"),
        (Speaks::Grpc, "http/protobuf", "it does not speak HTTP there"),
    ] {
        let fake = Fake::new(speaks, &[Reply::Ok]);
        let run = start(&fake.url(), &[(VARIABLE, protocol)]);
        run.send(spans(1, 1));
        run.waits_until(|status| status.retries > 0);
        let (status, diagnostics) = run.finish(Duration::ZERO);
        assert_eq!((status.sent, status.queued), (0, 1));
        assert_eq!(diagnostics.len(), 1, "{diagnostics:?}");
        assert!(
            diagnostics[0].contains(why) && diagnostics[0].contains("OTEL_EXPORTER_OTLP_PROTOCOL"),
            "{diagnostics:?}"
        );
    }
}

/// After the patience the queue is closed, and nobody waits for it any more.
#[test]
fn patience_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let run = start_with(&url, &[], Vec::new(), Some(Duration::from_millis(300))).unwrap();
    let large = EncodedRequest { body: vec![0; REQUEST_MAX_BYTES - 1], items: 10 };
    for _ in 0..20 {
        run.sender().send(Signal::Traces, large.clone(), OnFull::Waits);
    }
    assert!(run.sender().closed_because().is_some_and(|why| why.contains("connection refused")));
    let (status, _) = run.finish(Duration::MAX);
    assert_eq!((status.undelivered(), status.sent), (200, 0));
}

/// With a slow back end nothing is dropped.
#[test]
fn waiting_senders_lose_nothing() {
    let fake = Fake::new(Speaks::Http, &[Reply::Ok]);
    let run = start_with(&fake.url(), &[], Vec::new(), Some(LONG)).unwrap();
    let large = EncodedRequest { body: vec![0; REQUEST_MAX_BYTES - 1], items: 10 };
    for _ in 0..20 {
        run.sender().send(Signal::Traces, large.clone(), OnFull::Waits);
    }
    let (status, _) = run.finish(Duration::MAX);
    assert_eq!((status.sent, status.undelivered()), (200, 0), "{status:?}");
}

#[test]
fn sources_are_asked_while_it_runs_and_at_the_end() {
    struct Counts(u64);
    impl RequestSource for Counts {
        fn send(&mut self, to: &Sender) {
            self.0 += 1;
            to.send(Signal::Traces, spans(self.0, 1), OnFull::DropsOldest);
        }
    }
    let fake = Fake::new(Speaks::Http, &[Reply::Ok]);
    let run = start_with(&fake.url(), &[], vec![Box::new(Counts(0))], None).unwrap();
    run.waits_until(|status| status.sent == 2);
    let before = run.traces().sent;
    let (status, _) = run.finish(LONG);
    assert!(status.sent > before && status.undelivered() == 0, "{status:?}");
}

/// A certificate authority, a server certificate by it for this machine, and a client certificate.
struct Authority {
    folder: tempfile::TempDir,
    server: rustls::ServerConfig,
}

fn authority(wants_client: bool) -> Authority {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // Each authority needs its own name, or it would look like another one with a wrong key.
    let name = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos().to_string();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    let certificate = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let signed = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &issuer).unwrap(), key)
    };
    let (server, server_key) = signed("127.0.0.1");
    let (client, client_key) = signed("client");
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).unwrap();
    write("ca.pem", certificate.pem());
    write("client.pem", client.pem());
    write("client.key", client_key.serialize_pem());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = if wants_client {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
        builder.with_client_cert_verifier(verifier.build().unwrap())
    } else {
        builder.with_no_client_auth()
    };
    let key = rustls::pki_types::PrivateKeyDer::try_from(server_key.serialize_der()).unwrap();
    let mut server = builder.with_single_cert(vec![server.der().clone()], key).unwrap();
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Authority { folder, server }
}

impl Authority {
    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }
}

#[test]
fn tls_trusts_the_named_authority_and_no_other() {
    for (speaks, protocol) in [(Speaks::Grpc, "grpc"), (Speaks::Http, "http/protobuf")] {
        for wants_client in [false, true] {
            let authority = authority(wants_client);
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let fake = Fake::at(listener, speaks, &[Reply::Ok], Some(authority.server.clone()));
            let url = fake.url().replace("http://", "https://");
            let (root, certificate, key) =
                (authority.file("ca.pem"), authority.file("client.pem"), authority.file("client.key"));
            let mut variables = vec![(VARIABLE, protocol), ("OTEL_EXPORTER_OTLP_CERTIFICATE", &root[..])];
            if wants_client {
                let own = [
                    ("OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE", &certificate[..]),
                    ("OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", &key[..]),
                ];
                // Without a client certificate the server refuses the connection.
                let run = start(&url, &variables);
                run.send(spans(1, 1));
                run.waits_until(|status| status.last_error.is_some());
                drop(run);
                variables.extend(own);
            }
            let run = start(&url, &variables);
            run.send(spans(1, 1));
            let (status, diagnostics) = run.finish(LONG);
            assert_eq!((status.sent, fake.seen().len()), (1, 1), "{protocol} {diagnostics:?}");
        }
    }
}

#[test]
fn untrusted_certificate_is_reported() {
    let (authority, other) = (authority(false), authority(false));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let fake = Fake::at(listener, Speaks::Http, &[Reply::Ok], Some(authority.server.clone()));
    let plain = Fake::new(Speaks::Http, &[Reply::Ok]);
    let root = other.file("ca.pem");
    for (url, why) in [
        (fake.url().replace("http://", "https://"), "authority that is not trusted here"),
        (plain.url().replace("http://", "https://"), "it does not speak TLS there"),
        (fake.url(), "it does not speak HTTP there"),
    ] {
        let run = start(&url, &[("OTEL_EXPORTER_OTLP_CERTIFICATE", &root)]);
        run.send(spans(1, 1));
        run.waits_until(|status| status.retries > 0);
        let (status, diagnostics) = run.finish(Duration::ZERO);
        assert_eq!(status.queued, 1);
        assert!(diagnostics.len() == 1 && diagnostics[0].contains(why), "{diagnostics:?}");
    }
    assert!(fake.seen().is_empty());
}

#[test]
fn certificate_that_cannot_be_read_stops_the_start() {
    let error =
        start_with("https://h", &[("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere.pem")], Vec::new(), None);
    let error = error.map(|_| ()).unwrap_err();
    assert_eq!(error, "OTEL_EXPORTER_OTLP_CERTIFICATE /nowhere.pem: no such file or directory");
}

#[test]
fn end_that_is_ordered_can_be_brought_forward() {
    let fake = Fake::new(Speaks::Http, &[Reply::Hangs]);
    let run = start(&fake.url(), &[("OTEL_EXPORTER_OTLP_TIMEOUT", "600000")]);
    run.send(spans(1, 3));
    run.exporter.order_end(Duration::from_secs(600));
    run.waits_until(|_| !fake.seen().is_empty());
    assert!(!run.exporter.has_ended());
    // A later deadline does not replace an earlier one.
    run.exporter.order_end(Duration::from_secs(1200));
    run.exporter.order_end(Duration::ZERO);
    let begin = Instant::now();
    let (status, _) = run.finish(Duration::from_secs(600));
    assert!(begin.elapsed() < LONG, "{:?}", begin.elapsed());
    assert_eq!((status.sent, status.queued), (0, 3), "{status:?}");
}
