//! Messages go to stderr. A closed stderr is no error: `eprintln!` would panic there.

use std::fmt::Arguments;
use std::io::{Write, stderr};

use crate::cli::printable;

/// One line, with its line end; names in it cannot command the terminal.
pub fn say(line: Arguments<'_>) {
    let _ = writeln!(stderr(), "{}", printable::text(&line.to_string()));
}

/// A text that has its line ends.
pub fn say_text(text: &str) {
    let _ = stderr().write_all(text.as_bytes());
}
