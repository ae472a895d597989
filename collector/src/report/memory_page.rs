//! The memory of a report by itself: what `gputrace memory` prints.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::label::units::{bytes, count, duration, percent};
use crate::memory::{MemoryOf, Moment};
use crate::names::line_safe;
use crate::report::memory::{MemoryLineReport, MemoryReport};
use crate::report::memory_timelines as timelines;
use crate::report::table::Table;
use crate::report::words::plural;

/// Which lines are shown, and in which order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryRows {
    Held(Moment),
    Leaks,
    Temporary,
    /// All that was allocated.
    Allocated,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryPage {
    pub rows: MemoryRows,
    pub of: MemoryOf,
    pub width: usize,
}

/// What the JSON has: all of the report's memory, and the lines that were asked for in their order.
#[derive(Serialize)]
struct MemoryDocument<'a> {
    schema: &'static str,
    version: u32,
    processes: &'a [crate::report::ProcessMemoryReport],
    lines: Vec<&'a MemoryLineReport>,
    left_out: u64,
}

impl MemoryReport {
    /// One object, ending in a newline.
    pub fn to_json(&self, rows: MemoryRows) -> String {
        let document = MemoryDocument {
            schema: "gputrace-memory",
            version: 1,
            processes: &self.processes,
            lines: self.rows(rows),
            left_out: self.left_out,
        };
        serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
    }

    /// A table of all lines, ending in a newline.
    pub fn to_text(&self, page: &MemoryPage) -> String {
        let rows = self.rows(page.rows);
        let mut text = String::new();
        let names_process = self.processes.len() > 1;
        match page.of {
            MemoryOf::Driver => {
                self.processes
                    .iter()
                    .for_each(|process| text += &format!("{}\n", process.line(names_process)));
            }
            MemoryOf::Blocks => {
                for (pid, blocks) in self.processes_with_blocks() {
                    text += &blocks.text(names_process.then_some(pid));
                }
            }
        }
        if let Some((kept, libraries)) = self.kept().filter(|_| page.rows == MemoryRows::Leaks) {
            let all = plural(kept.count, "allocation", "allocations");
            let by = match page.of {
                MemoryOf::Driver => format!("kept to the end by {libraries}"),
                MemoryOf::Blocks => "held to the end by lines that did not grow".to_owned(),
            };
            text += &format!("{} in {all} are {by}, and are no leak: --at end\n", bytes(kept.bytes));
        }
        if rows.is_empty() {
            let has_kept = page.rows == MemoryRows::Leaks && self.kept().is_some();
            return text
                + if has_kept { "No line held more and more to the end." } else { page.rows.nothing() }
                + "\n";
        }
        let total: u64 = rows.iter().map(|line| held(line, page.rows).1).fold(0, u64::saturating_add);
        let heading = page.rows.heading();
        let times = match page.rows {
            // Blocks come of no call.
            MemoryRows::Held(Moment::Peak | Moment::Asked) if page.of == MemoryOf::Blocks => "oldest",
            MemoryRows::Held(Moment::Peak | Moment::Asked) => "in calls",
            MemoryRows::Temporary | MemoryRows::Allocated => "a second",
            MemoryRows::Held(Moment::End) | MemoryRows::Leaks => "oldest",
        };
        let mut table = Table::new(&["Line", heading, "share", "allocations", "allocated in all", times])
            .optional(&[times, "allocated in all", "share"]);
        for line in &rows {
            let (allocations, of_bytes) = held(line, page.rows);
            let last = match times {
                "oldest" => line.oldest_at_ns.map(duration),
                "a second" => self.rate(line, allocations).map(|rate| count(rate.round() as u64)),
                _ => Some(duration(line.calls_ns)),
            };
            table.row(vec![
                String::new(),
                bytes(of_bytes),
                percent(of_bytes as f64 / total.max(1) as f64),
                count(allocations),
                bytes(line.allocated_bytes),
                last.unwrap_or_else(|| "-".to_owned()),
            ]);
        }
        let all = plural(rows.len() as u64, "line", "lines");
        table.row(vec![format!("{all} in all"), bytes(total)]);
        let width = table.first_width(page.width).max(8);
        for (at, line) in rows.iter().enumerate() {
            table.rename(at, line_safe(&line.text(width)).into_owned());
        }
        table.narrow(page.width, 28);
        let width = table.first_width(page.width);
        for (at, line) in rows.iter().enumerate() {
            table.rename(at, line_safe(&line.text(width)).into_owned());
        }
        text.push('\n');
        for line in table.lines(page.width, 28) {
            text += &line;
            text.push('\n');
        }
        text + &timelines::text(self, page.of, &rows, page.width) + &self.sizes()
    }

    /// Such allocations of a line in a second of its process's life.
    fn rate(&self, line: &MemoryLineReport, allocations: u64) -> Option<f64> {
        let life_ns = self.processes.iter().find(|process| process.pid == line.pid)?.life_ns;
        (life_ns > 0).then(|| allocations as f64 * 1e9 / life_ns as f64)
    }

    /// How many allocations had at least so many bytes, and fewer than twice: `3 of 512 B, 64 of 1 MiB`.
    fn sizes(&self) -> String {
        let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
        for size in self.processes.iter().flat_map(|process| &process.sizes) {
            *sizes.entry(size.from_bytes).or_default() += size.allocations;
        }
        let all: Vec<String> =
            sizes.iter().map(|(from, made)| format!("{} of {}", count(*made), bytes(*from))).collect();
        format!("\nSizes, from a power of two to the next: {}\n", all.join(", "))
    }

    fn rows(&self, rows: MemoryRows) -> Vec<&MemoryLineReport> {
        match rows {
            MemoryRows::Leaks => self.leaks(),
            MemoryRows::Temporary => self.temporary(),
            MemoryRows::Held(_) | MemoryRows::Allocated => {
                let has_any = |line: &&MemoryLineReport| held(line, rows).0 > 0;
                let mut lines: Vec<_> = self.lines.iter().filter(has_any).collect();
                lines.sort_by_key(|line| std::cmp::Reverse(held(line, rows).1));
                lines
            }
        }
    }
}

/// Allocations and bytes of a line, as they are asked for.
fn held(line: &MemoryLineReport, rows: MemoryRows) -> (u64, u64) {
    match rows {
        // Memory of the host is no part of the peak.
        MemoryRows::Held(Moment::Peak) if !line.is_on_device() => (0, 0),
        MemoryRows::Held(Moment::Peak) => (line.peak_allocations, line.peak_bytes),
        MemoryRows::Held(Moment::End) => (line.end_allocations, line.end_bytes),
        MemoryRows::Leaks => (line.leaked_allocations, line.leaked_bytes),
        MemoryRows::Held(Moment::Asked) => (line.at_allocations.unwrap_or(0), line.at_bytes.unwrap_or(0)),
        MemoryRows::Temporary => (line.temporary, line.temporary_bytes),
        MemoryRows::Allocated => (line.allocations, line.allocated_bytes),
    }
}

impl MemoryRows {
    fn heading(self) -> &'static str {
        match self {
            MemoryRows::Held(Moment::Peak) => "at peak",
            MemoryRows::Held(Moment::End) => "at end",
            MemoryRows::Held(Moment::Asked) => "then",
            MemoryRows::Leaks => "not freed",
            MemoryRows::Temporary => "freed at once",
            MemoryRows::Allocated => "allocated",
        }
    }

    fn nothing(self) -> &'static str {
        match self {
            MemoryRows::Held(_) => "No memory was held then.",
            MemoryRows::Leaks => "All memory was freed.",
            MemoryRows::Temporary => "No memory was freed at once.",
            MemoryRows::Allocated => "No memory was allocated.",
        }
    }
}
