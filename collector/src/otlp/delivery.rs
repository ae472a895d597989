//! The outcome of one attempt to send a request.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Delivery {
    /// The back end accepted the request, all but `rejected` items of it.
    Accepted { rejected: u64, message: String },
    /// The attempt failed; a later one may succeed. `after`: the wait that the back end asked for.
    RetryLater { why: String, after: Option<Duration>, cause: RetryCause },
    /// The back end rejected the request for good.
    Rejected { why: String },
}

/// Why an attempt is worth repeating.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RetryCause {
    /// The back end asked for it.
    Busy,
    /// The back end aborted this request; it is retried a few times only.
    Aborted,
    /// Nothing listens at the endpoint, or it does not answer.
    Unreachable,
    /// Another service answers at the endpoint, or it is not trusted. Waiting does not help; the user may
    /// correct it.
    WrongService,
}

impl Delivery {
    pub fn unreachable(why: String) -> Delivery {
        Delivery::RetryLater { why, after: None, cause: RetryCause::Unreachable }
    }

    /// Decodes a response. Those of traces and of metrics have the same fields.
    pub fn from_protobuf(bytes: &[u8]) -> Delivery {
        // A body that cannot be decoded counts as empty: the status has already reported success.
        let response = ExportTraceServiceResponse::decode(bytes).unwrap_or_default();
        let partial = response.partial_success.unwrap_or_default();
        Delivery::accepted(u64::try_from(partial.rejected_spans).unwrap_or(0), &partial.error_message)
    }

    pub fn accepted(rejected: u64, message: &str) -> Delivery {
        Delivery::Accepted { rejected, message: one_line(message) }
    }
}

/// Another program's text as one printable line of bounded length.
pub fn one_line(text: &str) -> String {
    const MAX_LETTERS: usize = 300;
    let line: String =
        text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).take(MAX_LETTERS).collect();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_back_end_becomes_one_line() {
        assert_eq!(one_line(" a\n\x1b[31mb\t c "), "a [31mb c");
        assert!(one_line(&"x".repeat(10_000)).len() <= 300);
        assert_eq!(Delivery::from_protobuf(b"\xff\xff"), Delivery::accepted(0, ""));
        let rejects = [0x0a, 0x06, 0x08, 0x03, 0x12, 0x02, b'n', b'o'];
        assert_eq!(Delivery::from_protobuf(&rejects), Delivery::accepted(3, "no"));
    }
}
