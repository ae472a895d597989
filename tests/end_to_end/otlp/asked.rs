//! What is asked for by options and variables: authorities, headers, protocols, and what is malformed.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{PROTOCOL, assert_same, export_to, exported, sends};
use crate::harness::back_end::{BackEnd, Reply, nobody};
use crate::harness::folder::Folder;
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{bare, run, run_with};

/// An authority of our own, and a server's certificate by it.
fn authority(folder: &Folder) -> (PathBuf, rustls::ServerConfig) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap();
    let issuer = rcgen::Issuer::new(params, key);
    let key = rcgen::KeyPair::generate().unwrap();
    let server = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()])
        .unwrap()
        .signed_by(&key, &issuer)
        .unwrap();
    let path = folder.join("authority.pem");
    fs::write(&path, certificate.pem()).unwrap();
    let provider = rustls::crypto::ring::default_provider().into();
    let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![server.der().clone()], key)
        .unwrap();
    (path, config)
}

#[test]
fn tls_by_a_private_authority_is_trusted_where_it_is_named() {
    let folder = Folder::new();
    let (path, config) = authority(&folder);
    let back_end = BackEnd::at("127.0.0.1:0".parse().unwrap(), &[Reply::Takes], Some(config));
    let traced = sends(&back_end.url()).env("OTEL_EXPORTER_OTLP_CERTIFICATE", &path).succeed();
    assert_same(&back_end.spans(), &exported(&traced, &[]));
    // It is not, where it is not.
    let other = Folder::new();
    let (path, _) = authority(&other);
    let traced = sends(&back_end.url())
        .env("OTEL_EXPORTER_OTLP_CERTIFICATE", &path)
        .env("OTEL_EXPORTER_OTLP_TIMEOUT", "500")
        .succeed();
    let said = &traced.ended.stderr;
    assert!(said.contains("OTLP: https://") && said.contains("certificate"), "{said}");
    assert!(said.contains("unsent at the end"), "{said}");
}

#[test]
fn headers_are_sent_and_printed_nowhere() {
    let back_end = BackEnd::new(&[Reply::Answers(401, ""), Reply::Takes]);
    let url = back_end.url().replace("http://", "http://me:open-sesame@");
    let traced = sends(&format!("{url}?token=xyzzy"))
        .env("OTEL_EXPORTER_OTLP_HEADERS", "api-key=hunter2%2c,x-team=vision")
        .succeed();
    let requests = back_end.requests();
    assert!(!requests.is_empty());
    for request in &requests {
        assert_eq!(request.headers["api-key"], "hunter2,");
        assert_eq!(request.headers["x-team"], "vision");
        assert_eq!(request.headers["authorization"], "Basic bWU6b3Blbi1zZXNhbWU=");
        assert!(request.path.ends_with("?token=xyzzy"));
    }
    let report = traced.report().to_string();
    let all = [&traced.ended.stderr, &traced.ended.stdout, &traced.read("summary.txt"), &report]
        .map(String::as_str)
        .concat();
    for secret in ["hunter2", "open-sesame", "xyzzy"] {
        assert!(!all.contains(secret), "{secret}: {all}");
    }
    assert!(all.contains("it answers 401") && all.contains("OTEL_EXPORTER_OTLP_HEADERS"), "{all}");
}

/// The program runs and is recorded, whatever is wrong with what was asked.
#[test]
fn malformed_settings_are_reported_once_and_the_program_runs() {
    for (url, variable, value, why) in [
        ("nonsense", "", "", "--otlp nonsense: it does not begin with http:// or https://"),
        ("ftp://host", "", "", "ftp:// is not http:// or https://"),
        ("http://h:99999", "", "", "its port is none from 1 to 65535"),
        ("http://me:open/sesame@h:4318", "", "", "--otlp http://…: there is an @ behind a / ? or #"),
        ("grpc://me:open/sesame@h:4317", "", "", "--otlp grpc://…: grpc:// is not http:// or https://"),
        ("http://h", "OTEL_EXPORTER_OTLP_HEADERS", "no-value", "its member 1 is not of the form name=value"),
        ("http://h", PROTOCOL, "smoke", "is none of grpc, http/protobuf and http/json"),
        ("https://h", "OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere", "/nowhere: no such file or directory"),
        ("https://h", "OTEL_EXPORTER_OTLP_CERTIFICATE", "/dev/null", "there is no certificate in it"),
        ("http://h", "OTEL_EXPORTER_OTLP_TIMEOUT", "soon", "is no number of milliseconds"),
        ("http://h", "OTEL_EXPORTER_OTLP_COMPRESSION", "zip", "is neither gzip nor none"),
    ] {
        let traced = run_with(&["--otlp", url], compiled("basic", Link::Driver))
            .env(variable_or(variable), value)
            .succeed();
        let said = &traced.ended.stderr;
        assert_eq!(said.matches("nothing is sent over OTLP").count(), 1, "{said}");
        assert!(said.contains(why) && !said.contains("sesame"), "{said}");
        let ended = export_to(url, &[(variable_or(variable), value)], &traced).expect_code(2);
        let said = &ended.stderr;
        assert!(said.contains(why) && !said.contains("sesame"), "{said}");
    }
}

/// A variable that nobody reads where there is none to set.
fn variable_or(name: &str) -> &str {
    if name.is_empty() { "NOBODY_READS_THIS" } else { name }
}

#[test]
fn peer_with_another_protocol_is_reported() {
    let back_end = BackEnd::new(&[Reply::Takes]);
    let traced =
        sends(&back_end.url()).env(PROTOCOL, "grpc").env("OTEL_EXPORTER_OTLP_TIMEOUT", "500").succeed();
    let said = &traced.ended.stderr;
    assert!(said.contains("gRPC is usually spoken on port 4317 and HTTP on 4318"), "{said}");
    assert!(said.contains("unsent at the end"), "{said}");
    // TLS to one that speaks none.
    let url = back_end.url().replace("http://", "https://");
    let folder = Folder::new();
    let (path, _) = authority(&folder);
    let traced = sends(&url)
        .env("OTEL_EXPORTER_OTLP_CERTIFICATE", path)
        .env("OTEL_EXPORTER_OTLP_TIMEOUT", "500")
        .succeed();
    assert!(traced.ended.stderr.contains("OTLP: https://"), "{}", traced.ended.stderr);
    assert!(back_end.requests().is_empty());
}

/// The variable is the program's: it is no wish of anybody's to have us send.
#[test]
fn program_s_own_endpoint_alone_sends_nothing() {
    let back_end = BackEnd::new(&[Reply::Takes]);
    let traced = run("basic").env("OTEL_EXPORTER_OTLP_ENDPOINT", back_end.url()).succeed();
    assert!(back_end.requests().is_empty());
    assert!(!traced.ended.stderr.contains("spans"), "{}", traced.ended.stderr);
    // Asked, it is used; and off takes back what a variable asked for.
    for (asked, is_sent) in [("env", true), ("off", false)] {
        let back_end = BackEnd::new(&[Reply::Takes]);
        let own = format!("{}/own/v1/traces", back_end.url());
        run_with(&["--otlp", asked], compiled("spans", Link::Driver))
            .env("GPUTRACE_OTLP", "http://127.0.0.1:9")
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("{}/base", back_end.url()))
            .env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", own)
            .succeed();
        let mut paths: Vec<_> = back_end.requests().into_iter().map(|request| request.path).collect();
        paths.sort();
        paths.dedup();
        let expected: &[&str] = if is_sent { &["/base/v1/metrics", "/own/v1/traces"] } else { &[] };
        assert_eq!(paths, expected);
    }
}

#[test]
fn signal_that_the_environment_switches_off_is_not_sent_and_reported() {
    for (variable, value, sent, why) in [
        ("OTEL_SDK_DISABLED", "true", &[][..], "OTEL_SDK_DISABLED=true: nothing is sent"),
        (
            "OTEL_TRACES_EXPORTER",
            "none",
            &["/v1/metrics"][..],
            "OTEL_TRACES_EXPORTER=none: no spans are sent",
        ),
        (
            "OTEL_METRICS_EXPORTER",
            "none",
            &["/v1/traces"][..],
            "OTEL_METRICS_EXPORTER=none: no data points are sent",
        ),
    ] {
        let back_end = BackEnd::new(&[Reply::Takes]);
        let traced = sends(&back_end.url()).env(variable, value).succeed();
        let mut paths: Vec<_> = back_end.requests().into_iter().map(|request| request.path).collect();
        paths.dedup();
        paths.sort();
        paths.dedup();
        assert_eq!(paths, sent);
        assert_eq!(traced.ended.stderr.matches(why).count(), 1, "{}", traced.ended.stderr);
    }
}

#[test]
fn variable_sends_with_auto_collect() {
    let back_end = BackEnd::new(&[Reply::Takes]);
    let traced = bare("spans").env("GPUTRACE_OTLP", back_end.url()).env("GPUTRACE_ALL", "on").succeed();
    assert_same(&back_end.spans(), &exported(&traced, &["--all"]));
    assert!(traced.ended.stderr.contains("gputrace: sent "), "{}", traced.ended.stderr);
    // One that is away makes nobody wait long, and is told.
    let begin = Instant::now();
    let traced = bare("spans").env("GPUTRACE_OTLP", format!("http://{}", nobody())).succeed();
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
    let said = &traced.ended.stderr;
    assert!(said.contains("connection refused") && said.contains("gputrace: wrote "), "{said}");
}
