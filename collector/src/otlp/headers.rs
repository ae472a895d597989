//! Parses OTEL_EXPORTER_OTLP_HEADERS: `name=value,name=value` with percent-encoded values. Values are
//! secrets, so no message contains one.

use hyper::header::{HeaderName, HeaderValue};

/// Headers that the transport sets itself.
const OURS: [&str; 9] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "grpc-encoding",
    "host",
    "te",
    "transfer-encoding",
    "upgrade",
];

pub fn parse(text: &str) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let members = text.split(',').map(str::trim).enumerate().filter(|(_, member)| !member.is_empty());
    members
        .map(|(index, member)| {
            let number = index + 1;
            let (name, value) = member
                .split_once('=')
                .ok_or_else(|| format!("its member {number} is not of the form name=value"))?;
            let name = name.trim();
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| format!("the name of its member {number} is none that a header may have"))?;
            if OURS.contains(&name.as_str()) || name.as_str().starts_with("grpc-") {
                return Err(format!("{name} is set by gputrace itself"));
            }
            let value = decode(value.trim()).ok_or_else(|| {
                format!("the value of {name} has a % without two hexadecimal digits behind it")
            })?;
            let mut value = HeaderValue::from_bytes(&value)
                .map_err(|_| format!("the value of {name} has a byte that no header may have"))?;
            value.set_sensitive(true);
            Ok((name, value))
        })
        .collect()
}

/// Percent-decodes a text; `None` if no two digits follow a percent sign.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let value = digit()? * 16 + digit()?;
        decoded.push(u8::try_from(value).ok()?);
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_decoded() {
        let headers = parse(" Authorization=Bearer%20a%3Db=, x-scope = t\u{e9} ,,").unwrap();
        let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        assert_eq!(headers, [("authorization", &b"Bearer a=b="[..]), ("x-scope", "t\u{e9}".as_bytes())]);
    }

    #[test]
    fn malformed_headers_are_reported_without_their_values() {
        for (text, why) in [
            ("secret", "its member 1 is not of the form name=value"),
            ("a=1,b c=secret", "the name of its member 2 is none that a header may have"),
            ("a=%2secret", "the value of a has a % without two hexadecimal digits behind it"),
            ("a=%0asecret", "the value of a has a byte that no header may have"),
            ("content-type=secret", "content-type is set by gputrace itself"),
            ("grpc-timeout=secret", "grpc-timeout is set by gputrace itself"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error, why);
            assert!(!error.contains("secret"));
        }
    }
}
