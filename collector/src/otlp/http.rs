//! OTLP over HTTP: protobuf or JSON in the body, the outcome in the status.

use std::io::Read;
use std::time::{Duration, SystemTime};

use flate2::read::GzDecoder;
use hyper::StatusCode;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use prost::Message;
use serde_json::Value;

use crate::otlp::answer::{Answer, Kind, one_line};
use crate::otlp::{Protocol, Signal};

/// A request that is protobuf as JSON.
pub fn to_json(signal: Signal, body: &[u8]) -> Result<Vec<u8>, String> {
    let malformed = |error: prost::DecodeError| format!("a request cannot be made JSON: {error}");
    let json = match signal {
        Signal::Traces => serde_json::to_vec(&ExportTraceServiceRequest::decode(body).map_err(malformed)?),
        Signal::Metrics => serde_json::to_vec(&ExportMetricsServiceRequest::decode(body).map_err(malformed)?),
    };
    json.map_err(|error| format!("a request cannot be made JSON: {error}"))
}

/// `protocol` is the request's: a response has the same encoding unless its content type is the other one.
pub fn answer(protocol: Protocol, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Answer {
    if status.is_success() {
        return success(protocol, status, headers, body);
    }
    let said = said(headers, body);
    let why = match status.canonical_reason() {
        _ if !said.is_empty() => format!("it answers {}: {said}", status.as_u16()),
        Some(reason) => format!("it answers {} {reason}", status.as_u16()),
        None => format!("it answers {}", status.as_u16()),
    };
    match status.as_u16() {
        429 | 502 | 503 | 504 => Answer::Later { why, after: retry_after(headers), kind: Kind::Busy },
        404 => Answer::Refused { why: format!("{why}; is the path right, and is OTLP spoken there?") },
        401 | 403 => Answer::Refused {
            why: format!("{why}; who may send is usually told by OTEL_EXPORTER_OTLP_HEADERS"),
        },
        415 => Answer::Refused { why: format!("{why}; try another OTEL_EXPORTER_OTLP_PROTOCOL") },
        _ => Answer::Refused { why },
    }
}

/// What else answers 200: a proxy's login page, a web server whose path is right by chance.
const NOT_OTLP: &str = "which is no answer of OTLP: check the host, the port and the path, and whether a proxy \
                        or a login stands before it";

/// An empty body says that all was taken, whatever its content type: frameworks add one by default. A body
/// without a content type is read if it can be. Any other body must be what OTLP answers with.
fn success(protocol: Protocol, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Answer {
    if body.is_empty() {
        return Answer::taken(0, "");
    }
    let decoded = match content_type(headers).as_deref() {
        Some("text/html" | "application/xhtml+xml") => None,
        Some("application/json") => plain(headers, body).and_then(|body| from_json(&body)),
        Some("application/x-protobuf" | "application/protobuf") => {
            plain(headers, body).and_then(|body| from_protobuf(&body))
        }
        _ => plain(headers, body).and_then(|body| match protocol {
            Protocol::HttpJson => from_json(&body),
            _ => from_protobuf(&body),
        }),
    };
    match (decoded, headers.get(CONTENT_TYPE)) {
        (Some(answer), _) => answer,
        (None, None) => Answer::taken(0, ""),
        (None, Some(kind)) => {
            let kind = one_line(&String::from_utf8_lossy(kind.as_bytes()));
            Answer::Refused { why: format!("it answers {} with {kind}, {NOT_OTLP}", status.as_u16()) }
        }
    }
}

/// In lower case and without parameters.
fn content_type(headers: &HeaderMap) -> Option<String> {
    let kind = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    Some(kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}

/// The body without its content encoding. None was asked for, but a server may answer as it was sent to.
fn plain(headers: &HeaderMap, body: &[u8]) -> Option<Vec<u8>> {
    const PLAIN_MAX_BYTES: u64 = 1 << 20;
    match headers.get(CONTENT_ENCODING).map(|encoding| encoding.as_bytes().to_ascii_lowercase()).as_deref() {
        None | Some(b"identity") => Some(body.to_vec()),
        Some(b"gzip" | b"x-gzip") => {
            let mut plain = Vec::new();
            GzDecoder::new(body).take(PLAIN_MAX_BYTES).read_to_end(&mut plain).ok()?;
            Some(plain)
        }
        Some(_) => None,
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"))
}

/// Both signals' responses are laid out alike.
fn from_protobuf(body: &[u8]) -> Option<Answer> {
    ExportTraceServiceResponse::decode(body).is_ok().then(|| Answer::from_protobuf(body))
}

fn from_json(body: &[u8]) -> Option<Answer> {
    let response: Value = serde_json::from_slice(body).ok().filter(Value::is_object)?;
    let partial = &response["partialSuccess"];
    let rejected = ["rejectedSpans", "rejectedDataPoints"].iter().find_map(|key| {
        let value = &partial[*key];
        value.as_u64().or_else(|| value.as_str()?.parse().ok())
    });
    Some(Answer::taken(rejected.unwrap_or(0), partial["errorMessage"].as_str().unwrap_or_default()))
}

/// The message of a google.rpc.Status, else the text, if it is any.
fn said(headers: &HeaderMap, body: &[u8]) -> String {
    let is_protobuf =
        headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/x-protobuf"));
    if is_protobuf {
        return crate::otlp::grpc::Status::decode(body)
            .map(|status| one_line(&status.message))
            .unwrap_or_default();
    }
    if is_json(headers) {
        let response: Value = serde_json::from_slice(body).unwrap_or_default();
        if let Some(message) = response["message"].as_str() {
            return one_line(message);
        }
    }
    let is_text = headers.get(CONTENT_TYPE).is_none_or(|kind| kind.as_bytes().starts_with(b"text/plain"));
    if is_text || is_json(headers) { one_line(&String::from_utf8_lossy(body)) } else { String::new() }
}

/// Seconds, or a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16, headers: &[(&'static str, &str)], body: &[u8]) -> Answer {
        answered_to(Protocol::HttpProtobuf, status, headers, body)
    }

    fn answered_to(protocol: Protocol, status: u16, headers: &[(&'static str, &str)], body: &[u8]) -> Answer {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        answer(protocol, StatusCode::from_u16(status).unwrap(), &headers.collect(), body)
    }

    #[test]
    fn only_what_the_specification_names_is_tried_again() {
        for status in 300..600 {
            let is_later = matches!(answered(status, &[], b""), Answer::Later { .. });
            assert_eq!(is_later, [429, 502, 503, 504].contains(&status), "{status}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let after = |value: &str| match answered(503, &[("retry-after", value)], b"") {
            Answer::Later { after, .. } => after,
            other => panic!("{other:?}"),
        };
        assert_eq!(after("7"), Some(Duration::from_secs(7)));
        assert_eq!(after("Thu, 01 Jan 1970 00:00:00 GMT"), Some(Duration::ZERO));
        let later = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(100));
        assert!(after(&later).is_some_and(|after| (90..=100).contains(&after.as_secs())));
        assert_eq!(after("soon"), None);
    }

    #[test]
    fn partial_success_is_read_in_both_forms() {
        let json = br#"{"partialSuccess":{"rejectedSpans":"5","errorMessage":"too\nold"}}"#;
        assert_eq!(answered(200, &[("content-type", "application/json")], json), Answer::taken(5, "too old"));
        let points = br#"{"partialSuccess":{"rejectedDataPoints":2}}"#;
        assert_eq!(answered(200, &[("content-type", "application/json")], points), Answer::taken(2, ""));
        let protobuf = [0x0a, 0x02, 0x08, 0x05];
        assert_eq!(answered(200, &[], &protobuf), Answer::taken(5, ""));
    }

    #[test]
    fn what_the_back_end_says_is_passed_on() {
        let Answer::Refused { why } = answered(400, &[("content-type", "text/plain")], b"bad\nspan") else {
            panic!()
        };
        assert_eq!(why, "it answers 400: bad span");
        let Answer::Refused { why } = answered(404, &[("content-type", "text/html")], b"<html>") else {
            panic!()
        };
        assert!(why.starts_with("it answers 404 Not Found; is the path right"), "{why}");
    }

    #[test]
    fn a_success_that_is_not_otlp_is_a_refusal() {
        let page = b"<!DOCTYPE html><title>Sign in</title>";
        for protocol in [Protocol::HttpProtobuf, Protocol::HttpJson] {
            for kind in ["text/html", "Text/HTML; charset=utf-8", "application/xhtml+xml", "text/plain"] {
                let Answer::Refused { why } = answered_to(protocol, 200, &[("content-type", kind)], page)
                else {
                    panic!("{protocol:?} {kind}")
                };
                assert!(why.starts_with(&format!("it answers 200 with {kind}, which is no answer")), "{why}");
            }
        }
        // A page may be bytes that decode, and says that it is a page.
        let decodes = [0x0a, 0x02, 0x08, 0x05];
        for (kind, body) in [
            ("text/html", &decodes[..]),
            ("application/x-protobuf", b"\xff\xff"),
            ("application/json", b"\"in\""),
            ("application/json", b"{"),
        ] {
            let answer = answered(200, &[("content-type", kind)], body);
            assert!(matches!(answer, Answer::Refused { .. }), "{kind}: {answer:?}");
        }
    }

    #[test]
    fn a_success_that_is_empty_or_without_a_type_is_one() {
        let taken = Answer::taken(0, "");
        for protocol in [Protocol::HttpProtobuf, Protocol::HttpJson] {
            assert_eq!(answered_to(protocol, 202, &[], b""), taken);
            assert_eq!(answered_to(protocol, 200, &[("content-type", "text/html")], b""), taken);
            assert_eq!(answered_to(protocol, 200, &[], b"thanks"), taken);
            // A response may be in the other encoding than the request, if it says so.
            assert_eq!(answered_to(protocol, 200, &[("content-type", "application/json")], b"{}"), taken);
            let rejects = [0x0a, 0x02, 0x08, 0x05];
            let kind = [("content-type", "application/x-protobuf")];
            assert_eq!(answered_to(protocol, 200, &kind, &rejects), Answer::taken(5, ""));
        }
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut gzip, b"{\"partialSuccess\":{\"rejectedSpans\":\"2\"}}").unwrap();
        let headers = [("content-type", "application/json"), ("content-encoding", "gzip")];
        assert_eq!(answered(200, &headers, &gzip.finish().unwrap()), Answer::taken(2, ""));
    }
}
