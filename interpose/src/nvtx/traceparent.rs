//! Finds a span context in a range's name: `request traceparent=00-<trace id>-<span id>-<flags>`.
//!
//! It may be anywhere in the name, with or without `traceparent=` before it. The recorded name omits it: a
//! distinct name for each request would fill the table of names and be useless in a flamegraph.

use gputrace_callstack::ranges::NAME_MAX;
use gputrace_wire::caller::{Caller, hexadecimal};

/// The length of a traceparent, and those of its fields.
const LENGTH: usize = 55;
const VERSION: usize = 2;
const TRACE: usize = 32;
const SPAN: usize = 16;
const FLAGS: usize = 2;
const KEY: &[u8] = b"traceparent";

/// Calls `act` with a name without its traceparent, and the span context, if the name has one.
#[inline(always)]
pub fn taken_out<R>(name: &[u8], act: impl FnOnce(&[u8], &Caller) -> R) -> R {
    // Most names are shorter.
    if name.len() < LENGTH {
        return act(name, &Caller::NOBODY);
    }
    taken_out_of_long(name, act)
}

#[cold]
#[inline(never)]
fn taken_out_of_long<R>(name: &[u8], act: impl FnOnce(&[u8], &Caller) -> R) -> R {
    let Some((at, caller)) = find(name) else { return act(name, &Caller::NOBODY) };
    let (before, behind) =
        without_frame(name.get(..at).unwrap_or_default(), name.get(at + LENGTH..).unwrap_or_default());
    let mut buffer = [0u8; NAME_MAX];
    let mut used = 0;
    for part in [before, behind] {
        if let Some(target) = buffer.get_mut(used..used + part.len()) {
            target.copy_from_slice(part);
            used += part.len();
        }
    }
    match buffer.get(..used).unwrap_or_default() {
        // A name that consists only of a traceparent is recorded by the key.
        b"" => act(KEY, &caller),
        rest => act(rest, &caller),
    }
}

/// The first traceparent in a text, and where it begins.
fn find(text: &[u8]) -> Option<(usize, Caller)> {
    let mut from = VERSION;
    loop {
        let rest = text.get(from..)?;
        // SAFETY: the pointer and the length are of one slice.
        let found = unsafe { libc::memchr(rest.as_ptr().cast(), b'-'.into(), rest.len()) };
        if found.is_null() {
            return None;
        }
        let dash = from + (found.addr() - rest.as_ptr().addr());
        let at = dash - VERSION;
        if let Some(caller) = text.get(at..at + LENGTH).and_then(parse)
            && !text.get(..at).and_then(|before| before.last()).is_some_and(u8::is_ascii_alphanumeric)
            && !text.get(at + LENGTH).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
        {
            return Some((at, caller));
        }
        from = dash + 1;
    }
}

fn parse(text: &[u8]) -> Option<Caller> {
    let mut rest = text;
    let mut field = |length: usize| {
        let (digits, behind) = rest.split_at_checked(length)?;
        rest = match behind.split_first() {
            Some((b'-', behind)) => behind,
            None => behind,
            _ => return None,
        };
        hexadecimal(digits)
    };
    let (version, trace) = (field(VERSION)?, field(TRACE)?);
    let (span, flags) = (field(SPAN)?, field(FLAGS)?);
    if version == 0xff || trace == 0 || span == 0 {
        return None;
    }
    let trace = [trace as u64, (trace >> 64) as u64];
    // The text does not say which process made the span, so it counts as remote.
    Some(Caller { trace, span: span as u64, flags: flags as u8, remote: 1 })
}

/// The text around the traceparent, without its syntax: the key that names it, quotes and brackets that
/// hold nothing else, and the separators before it.
fn without_frame<'n>(before: &'n [u8], behind: &'n [u8]) -> (&'n [u8], &'n [u8]) {
    let quoted = before.last().is_some_and(|byte| is_quote(*byte));
    let (before, behind) = without_pair(before, behind).filter(|_| quoted).unwrap_or((before, behind));
    let (mut before, mut behind) = (without_key(before), behind);
    loop {
        if let Some(outside) = without_pair(before, behind) {
            (before, behind) = outside;
            continue;
        }
        let length = before.len() + behind.len();
        before = trimmed_end(before);
        if is_beginning(before) {
            behind = trimmed_start(behind);
        }
        if before.len() + behind.len() == length {
            return (before, behind);
        }
    }
}

/// Removes a quote or bracket at the end of one part and its partner at the beginning of the other.
fn without_pair<'n>(before: &'n [u8], behind: &'n [u8]) -> Option<(&'n [u8], &'n [u8])> {
    let ((opening, before), (closing, behind)) = (before.split_last()?, behind.split_first()?);
    let partner = match opening {
        b'(' => b')',
        b'[' => b']',
        b'{' => b'}',
        b'<' => b'>',
        quote if is_quote(*quote) => *quote,
        _ => return None,
    };
    (*closing == partner).then_some((before, behind))
}

/// Whether the next element is the first of a list: a separator before it would be superfluous.
fn is_beginning(before: &[u8]) -> bool {
    match before.last() {
        None | Some(b'(' | b'[' | b'{' | b'<') => true,
        Some(quote) if is_quote(*quote) => before.iter().filter(|byte| *byte == quote).count() % 2 == 1,
        Some(_) => false,
    }
}

/// The text before the traceparent, without the key, which may have quotes of its own.
fn without_key(before: &[u8]) -> &[u8] {
    let key_and_sign = before.strip_suffix(b"\"").or_else(|| before.strip_suffix(b"'")).unwrap_or(before);
    let signed = key_and_sign.trim_ascii_end();
    let Some(key) = signed.strip_suffix(b"=").or_else(|| signed.strip_suffix(b":")) else { return before };
    let key = key.trim_ascii_end();
    let (word, quote) = match key.split_last() {
        Some((quote, word)) if is_quote(*quote) => (word, Some(quote)),
        _ => (key, None),
    };
    let Some((rest, word)) = word.len().checked_sub(KEY.len()).map(|at| word.split_at(at)) else {
        return before;
    };
    if !word.eq_ignore_ascii_case(KEY) {
        return before;
    }
    match (quote, rest.split_last()) {
        (Some(closing), Some((opening, outside))) if opening == closing => outside,
        _ => rest,
    }
}

fn trimmed_end(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| !is_separator(*byte)).map_or(0, |at| at + 1);
    text.get(..end).unwrap_or_default()
}

fn trimmed_start(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|byte| !is_separator(*byte)).unwrap_or(text.len());
    text.get(start..).unwrap_or_default()
}

fn is_quote(byte: u8) -> bool {
    matches!(byte, b'"' | b'\'')
}

fn is_separator(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b',' | b';' | b'|')
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn of(name: &str) -> (String, Caller) {
        taken_out(name.as_bytes(), |rest, caller| (String::from_utf8(rest.to_vec()).unwrap(), *caller))
    }

    #[test]
    fn traceparent_anywhere_is_found_and_left_out_of_the_name() {
        let caller = Caller {
            trace: [0x8448_eb21_1c80_319c, 0x0af7_6519_16cd_43dd],
            span: 0xb7ad_6b71_6920_3331,
            flags: 1,
            remote: 1,
        };
        for (name, rest) in [
            (GOOD.to_owned(), "traceparent"),
            (format!("traceparent={GOOD}"), "traceparent"),
            (format!("request traceparent={GOOD}"), "request"),
            (format!("request, TraceParent: {GOOD}"), "request"),
            (format!("request {GOOD}; user=7"), "request; user=7"),
            (format!("{GOOD} request"), "request"),
            (format!("a-b-c {GOOD}"), "a-b-c"),
            (format!("request traceparent=\"{GOOD}"), "request"),
            (format!("cc{} x", &GOOD[2..]), "x"),
        ] {
            assert_eq!(of(&name), (rest.to_owned(), caller), "{name}");
        }
        assert_eq!(of(&GOOD.replace("-01", "-00")).1.flags, 0);
    }

    #[test]
    fn quotes_and_brackets_around_a_traceparent_are_removed() {
        for (name, rest) in [
            ("request traceparent=\"{}\"", "request"),
            ("request traceparent='{}' user=7", "request user=7"),
            ("request \"{}\"", "request"),
            ("it's '{}'", "it's"),
            ("request (traceparent={})", "request"),
            ("request ( {} )", "request"),
            ("request <{}>", "request"),
            ("infer [{}] bs=4", "infer bs=4"),
            ("infer [traceparent = {}, user=7] bs=4", "infer [user=7] bs=4"),
            ("[{}] infer", "infer"),
            ("f(g({}))", "f(g)"),
            ("{\"traceparent\": \"{}\"}", "traceparent"),
            ("{\"traceparent\": \"{}\", \"user\": 7}", "{\"user\": 7}"),
            ("{\"user\": 7, \"traceparent\":\"{}\"}", "{\"user\": 7}"),
            ("{\"a\": 1, 'traceparent': '{}', \"b\": 2}", "{\"a\": 1, \"b\": 2}"),
            ("get -H \"traceparent: {}\" /x", "get -H /x"),
            ("\"traceparent={}, user=7\"", "\"user=7\""),
            // Quotes that hold something else stay.
            ("say \"hello\" {} \"x\"", "say \"hello\" \"x\""),
            ("request ({} x)", "request (x)"),
            ("request [{})", "request [)"),
        ] {
            assert_eq!(of(&name.replace("{}", GOOD)).0, rest, "{name}");
        }
    }

    #[test]
    fn name_without_a_traceparent_is_never_changed() {
        let long = "x".repeat(LENGTH);
        for name in [
            "{} ()",
            "{} []",
            "[] {}",
            "{} traceparent=\"\"",
            "{} (traceparent=)",
            "{\"traceparent\": \"{}\"}",
            " {} ",
            "{}, ;",
            "\"{}\"",
            "traceparent={}",
            "(traceparent: 00-{}-01)",
        ] {
            let name = name.replace("{}", &long);
            assert_eq!(of(&name), (name.clone(), Caller::NOBODY));
        }
    }

    #[test]
    fn malformed_traceparent_is_a_part_of_the_name() {
        for name in [
            String::new(),
            "step 17".to_owned(),
            "-".repeat(200),
            "0".repeat(55),
            GOOD.to_ascii_uppercase(),
            format!("x{GOOD}"),
            format!("{GOOD}0"),
            format!("{GOOD}-more"),
            GOOD.replacen("00", "ff", 1),
            GOOD.replace("b7ad6b7169203331", &"0".repeat(16)),
            GOOD.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            GOOD[..54].to_owned() + " and more of it",
            "a kernel's long name: void gemm_kernel<float, 128, 128, 8>(float const*, ...)".to_owned(),
        ] {
            assert_eq!(of(&name), (name.clone(), Caller::NOBODY));
        }
    }

    #[test]
    fn longest_name_is_taken_as_it_is() {
        let name = format!("{}{GOOD}", " ".repeat(NAME_MAX - LENGTH));
        assert_eq!(of(&name).0, "traceparent");
        let name = format!("{GOOD} {}", "x".repeat(NAME_MAX - LENGTH - 1));
        assert_eq!(of(&name).0, "x".repeat(NAME_MAX - LENGTH - 1));
    }
}
