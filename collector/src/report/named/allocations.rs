//! The table of allocations and frees.

use super::{Cell, location, part, with};
use crate::report::MemoryLineReport;
use crate::report::json::Report;

/// Lines with what they allocated, those with the most time in the calls first.
pub(super) fn by_line(report: &Report) -> Vec<Vec<Cell>> {
    let mut all: Vec<&MemoryLineReport> = report.memory.lines.iter().collect();
    all.sort_by_key(|line| std::cmp::Reverse((line.calls_ns, line.allocations)));
    let all_ns = all.iter().map(|line| line.calls_ns).fold(0, u64::saturating_add);
    let row = |line: &&MemoryLineReport| {
        let figures = vec![
            part(Some(line.calls_ns), all_ns),
            Cell::Count(line.calls_ns),
            Cell::Count(line.allocations),
            Cell::Count(line.frees),
            Cell::Count(line.temporary),
            Cell::Figure(line.allocated_bytes as f64 / 1e6),
            Cell::Figure(line.live_at_most_bytes as f64 / 1e6),
            Cell::Count(line.pid.into()),
            Cell::Text(line.kind.to_owned()),
        ];
        with(figures, line.line.as_ref().map_or_else(|| "(no line)".to_owned(), location))
    };
    all.iter().map(row).collect()
}
