//! The page: lines, facts under each other, tables, colours.

use crate::report::table::{Table, fit};

/// The first column of the small tables, and what a long name has before other columns are left out.
pub(super) const NAME_MIN: usize = 28;
/// What stands in front of a line of facts.
const LABEL: usize = 11;

pub(super) const BOLD: &str = "1";
const DIM: &str = "2";
pub(super) const YELLOW: &str = "33";

pub(super) struct Page {
    pub text: String,
    pub width: usize,
    pub color: bool,
    /// Whether what only experts look for is shown as well.
    pub verbose: bool,
}

impl Page {
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

    pub fn strong(&mut self, line: &str) {
        let line = self.paint(BOLD, line);
        self.line(&line);
    }

    /// A text without a label.
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

    /// A label and its text, which goes on under itself if it is long.
    fn labelled(&mut self, label: &str, text: &str, style: &str) {
        let mut label = self.paint(style, &format!("{label:<LABEL$}"));
        for piece in wrap(text, self.width.saturating_sub(LABEL)) {
            let line = format!("{label}{piece}");
            self.line(line.trim_end());
            label = " ".repeat(LABEL);
        }
    }

    /// A table under a blank line, without the columns for which there is no space; its last row may be a
    /// sum. Nothing if it has no rows.
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

/// Breaks at spaces; a word longer than the line is cut.
fn wrap(text: &str, width: usize) -> Vec<String> {
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
