//! Escaping: text from a traced program must not break a line-based format or a terminal.

use std::borrow::Cow;
use std::sync::Arc;

/// A frame of a folded stack: `;` separates frames, so it becomes `:`; control characters,
/// newlines among them, are written as `\n`, `\t` or `\u{1b}`. A space at either end would be
/// lost by readers that trim, and an empty frame would vanish, so both are made visible.
pub fn fold_safe(text: &str) -> Cow<'_, str> {
    if text.is_empty() {
        return Cow::Borrowed("(empty)");
    }
    match escaped(text, |c| c == ';') {
        Cow::Borrowed(same) => trimmed(same),
        Cow::Owned(changed) => Cow::Owned(trimmed(&changed).into_owned()),
    }
}

/// One line of text for a terminal or a report: control characters are written out.
pub fn line_safe(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// Bytes as text. Invalid UTF-8 is written as escapes, so that different names stay different.
pub fn readable(bytes: &[u8]) -> Arc<str> {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text += chunk.valid();
        chunk.invalid().iter().for_each(|byte| text += &format!("\\x{byte:02x}"));
    }
    text.into()
}

fn trimmed(text: &str) -> Cow<'_, str> {
    match text.trim() {
        "" => Cow::Borrowed("(blank)"),
        kept => Cow::Borrowed(kept),
    }
}

fn escaped(text: &str, separator: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(|c| separator(c) || needs_escape(c)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if separator(c) {
            out.push(':');
        } else if needs_escape(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Control characters, and the invisible ones that reorder or break a line.
fn needs_escape(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn separators_and_control_bytes_are_written_out() {
        assert_eq!(fold_safe("a;b\nc\u{1b}[31m"), r"a:b\nc\u{1b}[31m");
        assert_eq!(line_safe("a;b\tc"), r"a;b\tc");
        assert_eq!(fold_safe(""), "(empty)");
        assert_eq!(fold_safe("  "), "(blank)");
        assert_eq!(fold_safe(" python x "), "python x");
        assert!(matches!(fold_safe("python train.py"), Cow::Borrowed(_)));
    }

    proptest! {
        #[test]
        fn frame_is_one_printable_field(text in any::<String>()) {
            let frame = fold_safe(&text);
            prop_assert!(!frame.is_empty() && !frame.contains(';') && !frame.chars().any(char::is_control));
            prop_assert_eq!(frame.lines().count(), 1);
            prop_assert_eq!(frame.trim(), &*frame);
        }
    }
}
