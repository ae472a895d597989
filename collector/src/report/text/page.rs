//! The page of the summary: lines, labelled facts, tables, colours.

use crate::report::table::{Table, fit};

/// The least width of a table's first column. Optional columns are removed until long names have this width.
pub(in crate::report) const NAME_MIN: usize = 28;
/// The width of a fact's label.
pub(super) const LABEL: usize = 11;

pub(super) const BOLD: &str = "1";
const DIM: &str = "2";
pub(super) const YELLOW: &str = "33";

pub(in crate::report) struct TextPage {
    pub text: String,
    pub width: usize,
    pub color: bool,
    /// Whether to show details for experts.
    pub verbose: bool,
}

impl TextPage {
    pub fn line(&mut self, line: &str) {
        self.text += line;
        self.text.push('\n');
    }

    pub fn blank(&mut self) {
        self.text.push('\n');
    }

    pub fn paint(&self, style: &str, text: &str) -> String {
        if self.color { format!("\x1b[{style}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Adds a wrapped text without a label.
    pub fn paragraph(&mut self, text: &str) {
        for piece in wrap(text, self.width) {
            self.line(&piece);
        }
    }

    pub fn fact(&mut self, label: &str, text: &str) {
        self.labelled(label, text, DIM);
    }

    pub fn warning_fact(&mut self, label: &str, text: &str) {
        self.labelled(label, text, YELLOW);
    }

    /// Adds a label and its text, which is wrapped beside the label.
    fn labelled(&mut self, label: &str, text: &str, style: &str) {
        let mut label = self.paint(style, &format!("{label:<LABEL$}"));
        for piece in wrap(text, self.width.saturating_sub(LABEL)) {
            let line = format!("{label}{piece}");
            self.line(line.trim_end());
            label = " ".repeat(LABEL);
        }
    }

    /// Adds a blank line and a table, without the columns that do not fit. With `sum`, the last row is a sum.
    /// A table without rows adds nothing.
    pub fn table(&mut self, mut table: Table, sum: bool) {
        if table.is_empty() {
            return;
        }
        self.blank();
        table.narrow(self.width, NAME_MIN);
        let lines = table.lines(self.width, NAME_MIN);
        let last = lines.len() - 1;
        for (at, line) in lines.iter().enumerate() {
            let line = match at {
                0 => self.paint(BOLD, line),
                _ if sum && at == last => self.paint(DIM, line),
                _ => line.clone(),
            };
            self.line(&line);
        }
    }
}

/// Breaks a text at spaces. A word longer than the line is shortened.
pub(in crate::report) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let word = fit(word, width);
        let Some(line) = lines.last_mut() else { break };
        if line.is_empty() {
            *line = word;
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(&word);
        } else {
            lines.push(word);
        }
    }
    lines
}
