//! Two reports' memory beside each other, by line: what `gputrace memory --diff` prints.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::label::units::bytes;
use crate::names::line_safe;
use crate::report::CodeLocation;
use crate::report::memory::{MemoryLineReport, MemoryReport};
use crate::report::table::Table;
use crate::report::words::plural;

/// Rows of the table; the JSON has all.
const ROWS_SHOWN: usize = 30;

/// One side of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MemorySide {
    pub allocations: u64,
    pub allocated_bytes: u64,
    pub peak_bytes: u64,
    pub peak_allocations: u64,
    pub end_bytes: u64,
    pub leaked_bytes: u64,
    pub leaked_allocations: u64,
    pub temporary_bytes: u64,
    pub temporary: u64,
}

/// A line of one side or of both.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MemoryLineDiff {
    /// Where it is after, or before if it is in no report after.
    pub line: Option<CodeLocation>,
    pub kind: &'static str,
    /// Absent if the line allocated nothing on that side.
    pub before: Option<MemorySide>,
    pub after: Option<MemorySide>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MemoryDiff {
    pub schema: &'static str,
    pub version: u32,
    /// The sums; the peak is the highest of one process.
    pub before: MemorySide,
    pub after: MemorySide,
    /// The one whose peak changed the most first, then by what is leaked and what is temporary.
    pub lines: Vec<MemoryLineDiff>,
}

/// What stays the same if code above the line changes.
type FunctionKey = (Option<String>, Option<String>, &'static str);

impl MemoryDiff {
    /// Lines are the same if file, function and line are, and else if it is the only one of its function that
    /// is left on both sides.
    pub fn new(before: &MemoryReport, after: &MemoryReport) -> MemoryDiff {
        let (old, new) = (sides(before), sides(after));
        let (mut lines, mut left, mut added) =
            (Vec::new(), BTreeMap::<FunctionKey, Vec<_>>::new(), Vec::new());
        for ((line, kind), side) in &old {
            match new.get(&(line.clone(), *kind)) {
                Some(now) => lines.push(row(line, kind, Some(*side), Some(*now))),
                None => left.entry(function(line, kind)).or_default().push((line, *kind, *side)),
            }
        }
        for ((line, kind), side) in new.iter().filter(|(key, _)| !old.contains_key(key)) {
            added.push((line, *kind, *side));
        }
        for (line, kind, side) in &added {
            let key = function(line, kind);
            let is_only = added.iter().filter(|(line, kind, _)| function(line, kind) == key).count() == 1;
            let moved = match left.get(&key).map(Vec::as_slice) {
                Some([(_, _, before)]) if is_only => Some(*before),
                _ => None,
            };
            if moved.is_some() {
                left.remove(&key);
            }
            lines.push(row(line, kind, moved, Some(*side)));
        }
        lines
            .extend(left.into_values().flatten().map(|(line, kind, side)| row(line, kind, Some(side), None)));
        lines.sort_by_key(|line| std::cmp::Reverse(line.changes()));
        MemoryDiff {
            schema: "gputrace-memory-diff",
            version: 1,
            before: whole(before),
            after: whole(after),
            lines,
        }
    }

    /// One object, ending in a newline.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// A table of the lines that changed, ending in a newline.
    pub fn to_text(&self, width: usize) -> String {
        let changed: Vec<&MemoryLineDiff> =
            self.lines.iter().filter(|line| line.changes() != [0; 3]).collect();
        let mut text = String::new();
        for (name, of) in [
            ("peak", (|side: &MemorySide| side.peak_bytes) as fn(&MemorySide) -> u64),
            ("leaked", |side| side.leaked_bytes),
            ("live at end", |side| side.end_bytes),
            ("freed at once", |side| side.temporary_bytes),
        ] {
            let (old, new) = (of(&self.before), of(&self.after));
            text += &format!("{name}: {} before, {} after ({})\n", bytes(old), bytes(new), signed(old, new));
        }
        if changed.is_empty() {
            return text + "No line's memory changed.\n";
        }
        let headings = ["Line", "peak before", "after", "change", "leaked", "freed at once"];
        let mut table = Table::new(&headings).optional(&["freed at once", "peak before", "after"]);
        let shown = changed.get(..ROWS_SHOWN).unwrap_or(&changed);
        for line in shown {
            let [old, new] = [line.before, line.after].map(Option::unwrap_or_default);
            table.row(vec![
                String::new(),
                bytes(old.peak_bytes),
                bytes(new.peak_bytes),
                signed(old.peak_bytes, new.peak_bytes),
                signed(old.leaked_bytes, new.leaked_bytes),
                signed(old.temporary_bytes, new.temporary_bytes),
            ]);
        }
        let width_of_name = table.first_width(width).max(8);
        for (at, line) in shown.iter().enumerate() {
            table.rename(at, line_safe(&line.text(width_of_name)).into_owned());
        }
        table.narrow(width, 28);
        let width_of_name = table.first_width(width);
        for (at, line) in shown.iter().enumerate() {
            table.rename(at, line_safe(&line.text(width_of_name)).into_owned());
        }
        text.push('\n');
        for line in table.lines(width, 28) {
            text += &line;
            text.push('\n');
        }
        if let more @ 1.. = changed.len().saturating_sub(ROWS_SHOWN) {
            text += &format!("and {}: --json\n", plural(more as u64, "more line", "more lines"));
        }
        text
    }
}

impl MemoryLineDiff {
    /// How much the bytes at the peak, leaked, and freed at once differ.
    fn changes(&self) -> [u64; 3] {
        let [old, new] = [self.before, self.after].map(Option::unwrap_or_default);
        [
            old.peak_bytes.abs_diff(new.peak_bytes),
            old.leaked_bytes.abs_diff(new.leaked_bytes),
            old.temporary_bytes.abs_diff(new.temporary_bytes),
        ]
    }

    fn text(&self, width: usize) -> String {
        let kind = if self.kind == "device" { String::new() } else { format!(" ({})", self.kind) };
        let left = width.saturating_sub(kind.chars().count());
        self.line.as_ref().map_or_else(|| "(no line)".to_owned(), |line| line.fitted(left)) + &kind
    }
}

impl MemorySide {
    fn add(&mut self, line: &MemoryLineReport) {
        // Memory of the host is no part of the peak.
        let at_peak = if line.is_on_device() { [line.peak_bytes, line.peak_allocations] } else { [0; 2] };
        for (sum, more) in [
            (&mut self.allocations, line.allocations),
            (&mut self.allocated_bytes, line.allocated_bytes),
            (&mut self.peak_bytes, at_peak[0]),
            (&mut self.peak_allocations, at_peak[1]),
            (&mut self.end_bytes, line.end_bytes),
            (&mut self.leaked_bytes, line.leaked_bytes),
            (&mut self.leaked_allocations, line.leaked_allocations),
            (&mut self.temporary_bytes, line.temporary_bytes),
            (&mut self.temporary, line.temporary),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

fn sides(report: &MemoryReport) -> BTreeMap<(Option<CodeLocation>, &'static str), MemorySide> {
    let mut sides: BTreeMap<_, MemorySide> = BTreeMap::new();
    for line in &report.lines {
        sides.entry((line.line.clone(), line.kind)).or_default().add(line);
    }
    sides
}

fn whole(report: &MemoryReport) -> MemorySide {
    let mut whole = MemorySide::default();
    report.lines.iter().for_each(|line| whole.add(line));
    let highest = report.processes.iter().max_by_key(|process| process.peak_bytes);
    let peak = highest.map_or((0, 0), |process| (process.peak_bytes, process.peak_allocations));
    (whole.peak_bytes, whole.peak_allocations) = peak;
    whole
}

fn function(line: &Option<CodeLocation>, kind: &'static str) -> FunctionKey {
    (line.as_ref().map(|line| line.function.clone()), line.as_ref().and_then(|line| line.file.clone()), kind)
}

fn row(
    line: &Option<CodeLocation>,
    kind: &'static str,
    before: Option<MemorySide>,
    after: Option<MemorySide>,
) -> MemoryLineDiff {
    MemoryLineDiff { line: line.clone(), kind, before, after }
}

fn signed(old: u64, new: u64) -> String {
    match new.cmp(&old) {
        std::cmp::Ordering::Equal => "0 B".to_owned(),
        std::cmp::Ordering::Greater => format!("+{}", bytes(new - old)),
        std::cmp::Ordering::Less => format!("-{}", bytes(old - new)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(function: &str, line: u32, [peak, leaked, temporary]: [u64; 3]) -> MemoryLineReport {
        let location = CodeLocation {
            function: function.to_owned(),
            file: Some("a.py".to_owned()),
            path: None,
            line: Some(line),
        };
        MemoryLineReport {
            peak_bytes: peak,
            leaked_bytes: leaked,
            temporary_bytes: temporary,
            ..MemoryLineReport::empty(1, Some(location), 1, false)
        }
    }

    fn report(lines: Vec<MemoryLineReport>) -> MemoryReport {
        MemoryReport { lines, ..MemoryReport::default() }
    }

    #[test]
    fn lines_that_moved_are_compared_and_others_are_new_or_gone() {
        let before = report(vec![
            line("same", 1, [10, 0, 5]),
            line("moved", 2, [100, 0, 0]),
            line("gone", 3, [7, 0, 0]),
            line("two", 4, [1, 0, 0]),
            line("two", 5, [2, 0, 0]),
        ]);
        let after = report(vec![
            line("same", 1, [10, 0, 5]),
            line("moved", 12, [40, 8, 0]),
            line("new", 9, [0, 3, 0]),
            line("two", 6, [3, 0, 0]),
        ]);
        let diff = MemoryDiff::new(&before, &after);
        let rows: Vec<_> = diff
            .lines
            .iter()
            .map(|row| {
                let location = row.line.as_ref().unwrap();
                let [old, new] = [row.before, row.after].map(|side| side.map(|side| side.peak_bytes));
                (location.function.as_str(), location.line.unwrap(), old, new)
            })
            .collect();
        let expected = [
            ("moved", 12, Some(100), Some(40)),
            ("gone", 3, Some(7), None),
            ("two", 6, None, Some(3)),
            ("two", 5, Some(2), None),
            ("two", 4, Some(1), None),
            ("new", 9, None, Some(0)),
            ("same", 1, Some(10), Some(10)),
        ];
        assert_eq!(rows, expected);
        let text = diff.to_text(120);
        assert!(text.contains("leaked: 0 B before, 11 B after (+11 B)"), "{text}");
        assert!(text.contains("-60 B") && !text.contains("same"), "{text}");
        assert!(MemoryDiff::new(&after, &after).to_text(80).ends_with("No line's memory changed.\n"));
    }
}
