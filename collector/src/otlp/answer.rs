//! What became of one attempt to send a request.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Taken, but for what was rejected.
    Taken { rejected: u64, message: String },
    /// Not taken, and may be later.
    Later { why: String, after: Option<Duration>, kind: Kind },
    /// Refused for good.
    Refused { why: String },
}

/// Why an attempt is worth repeating.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The back end says so.
    Busy,
    /// It says so of this request: not for ever.
    Aborted,
    /// It is not there, or does not answer.
    Away,
    /// What is there is something else, as it seems, or is not trusted. It may be put right, but not by waiting.
    Wrong,
}

impl Answer {
    pub fn away(why: String) -> Answer {
        Answer::Later { why, after: None, kind: Kind::Away }
    }

    /// From a response's message: both signals' are laid out alike.
    pub fn from_protobuf(bytes: &[u8]) -> Answer {
        // What cannot be read came with a success all the same.
        let response = ExportTraceServiceResponse::decode(bytes).unwrap_or_default();
        let partial = response.partial_success.unwrap_or_default();
        Answer::taken(u64::try_from(partial.rejected_spans).unwrap_or(0), &partial.error_message)
    }

    pub fn taken(rejected: u64, message: &str) -> Answer {
        Answer::Taken { rejected, message: one_line(message) }
    }
}

/// What somebody else says, fit to be said on: one line, of bounded length.
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
    fn what_a_back_end_says_is_one_line() {
        assert_eq!(one_line(" a\n\x1b[31mb\t c "), "a [31mb c");
        assert!(one_line(&"x".repeat(10_000)).len() <= 300);
        assert_eq!(Answer::from_protobuf(b"\xff\xff"), Answer::taken(0, ""));
        let rejects = [0x0a, 0x06, 0x08, 0x03, 0x12, 0x02, b'n', b'o'];
        assert_eq!(Answer::from_protobuf(&rejects), Answer::taken(3, "no"));
    }
}
