//! Parses W3C trace context and baggage from environment variables.
//!
//! A malformed variable is ignored as a whole and reported; the process then still has spans, in another
//! trace.

use std::fmt;

use gputrace_wire::caller::hexadecimal;

/// The most members that tracestate may have, and the most bytes of it that are passed on.
const STATE_MEMBERS_MAX: usize = 32;
const STATE_MAX_BYTES: usize = 512;
/// The most members of baggage, by its standard.
const BAGGAGE_MEMBERS_MAX: usize = 180;

/// W3C's flag of a sampled trace.
pub const SAMPLED: u8 = 1;

/// The span of another tracer that a process was started in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceParent {
    pub trace_id: u128,
    pub span_id: u64,
    pub flags: u8,
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, self.flags)
    }
}

/// Why a variable is not used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Malformed {
    variable: &'static str,
    why: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not used: {}", self.variable, self.why)
    }
}

impl TraceParent {
    /// Parses `00-<32 hex>-<16 hex>-<2 hex>`. In a later version more fields may follow.
    pub fn parse(text: &str) -> Result<TraceParent, Malformed> {
        let wrong = |why| Malformed { variable: "TRACEPARENT", why };
        let shape = || wrong("it is not of the form 00-<trace id>-<span id>-<flags>");
        let bytes = text.trim_matches([' ', '\t']).as_bytes();
        let (first, rest) = bytes.split_at_checked(55).ok_or_else(shape)?;
        let mut fields = first.split(|byte| *byte == b'-');
        let mut field = |length| {
            let field = fields.next().filter(|field| field.len() == length);
            field.and_then(hexadecimal).ok_or_else(shape)
        };
        let (version, trace_id) = (field(2)?, field(32)?);
        let (span_id, flags) = (field(16)?, field(2)?);
        if version == 0xff {
            return Err(wrong("there is no version ff"));
        }
        if !rest.is_empty() && (version == 0 || rest.first() != Some(&b'-')) {
            return Err(shape());
        }
        let span_id = u64::try_from(span_id).unwrap_or(0);
        if trace_id == 0 || span_id == 0 {
            return Err(wrong("an id of zeroes is none"));
        }
        Ok(TraceParent { trace_id, span_id, flags: u8::try_from(flags).unwrap_or(0) })
    }
}

/// The tracestate to pass on: its members without blanks, as many as fit.
pub fn trace_state(text: &str) -> Result<String, Malformed> {
    let wrong = |why| Malformed { variable: "TRACESTATE", why };
    let mut kept = String::new();
    let mut keys: Vec<&str> = Vec::new();
    for member in text.split(',').map(|member| member.trim_matches([' ', '\t'])) {
        if member.is_empty() {
            continue;
        }
        let (key, value) = member.split_once('=').ok_or_else(|| wrong("a member of it has no value"))?;
        if !is_state_key(key) || !is_state_value(value) {
            return Err(wrong("a member of it has characters that it may not have"));
        }
        if keys.contains(&key) {
            return Err(wrong("a key is in it twice"));
        }
        keys.push(key);
        if keys.len() > STATE_MEMBERS_MAX {
            return Err(wrong("it has more than 32 members"));
        }
        if kept.len() + 1 + member.len() <= STATE_MAX_BYTES {
            if !kept.is_empty() {
                kept.push(',');
            }
            kept.push_str(member);
        }
    }
    Ok(kept)
}

fn is_state_key(key: &str) -> bool {
    let of = |part: &str, most: usize, digit_first: bool| {
        let begins = part
            .bytes()
            .next()
            .is_some_and(|first| first.is_ascii_lowercase() || digit_first && first.is_ascii_digit());
        let rest = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-' | b'*' | b'/')
        };
        begins && part.len() <= most && part.bytes().all(rest)
    };
    match key.split_once('@') {
        Some((tenant, system)) => of(tenant, 241, true) && of(system, 14, false),
        None => of(key, 256, false),
    }
}

fn is_state_value(value: &str) -> bool {
    (1..=256).contains(&value.len())
        && value.bytes().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b',' | b'='))
}

/// Parses `key=value,key=value;property`, percent-decoded, into (key, value). Properties are ignored.
pub fn baggage(text: &str) -> Result<Vec<(String, String)>, Malformed> {
    pairs("BAGGAGE", text)
}

/// Parses OTEL_RESOURCE_ATTRIBUTES, which has the form of baggage.
pub fn resource_attributes(text: &str) -> Result<Vec<(String, String)>, Malformed> {
    pairs("OTEL_RESOURCE_ATTRIBUTES", text)
}

fn pairs(variable: &'static str, text: &str) -> Result<Vec<(String, String)>, Malformed> {
    let wrong = |why| Malformed { variable, why };
    let mut found: Vec<(String, String)> = Vec::new();
    for member in text.split(',').filter(|member| !member.trim().is_empty()) {
        let pair = member.split(';').next().unwrap_or_default();
        let (key, value) = pair.split_once('=').ok_or_else(|| wrong("a member of it has no value"))?;
        let key = key.trim();
        let is_token = |byte: u8| byte.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]{}".contains(&byte);
        if key.is_empty() || !key.bytes().all(is_token) {
            return Err(wrong("a key in it has characters that it may not have"));
        }
        let value = percent_decoded(value.trim()).ok_or_else(|| wrong("a value in it is not text"))?;
        match found.iter_mut().find(|(known, _)| known == key) {
            Some((_, known)) => *known = value,
            None => found.push((key.to_owned(), value)),
        }
        if found.len() > BAGGAGE_MEMBERS_MAX {
            return Err(wrong("it has more than 180 members"));
        }
    }
    Ok(found)
}

/// A `%` that no two digits follow is kept as it is.
fn percent_decoded(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.split_at_checked(2).filter(|_| *first == b'%');
        let code = digits.and_then(|(digits, _)| hexadecimal(&digits.to_ascii_lowercase()));
        match code.and_then(|code| u8::try_from(code).ok()).zip(digits) {
            Some((byte, (_, behind))) => {
                decoded.push(byte);
                rest = behind;
            }
            None => {
                decoded.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn traceparent_is_parsed() {
        let parent = TraceParent::parse(GOOD).unwrap();
        assert_eq!(parent.trace_id, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        assert_eq!((parent.span_id, parent.flags), (0xb7ad_6b71_6920_3331, 1));
        assert_eq!(parent.to_string(), GOOD);
        assert_eq!(TraceParent::parse(&format!(" {GOOD}\t")), Ok(parent));
        let later = GOOD.replacen("00", "cc", 1);
        assert_eq!(TraceParent::parse(&later), Ok(parent));
        assert_eq!(TraceParent::parse(&format!("{later}-what-comes-later")), Ok(parent));
    }

    #[test]
    fn malformed_traceparent_is_rejected() {
        let mut bad = vec![
            String::new(),
            "00".to_owned(),
            GOOD.replacen("00", "ff", 1),
            GOOD.to_ascii_uppercase(),
            format!("{GOOD}-more"),
            format!("{GOOD}x"),
            format!("{}more", GOOD.replacen("00", "cc", 1)),
            GOOD.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            GOOD.replace("b7ad6b7169203331", &"0".repeat(16)),
            GOOD.replace('-', "_"),
            GOOD.replace("0af", "0ag"),
            GOOD.replace("-01", "-é"),
            format!("00-{GOOD}"),
        ];
        bad.extend((0..GOOD.len()).map(|length| GOOD[..length].to_owned()));
        for text in bad {
            assert!(TraceParent::parse(&text).is_err(), "{text}");
        }
        let error = TraceParent::parse("x").unwrap_err().to_string();
        assert_eq!(error, "TRACEPARENT is not used: it is not of the form 00-<trace id>-<span id>-<flags>");
    }

    #[test]
    fn tracestate_is_passed_on_or_left_out_whole() {
        assert_eq!(
            trace_state("rojo=00f067aa0ba902b7, congo=t61rcWkgMzE,,").unwrap(),
            "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"
        );
        assert_eq!(trace_state("4f@vendor=x").unwrap(), "4f@vendor=x");
        for bad in ["x", "X=1", "a=1,a=2", "a=", "a=b=c", "1a=2", "a=\u{e9}", "@v=1"] {
            assert!(trace_state(bad).is_err(), "{bad}");
        }
        let many: Vec<String> = (0..33).map(|at| format!("k{at}=v")).collect();
        assert!(trace_state(&many.join(",")).is_err());
        let long: Vec<String> = (0..5).map(|at| format!("k{at}={}", "v".repeat(200))).collect();
        assert_eq!(trace_state(&long.join(",")).unwrap(), long[..2].join(","));
    }

    #[test]
    fn baggage_is_pairs_of_text() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let read = baggage("user=J%C3%BCrgen;secret , a = b%2Cc ,a=d,odd=50%").unwrap();
        assert_eq!(read, [pair("user", "Jürgen"), pair("a", "d"), pair("odd", "50%")]);
        for bad in ["x", "=1", "a b=1", "a=%ff"] {
            assert!(baggage(bad).is_err(), "{bad}");
        }
        assert_eq!(
            resource_attributes("x").unwrap_err().to_string(),
            "OTEL_RESOURCE_ATTRIBUTES is not used: a member of it has no value"
        );
    }
}
