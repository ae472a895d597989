//! Folded lines: `process;thread;call;kernel 2300`, weights in whole microseconds, or bytes.

use std::borrow::Cow;

use crate::flame::{Flame, FlameLine};

impl Flame {
    /// Lines with their weights in µs, by frames. The rounding error carries over from line to line, so that
    /// each weight is within 1 µs of the true one, and so is the sum. Lines with weight 0 are left out.
    pub fn weighted(&self) -> impl Iterator<Item = (&FlameLine, u64)> {
        let mut exact_ns: u128 = 0;
        let mut given_us: u128 = 0;
        self.lines.iter().filter_map(move |line| {
            exact_ns += u128::from(line.ns);
            let us = (exact_ns + 500) / 1_000 - given_us;
            given_us += us;
            Some((line, u64::try_from(us).unwrap_or(u64::MAX))).filter(|(_, us)| *us > 0)
        })
    }

    /// The folded text, each line ending in a newline.
    pub fn folded(&self) -> String {
        let mut text = String::new();
        if self.is_of_memory() {
            for line in &self.lines {
                text += &format!("{} {}\n", folded_stack(line), line.ns);
            }
            return text;
        }
        for (line, us) in self.weighted() {
            text += &folded_stack(line);
            text += &format!(" {us}\n");
        }
        text
    }
}

pub(super) fn folded_stack(line: &FlameLine) -> String {
    let mut text = String::new();
    for (index, frame) in line.frames.iter().enumerate() {
        if index > 0 {
            text.push(';');
        }
        let last = index + 1 == line.frames.len();
        text += &if last { without_second_weight(&frame.text) } else { Cow::Borrowed(&*frame.text) };
    }
    text
}

/// Joins a number at the end of the last frame to the word before it. Readers of folded lines take two
/// numbers at the end of a line for the weights of two profiles.
fn without_second_weight(text: &str) -> Cow<'_, str> {
    match text.rsplit_once(' ') {
        Some((before, word)) if word.bytes().all(|b| b.is_ascii_digit() || b == b'.') => {
            Cow::Owned(format!("{before}_{word}"))
        }
        _ => Cow::Borrowed(text),
    }
}
