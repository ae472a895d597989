//! Masks secrets in command lines, or keeps only the program's name.
//!
//! People pass passwords and keys as arguments, and send traces to others. A masked text never enters the
//! stream, so it is in no trace and no report. Masking goes by names and is no guarantee: a secret in
//! `--thing` is not found. `--redact` keeps no arguments at all.

/// Replaces a secret.
pub const MASK: &str = "[redacted]";

/// The command line with secrets masked, as far as their names show them.
pub fn masked(arguments: &[String]) -> Vec<String> {
    let mut next_is_secret = false;
    arguments
        .iter()
        .map(|argument| {
            if std::mem::take(&mut next_is_secret) {
                return MASK.to_owned();
            }
            next_is_secret = takes_secret(argument);
            mask_text(argument)
        })
        .collect()
}

/// The program, and a mask if it had arguments. Of the program only the first word is kept, since a process
/// that sets its title has all arguments in the first one.
pub fn redacted(arguments: &[String]) -> Vec<String> {
    let Some((first, rest)) = arguments.split_first() else { return Vec::new() };
    let title = first.trim_start();
    let program = title.split(char::is_whitespace).next().unwrap_or("");
    let mut kept = vec![program.to_owned()];
    if program.len() < title.len() || !rest.is_empty() {
        kept.push(MASK.to_owned());
    }
    kept
}

/// [`masked`] for arguments separated by NUL, as in `/proc/PID/cmdline`.
pub fn masked_bytes(text: &[u8]) -> Vec<u8> {
    let arguments: Vec<String> =
        text.split(|byte| *byte == 0).map(|part| String::from_utf8_lossy(part).into_owned()).collect();
    let after = masked(&arguments);
    // Invalid UTF-8 is kept unless something was masked.
    if after == arguments { text.to_vec() } else { after.join("\0").into_bytes() }
}

/// Masks a list of `name=value` separated by commas, as in OpenTelemetry's variables.
pub fn masked_list(text: &[u8]) -> Vec<u8> {
    let parts: Vec<_> = text.split(|byte| *byte == b',').map(masked_bytes).collect();
    parts.join(&b',')
}

/// Whether the argument is an option without its value and has the name of a secret.
fn takes_secret(argument: &str) -> bool {
    argument.strip_prefix('-').is_some_and(|name| {
        let name = name.trim_start_matches('-');
        name.bytes().all(is_name) && is_secret_name(name)
    })
}

/// Masks the user in every URL, and every value with the name of a secret:
/// `--password=x`, `API_KEY=x`, `?token=x&…`, `{"secret": "x"}`, `Authorization: Bearer x`.
fn mask_text(text: &str) -> String {
    let text = mask_users(&mask_next_words(text));
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find(['=', ':']) {
        let (before, value) = rest.split_at(at + 1);
        out.push_str(before);
        rest = value;
        let name = before.get(..at).unwrap_or("").trim_end_matches([' ', '"', '\'']);
        let name = name.rsplit(|c: char| !c.is_ascii() || !is_name(c as u8)).next().unwrap_or("");
        if !is_secret_name(name) || value.starts_with("//") {
            continue;
        }
        let inner = value.trim_start_matches([' ', '"', '\'']);
        let before = value.get(..value.len() - inner.len()).unwrap_or("");
        out.push_str(before);
        // A quoted value ends at the next quote. An authorization has two words: the scheme and the secret.
        let quote = before.chars().next_back();
        let ends: &[char] = match quote {
            Some('"') => &['"'],
            Some('\'') => &['\''],
            _ if is_authorization(name) => &['"', '\'', '&', '\n'],
            _ => &['"', '\'', '&', ',', ';', ' ', '}', ')', '\n'],
        };
        rest = mask_first(inner, inner.find(ends).unwrap_or(inner.len()), &mut out);
    }
    out.push_str(rest);
    out
}

/// Writes a mask for the first bytes of a text, if there are any, and returns the rest.
fn mask_first<'a>(text: &'a str, bytes: usize, out: &mut String) -> &'a str {
    if bytes > 0 {
        out.push_str(MASK);
    }
    text.get(bytes..).unwrap_or("")
}

/// Masks the word after `--password`. A process title and a shell's command have a whole command line in one
/// argument.
fn mask_next_words(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((word, after)) = rest.split_once(' ') {
        out.push_str(word);
        out.push(' ');
        rest = after;
        if !takes_secret(word.trim_start_matches(['"', '\''])) {
            continue;
        }
        let value = rest.trim_start_matches(' ');
        out.push_str(rest.get(..rest.len() - value.len()).unwrap_or(""));
        let length = match value.chars().next() {
            Some(quote @ ('"' | '\'')) => {
                value.get(1..).and_then(|inner| inner.find(quote)).map_or(value.len(), |end| end + 2)
            }
            _ => value.find([' ', '"', '\'', ';', ')', '\n']).unwrap_or(value.len()),
        };
        rest = mask_first(value, length, &mut out);
    }
    out.push_str(rest);
    out
}

/// `https://user:password@host` without the user.
fn mask_users(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let host_ends = after.find(['/', '?', '#', ' ', '"', '\'', ',']).unwrap_or(after.len());
        // The last @ is the one before the host: a password may have others.
        match after.get(..host_ends).and_then(|authority| authority.rfind('@')) {
            Some(user_ends) => {
                out.push_str(MASK);
                rest = after.get(user_ends..).unwrap_or("");
            }
            None => rest = after,
        }
    }
    out.push_str(rest);
    out
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

fn is_authorization(name: &str) -> bool {
    name.eq_ignore_ascii_case("authorization")
}

/// Whether the last words of a name are those of a secret: in `--api-key` and `HF_TOKEN` they are, in
/// `--tokenizer`, `--max-tokens` and `--eos_token` they are not.
fn is_secret_name(name: &str) -> bool {
    let words = words(name);
    let word = |back: usize| words.iter().rev().nth(back).map_or("", String::as_str);
    /// With these words before it, `token` means a token of a language model.
    const OF_TEXT: [&str; 16] = [
        "pad", "bos", "eos", "unk", "sep", "cls", "mask", "stop", "start", "end", "special", "image", "per",
        "next", "last", "first",
    ];
    const OF_LOCKS: [&str; 10] = [
        "api",
        "access",
        "secret",
        "private",
        "encryption",
        "auth",
        "signing",
        "account",
        "service",
        "license",
    ];
    match word(0) {
        "password" | "passwd" | "passphrase" | "pwd" | "secret" | "apikey" | "accesskey" | "secretkey"
        | "privatekey" | "authtoken" | "accesstoken" | "credential" | "credentials" | "authorization"
        | "signature" | "cookie" => true,
        "token" => !OF_TEXT.contains(&word(1)),
        "key" => OF_LOCKS.contains(&word(1)) || word(1) == "id" && word(2) == "access",
        _ => false,
    }
}

/// The words of a name in lower case: `hfToken`, `hf_token`, `HF-TOKEN` have the same two.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        let breaks = matches!(c, '-' | '_' | '.') || was_lower && c.is_ascii_uppercase();
        if breaks {
            words.push(String::new());
        }
        if c.is_ascii_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.push(c.to_ascii_lowercase());
        }
        was_lower = c.is_ascii_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str) -> Vec<String> {
        line.split('|').map(str::to_owned).collect()
    }

    #[test]
    fn values_with_names_of_secrets_are_masked() {
        for (line, after) in [
            ("prog|--password=hunter2", "prog|--password=[redacted]"),
            ("prog|--token|abc|x", "prog|--token|[redacted]|x"),
            ("prog|--api-key|-abc|x", "prog|--api-key|[redacted]|x"),
            ("prog|-hfToken|abc", "prog|-hfToken|[redacted]"),
            ("env|HF_TOKEN=abc|python3", "env|HF_TOKEN=[redacted]|python3"),
            ("prog|model.hub.auth_token=abc", "prog|model.hub.auth_token=[redacted]"),
            ("prog|https://me:p@ss@host/a?b=c", "prog|https://[redacted]@host/a?b=c"),
            ("prog|postgres://me@host", "prog|postgres://[redacted]@host"),
            ("prog|http://h/?api_key=1&b=2", "prog|http://h/?api_key=[redacted]&b=2"),
            ("prog|{\"secret\": \"x y\", \"b\": 1}", "prog|{\"secret\": \"[redacted]\", \"b\": 1}"),
            ("curl|-H|Authorization: Bearer abc", "curl|-H|Authorization: [redacted]"),
            ("sh|-c|PASSWORD='a' run --token=b c", "sh|-c|PASSWORD='[redacted]' run --token=[redacted] c"),
            ("prog|AWS_SECRET_ACCESS_KEY=a", "prog|AWS_SECRET_ACCESS_KEY=[redacted]"),
            // A process title, and a shell's command.
            ("trainer --password hunter2 user@host", "trainer --password [redacted] user@host"),
            ("sh|-c|run --token  'a b' x; y", "sh|-c|run --token  [redacted] x; y"),
            ("sh|-c|exec run --token abc; y", "sh|-c|exec run --token [redacted]; y"),
        ] {
            assert_eq!(masked(&split(line)), split(after), "{line}");
        }
    }

    #[test]
    fn values_with_other_names_are_not_masked() {
        for line in [
            "/usr/bin/python3|train.py|--lr|1e-3|--max-new-tokens=128|--tokenizer|bert|--eos_token|</s>",
            "prog|--password-file|/etc/secret|--keys=3|--monkey|x",
            "prog|https://host:8080/a@b|--url=http://host/path?x=1",
            "prog|a=b:c=d|--key|value|--token=",
            "torchrun|--rdzv-endpoint=localhost:29500|-m|pkg.mod",
        ] {
            assert_eq!(masked(&split(line)), split(line), "{line}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_stay_bytes() {
        assert_eq!(masked_bytes(b"prog\0\xff\xfe\0"), b"prog\0\xff\xfe\0");
        assert_eq!(masked_bytes(b"prog\0--password\0x\0"), b"prog\0--password\0[redacted]\0");
        assert_eq!(masked_bytes(b""), b"");
    }

    #[test]
    fn redacted_leaves_the_program() {
        assert_eq!(redacted(&split("/bin/prog|a|b")), split("/bin/prog|[redacted]"));
        assert_eq!(redacted(&split("/bin/prog")), split("/bin/prog"));
        assert_eq!(redacted(&[]), Vec::<String>::new());
        // A process title.
        assert_eq!(redacted(&split("trainer --password hunter2")), split("trainer|[redacted]"));
        assert_eq!(redacted(&split(" a\tb|c")), split("a|[redacted]"));
    }
}
