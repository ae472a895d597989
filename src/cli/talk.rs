//! Messages go to stderr. A closed stderr is no error: `eprintln!` would panic there.

use std::fmt::Arguments;
use std::io::{Write, stderr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cli::printable;

/// The messages that wait until a screen is gone; `None` while there is no screen.
static HELD: Mutex<Option<Vec<String>>> = Mutex::new(None);

/// One line, with its line end; names in it cannot command the terminal.
pub fn say(line: Arguments<'_>) {
    let line = printable::text(&line.to_string()).to_string();
    match &mut *held() {
        Some(held) => held.push(line),
        None => drop(writeln!(stderr(), "{line}")),
    }
}

/// A text that has its line ends.
pub fn say_text(text: &str) {
    let _ = stderr().write_all(text.as_bytes());
}

/// Holds messages back, since a screen is where they would go. They are written when this is dropped.
#[derive(Debug)]
pub struct Hold(());

pub fn hold() -> Hold {
    *held() = Some(Vec::new());
    Hold(())
}

/// What is held back, for the screen to show.
pub fn held_back() -> Vec<String> {
    held().clone().unwrap_or_default()
}

impl Drop for Hold {
    fn drop(&mut self) {
        for line in held().take().into_iter().flatten() {
            let _ = writeln!(stderr(), "{line}");
        }
    }
}

fn held() -> MutexGuard<'static, Option<Vec<String>>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}
