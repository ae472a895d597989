//! Names that others chose, made fit for a terminal and for a folder's name.

use std::ffi::OsStr;

/// Escapes the control characters, except line ends, of a message that contains foreign names, so that
/// no name can command a terminal.
pub fn text(text: &str) -> String {
    escaped(text, |letter| letter.is_control() && letter != '\n')
}

/// One name, on one line whatever is in it.
pub fn name(name: impl AsRef<OsStr>) -> String {
    escaped(&name.as_ref().to_string_lossy(), char::is_control)
}

/// A name for a file: control characters, and bytes that are no text, become underscores.
pub fn file_name(name: &OsStr) -> String {
    let unfit = |letter: char| letter.is_control() || letter == char::REPLACEMENT_CHARACTER;
    name.to_string_lossy().chars().map(|letter| if unfit(letter) { '_' } else { letter }).collect()
}

fn escaped(text: &str, must: impl Fn(char) -> bool) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        if must(letter) {
            safe.extend(letter.escape_default());
        } else {
            safe.push(letter);
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn names_keep_their_letters_and_lose_their_commands() {
        let hostile = OsStr::from_bytes(b"n\nl\x1b[31m\xc3\xa4\xff");
        assert_eq!(name(hostile), "n\\nl\\u{1b}[31m\u{e4}\u{fffd}");
        assert_eq!(file_name(hostile), "n_l_[31m\u{e4}_");
        assert_eq!(text("a\nb\r\u{9b}"), "a\nb\\r\\u{9b}");
    }
}
