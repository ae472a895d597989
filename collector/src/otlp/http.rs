//! OTLP over HTTP: bodies as protobuf or JSON, and the outcome of a response.

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

use crate::otlp::delivery::{Delivery, RetryCause, one_line};
use crate::otlp::{Protocol, Signal};

/// Converts a protobuf request to JSON.
pub fn to_json(signal: Signal, body: &[u8]) -> Result<Vec<u8>, String> {
    let malformed = |error: prost::DecodeError| format!("a request cannot be made JSON: {error}");
    let json = match signal {
        Signal::Traces => serde_json::to_vec(&ExportTraceServiceRequest::decode(body).map_err(malformed)?),
        Signal::Metrics => serde_json::to_vec(&ExportMetricsServiceRequest::decode(body).map_err(malformed)?),
    };
    json.map_err(|error| format!("a request cannot be made JSON: {error}"))
}

/// `protocol` is the request's: a response has the same encoding unless its content type is the other one.
pub fn answer(protocol: Protocol, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Delivery {
    if status.is_success() {
        return success(protocol, status, headers, body);
    }
    let message = error_message(headers, body);
    let why = match status.canonical_reason() {
        _ if !message.is_empty() => format!("it answers {}: {message}", status.as_u16()),
        Some(reason) => format!("it answers {} {reason}", status.as_u16()),
        None => format!("it answers {}", status.as_u16()),
    };
    match status.as_u16() {
        429 | 502 | 503 | 504 => {
            Delivery::RetryLater { why, after: retry_after(headers), cause: RetryCause::Busy }
        }
        404 => Delivery::Rejected { why: format!("{why}; is the path right, and is OTLP spoken there?") },
        401 | 403 => Delivery::Rejected {
            why: format!("{why}; who may send is usually told by OTEL_EXPORTER_OTLP_HEADERS"),
        },
        415 => Delivery::Rejected { why: format!("{why}; try another OTEL_EXPORTER_OTLP_PROTOCOL") },
        _ => Delivery::Rejected { why },
    }
}

/// The hint for a 200 that is not OTLP's: a proxy's login page, or a web server that has the path by chance.
const NOT_OTLP: &str = "which is no answer of OTLP: check the host, the port and the path, and whether a proxy \
                        or a login stands before it";

/// An empty body means full success whatever its content type, since frameworks add one by default. A body
/// without a content type is decoded if possible. Any other body must be an OTLP response.
fn success(protocol: Protocol, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Delivery {
    if body.is_empty() {
        return Delivery::accepted(0, "");
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
        (None, None) => Delivery::accepted(0, ""),
        (None, Some(kind)) => {
            let kind = one_line(&String::from_utf8_lossy(kind.as_bytes()));
            Delivery::Rejected { why: format!("it answers {} with {kind}, {NOT_OTLP}", status.as_u16()) }
        }
    }
}

/// The content type in lower case, without parameters.
fn content_type(headers: &HeaderMap) -> Option<String> {
    let kind = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    Some(kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}

/// The decompressed body. We ask for no compression, but a server may answer with the encoding of the
/// request.
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

/// The responses of both signals have the same fields.
fn from_protobuf(body: &[u8]) -> Option<Delivery> {
    ExportTraceServiceResponse::decode(body).is_ok().then(|| Delivery::from_protobuf(body))
}

fn from_json(body: &[u8]) -> Option<Delivery> {
    let response: Value = serde_json::from_slice(body).ok().filter(Value::is_object)?;
    let partial = &response["partialSuccess"];
    let rejected = ["rejectedSpans", "rejectedDataPoints"].iter().find_map(|key| {
        let value = &partial[*key];
        value.as_u64().or_else(|| value.as_str()?.parse().ok())
    });
    Some(Delivery::accepted(rejected.unwrap_or(0), partial["errorMessage"].as_str().unwrap_or_default()))
}

/// The error message: that of a google.rpc.Status, else the body if it is text.
fn error_message(headers: &HeaderMap, body: &[u8]) -> String {
    let is_protobuf =
        headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/x-protobuf"));
    if is_protobuf {
        return crate::otlp::grpc::RpcStatus::decode(body)
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

/// The wait of a Retry-After header: seconds, or a date.
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

    fn answered(status: u16, headers: &[(&'static str, &str)], body: &[u8]) -> Delivery {
        answered_to(Protocol::HttpProtobuf, status, headers, body)
    }

    fn answered_to(
        protocol: Protocol,
        status: u16,
        headers: &[(&'static str, &str)],
        body: &[u8],
    ) -> Delivery {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        answer(protocol, StatusCode::from_u16(status).unwrap(), &headers.collect(), body)
    }

    #[test]
    fn statuses_that_the_specification_names_are_retried() {
        for status in 300..600 {
            let is_later = matches!(answered(status, &[], b""), Delivery::RetryLater { .. });
            assert_eq!(is_later, [429, 502, 503, 504].contains(&status), "{status}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let after = |value: &str| match answered(503, &[("retry-after", value)], b"") {
            Delivery::RetryLater { after, .. } => after,
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
        assert_eq!(
            answered(200, &[("content-type", "application/json")], json),
            Delivery::accepted(5, "too old")
        );
        let points = br#"{"partialSuccess":{"rejectedDataPoints":2}}"#;
        assert_eq!(answered(200, &[("content-type", "application/json")], points), Delivery::accepted(2, ""));
        let protobuf = [0x0a, 0x02, 0x08, 0x05];
        assert_eq!(answered(200, &[], &protobuf), Delivery::accepted(5, ""));
    }

    #[test]
    fn text_of_the_back_end_is_passed_on() {
        let Delivery::Rejected { why } = answered(400, &[("content-type", "text/plain")], b"bad\nspan")
        else {
            panic!()
        };
        assert_eq!(why, "it answers 400: bad span");
        let Delivery::Rejected { why } = answered(404, &[("content-type", "text/html")], b"<html>") else {
            panic!()
        };
        assert!(why.starts_with("it answers 404 Not Found; is the path right"), "{why}");
    }

    #[test]
    fn success_that_is_not_otlp_is_a_refusal() {
        let page = b"<!DOCTYPE html><title>Sign in</title>";
        for protocol in [Protocol::HttpProtobuf, Protocol::HttpJson] {
            for kind in ["text/html", "Text/HTML; charset=utf-8", "application/xhtml+xml", "text/plain"] {
                let Delivery::Rejected { why } = answered_to(protocol, 200, &[("content-type", kind)], page)
                else {
                    panic!("{protocol:?} {kind}")
                };
                assert!(why.starts_with(&format!("it answers 200 with {kind}, which is no answer")), "{why}");
            }
        }
        // A page may consist of bytes that decode, but its content type says HTML.
        let decodes = [0x0a, 0x02, 0x08, 0x05];
        for (kind, body) in [
            ("text/html", &decodes[..]),
            ("application/x-protobuf", b"\xff\xff"),
            ("application/json", b"\"in\""),
            ("application/json", b"{"),
        ] {
            let answer = answered(200, &[("content-type", kind)], body);
            assert!(matches!(answer, Delivery::Rejected { .. }), "{kind}: {answer:?}");
        }
    }

    #[test]
    fn success_that_is_empty_or_without_a_type_is_one() {
        let taken = Delivery::accepted(0, "");
        for protocol in [Protocol::HttpProtobuf, Protocol::HttpJson] {
            assert_eq!(answered_to(protocol, 202, &[], b""), taken);
            assert_eq!(answered_to(protocol, 200, &[("content-type", "text/html")], b""), taken);
            assert_eq!(answered_to(protocol, 200, &[], b"thanks"), taken);
            // A response may have another encoding than the request, if its content type names it.
            assert_eq!(answered_to(protocol, 200, &[("content-type", "application/json")], b"{}"), taken);
            let rejects = [0x0a, 0x02, 0x08, 0x05];
            let kind = [("content-type", "application/x-protobuf")];
            assert_eq!(answered_to(protocol, 200, &kind, &rejects), Delivery::accepted(5, ""));
        }
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut gzip, b"{\"partialSuccess\":{\"rejectedSpans\":\"2\"}}").unwrap();
        let headers = [("content-type", "application/json"), ("content-encoding", "gzip")];
        assert_eq!(answered(200, &headers, &gzip.finish().unwrap()), Delivery::accepted(2, ""));
    }
}
