//! A value as one line of JSON without control characters, which a terminal might obey.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// The line, with its end. JSON allows the control characters U+007F to U+009F in a text, and some terminals
/// obey them. They are written as escapes, so that a reader gets the same value.
pub fn json_line(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut line = Vec::with_capacity(128);
    value.serialize(&mut Serializer::with_formatter(&mut line, EscapeControls))?;
    line.push(b'\n');
    Ok(line)
}

struct EscapeControls;

impl Formatter for EscapeControls {
    fn write_string_fragment<W: Write + ?Sized>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((at, control)) = rest.char_indices().find(|(_, letter)| letter.is_control()) {
            writer.write_all(&rest.as_bytes()[..at])?;
            write!(writer, "\\u{:04x}", u32::from(control))?;
            rest = &rest[at + control.len_utf8()..];
        }
        writer.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escapes_and_values_stay() {
        for text in ["", "plain é", "\u{7f}", "a\u{7f}b\u{9b}31m\"\\\n\u{1}\u{7f}"] {
            let line = json_line(&[text]).unwrap();
            let letters = String::from_utf8(line.clone()).unwrap();
            assert!(
                letters.ends_with('\n') && !letters.trim_end().chars().any(char::is_control),
                "{letters:?}"
            );
            assert_eq!(serde_json::from_slice::<[String; 1]>(&line).unwrap(), [text]);
        }
        assert_eq!(json_line(&"\u{7f}").unwrap(), b"\"\\u007f\"\n");
    }
}
