//! A span that a range's name carries: `request traceparent=00-<trace id>-<span id>-<flags>`.
//!
//! Anywhere in the name, with or without `traceparent=` before it. The name is told without it: a name for each
//! request would fill what there is for names, and say nothing in a flamegraph.

use gputrace_producer::ranges::NAME_MAX;
use gputrace_wire::caller::Caller;

/// The length of a traceparent, and those of its fields.
const LENGTH: usize = 55;
const VERSION: usize = 2;
const TRACE: usize = 32;
const SPAN: usize = 16;
const FLAGS: usize = 2;
const KEY: &[u8] = b"traceparent";

/// Does something with a name and the span that it carries, if it does.
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
    let before = without_key(name.get(..at).unwrap_or_default());
    let behind = name.get(at + LENGTH..).unwrap_or_default();
    let behind = if before.is_empty() { trimmed_start(behind) } else { behind };
    let mut room = [0u8; NAME_MAX];
    let mut used = 0;
    for part in [before, behind] {
        if let Some(place) = room.get_mut(used..used + part.len()) {
            place.copy_from_slice(part);
            used += part.len();
        }
    }
    match room.get(..used).unwrap_or_default() {
        // A name that is nothing else says what it is.
        b"" => act(KEY, &caller),
        rest => act(rest, &caller),
    }
}

/// The first traceparent of a text, and where it begins.
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
    // Whose the span is, the text does not say.
    Some(Caller { trace, span: span as u64, flags: flags as u8, remote: 1 })
}

/// Lower case only, as the standard has it.
fn hexadecimal(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0u128, |number, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(value))
    })
}

/// What stands before the traceparent, without the word that names it.
fn without_key(before: &[u8]) -> &[u8] {
    let unquoted = before.strip_suffix(b"\"").or_else(|| before.strip_suffix(b"'")).unwrap_or(before);
    let without = [&b"="[..], b":", b"= ", b": "].iter().find_map(|sign| {
        let word = unquoted.strip_suffix(*sign)?;
        let at = word.len().checked_sub(KEY.len())?;
        word.get(at..)?.eq_ignore_ascii_case(KEY).then(|| word.get(..at).unwrap_or_default())
    });
    let rest = without.unwrap_or(before);
    let end = rest.iter().rposition(|byte| !is_separator(*byte)).map_or(0, |at| at + 1);
    rest.get(..end).unwrap_or_default()
}

fn trimmed_start(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|byte| !is_separator(*byte)).unwrap_or(text.len());
    text.get(start..).unwrap_or_default()
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
    fn a_name_carries_a_span_anywhere_and_is_told_without_it() {
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
    fn what_is_malformed_is_a_part_of_the_name() {
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
    fn the_longest_name_is_taken_as_it_is() {
        let name = format!("{}{GOOD}", " ".repeat(NAME_MAX - LENGTH));
        assert_eq!(of(&name).0, "traceparent");
        let name = format!("{GOOD} {}", "x".repeat(NAME_MAX - LENGTH - 1));
        assert_eq!(of(&name).0, "x".repeat(NAME_MAX - LENGTH - 1));
    }
}
