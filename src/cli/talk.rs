//! Talk goes to stderr. Nobody listening is no error: `eprintln!` would panic there.

use std::fmt::Arguments;
use std::io::{Write, stderr};

/// One line, with its line end.
pub fn say(line: Arguments<'_>) {
    let _ = writeln!(stderr(), "{line}");
}

/// A text that has its line ends.
pub fn say_text(text: &str) {
    let _ = stderr().write_all(text.as_bytes());
}
