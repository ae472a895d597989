//! The parts of gRPC that a unary call needs: message frames, statuses, and retry delays.

use std::io::Read;
use std::time::Duration;

use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use flate2::read::GzDecoder;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use prost::Message;

use crate::otlp::delivery::{Delivery, RetryCause, one_line};
use crate::otlp::headers;

/// Puts the five-byte frame header before a message.
pub fn frame(message: &[u8], is_compressed: bool) -> Vec<u8> {
    let mut frame = Vec::with_capacity(message.len() + 5);
    frame.push(u8::from(is_compressed));
    frame.extend_from_slice(&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
    frame.extend_from_slice(message);
    frame
}

/// The message in a response's body, decompressed.
fn message(body: &[u8], max_bytes: u64) -> Option<Vec<u8>> {
    let (head, rest) = body.split_at_checked(5)?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    let message = rest.get(..length)?;
    if head[0] == 0 {
        return Some(message.to_vec());
    }
    let mut plain = Vec::new();
    GzDecoder::new(message).take(max_bytes).read_to_end(&mut plain).ok()?;
    Some(plain)
}

/// google.rpc.Status, in which servers send error details.
#[derive(Clone, PartialEq, Message)]
pub struct RpcStatus {
    #[prost(int32, tag = "1")]
    pub code: i32,
    #[prost(string, tag = "2")]
    pub message: String,
    #[prost(message, repeated, tag = "3")]
    pub details: Vec<ProtoAny>,
}

/// google.protobuf.Any.
#[derive(Clone, PartialEq, Message)]
pub struct ProtoAny {
    #[prost(string, tag = "1")]
    pub type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// google.rpc.RetryInfo.
#[derive(Clone, PartialEq, Message)]
pub struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    pub delay: Option<ProtoDuration>,
}

/// google.protobuf.Duration.
#[derive(Clone, PartialEq, Message)]
pub struct ProtoDuration {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

const NAMES: [&str; 17] = [
    "ok",
    "cancelled",
    "unknown",
    "invalid argument",
    "deadline exceeded",
    "not found",
    "already exists",
    "permission denied",
    "resource exhausted",
    "failed precondition",
    "aborted",
    "out of range",
    "unimplemented",
    "internal",
    "unavailable",
    "data loss",
    "unauthenticated",
];

/// The outcome, from a response's head, body and trailers.
pub fn answer(status: StatusCode, head: &HeaderMap, body: &[u8], trailers: Option<&HeaderMap>) -> Delivery {
    let is_grpc = head.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    if status != StatusCode::OK || !is_grpc {
        let why = format!("it answers {} over HTTP and not gRPC", status.as_u16());
        return match status.as_u16() {
            429 | 502 | 503 | 504 => Delivery::RetryLater { why, after: None, cause: RetryCause::Busy },
            401 | 403 => Delivery::Rejected {
                why: format!("{why}; who may send is usually told by OTEL_EXPORTER_OTLP_HEADERS"),
            },
            _ => Delivery::RetryLater {
                why: format!("{why}; {WRONG}"),
                after: None,
                cause: RetryCause::WrongService,
            },
        };
    }
    // A response without a body has its trailers in the head.
    let Some(map) = [trailers, Some(head)].into_iter().flatten().find(|map| map.contains_key("grpc-status"))
    else {
        return Delivery::unreachable("it ended its answer without a status".to_owned());
    };
    let text = |name| map.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let code = text("grpc-status").parse::<usize>().unwrap_or(2);
    if code == 0 {
        return Delivery::from_protobuf(&message(body, 1 << 20).unwrap_or_default());
    }
    let said = headers::decode(text("grpc-message")).unwrap_or_default();
    let said = one_line(&String::from_utf8_lossy(&said));
    let name = NAMES.get(code).copied().unwrap_or("an unknown status");
    let why =
        if said.is_empty() { format!("it answers {name}") } else { format!("it answers {name}: {said}") };
    let after = retry_info(text("grpc-status-details-bin"));
    let later = |cause| Delivery::RetryLater { why: why.clone(), after, cause };
    match name {
        "unavailable" => later(RetryCause::Busy),
        "resource exhausted" if after.is_some() => later(RetryCause::Busy),
        "cancelled" | "deadline exceeded" | "aborted" | "out of range" | "data loss" => {
            later(RetryCause::Aborted)
        }
        "unauthenticated" | "permission denied" => Delivery::Rejected {
            why: format!("{why}; who may send is usually told by OTEL_EXPORTER_OTLP_HEADERS"),
        },
        _ => Delivery::Rejected { why },
    }
}

/// The hint for a server that speaks another protocol.
pub const WRONG: &str = "gRPC is usually spoken on port 4317 and HTTP on 4318: check the port, or set \
                         OTEL_EXPORTER_OTLP_PROTOCOL";

fn retry_info(details: &str) -> Option<Duration> {
    let status = RpcStatus::decode(&BASE64.decode(details).ok()?[..]).ok()?;
    let info = status.details.iter().find(|detail| detail.type_url.ends_with("google.rpc.RetryInfo"))?;
    let delay = RetryInfo::decode(&info.value[..]).ok()?.delay.unwrap_or_default();
    let seconds = u64::try_from(delay.seconds).ok()?;
    Some(Duration::new(seconds, u32::try_from(delay.nanos).unwrap_or(0).min(999_999_999)))
}

/// Standard base64, with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn map(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn answered(trailers: &[(&'static str, &str)], body: &[u8]) -> Delivery {
        let head = map(&[("content-type", "application/grpc")]);
        answer(StatusCode::OK, &head, body, Some(&map(trailers)))
    }

    #[test]
    fn statuses_that_the_specification_names_are_retried() {
        for code in 1..20 {
            let is_later =
                matches!(answered(&[("grpc-status", &code.to_string())], b""), Delivery::RetryLater { .. });
            assert_eq!(is_later, [1, 4, 10, 11, 14, 15].contains(&code), "{code}");
        }
    }

    #[test]
    fn resource_exhausted_is_final_without_retry_info() {
        let retry = RetryInfo { delay: Some(ProtoDuration { seconds: 2, nanos: 500_000_000 }) };
        let detail = ProtoAny {
            type_url: "type.googleapis.com/google.rpc.RetryInfo".into(),
            value: retry.encode_to_vec(),
        };
        let status = RpcStatus { code: 8, message: String::new(), details: vec![detail] };
        let text = base64::engine::general_purpose::STANDARD_NO_PAD.encode(status.encode_to_vec());
        let pairs =
            [("grpc-status", "8"), ("grpc-message", "too%20much"), ("grpc-status-details-bin", &text[..])];
        assert_eq!(
            answered(&pairs, b""),
            Delivery::RetryLater {
                why: "it answers resource exhausted: too much".into(),
                after: Some(Duration::from_millis(2500)),
                cause: RetryCause::Busy
            }
        );
        assert!(matches!(answered(&pairs[..2], b""), Delivery::Rejected { .. }));
    }

    #[test]
    fn success_is_read_plain_and_compressed() {
        let rejects = [0x0a, 0x06, 0x08, 0x03, 0x12, 0x02, b'n', b'o'];
        let ok = [("grpc-status", "0")];
        assert_eq!(answered(&ok, &frame(&rejects, false)), Delivery::accepted(3, "no"));
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&rejects).unwrap();
        assert_eq!(answered(&ok, &frame(&gzip.finish().unwrap(), true)), Delivery::accepted(3, "no"));
        assert_eq!(answered(&ok, b""), Delivery::accepted(0, ""));
        assert_eq!(answered(&ok, &[0, 0, 0, 1, 0, 1]), Delivery::accepted(0, ""), "a frame that is cut off");
    }

    #[test]
    fn services_without_grpc_are_reported() {
        let html = map(&[("content-type", "text/html")]);
        for status in [200, 404] {
            let outcome = answer(StatusCode::from_u16(status).unwrap(), &html, b"<html>", None);
            let Delivery::RetryLater { why, cause: RetryCause::WrongService, .. } = outcome else {
                panic!("{outcome:?}")
            };
            assert!(why.contains("not gRPC") && why.contains("4318"), "{why}");
        }
    }
}
