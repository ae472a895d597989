//! Live bytes over time, as small drawings below the table of `gputrace memory`.

use crate::label::units::{bytes, duration};
use crate::memory::MemoryOf;
use crate::names::line_safe;
use crate::report::memory::{MemoryLineReport, MemoryReport};

/// Lines that are drawn of each process.
const LINES_DRAWN: usize = 5;
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A drawing of each process, and of the first of the lines that are shown. Each has its own highest point.
pub(super) fn text(report: &MemoryReport, of: MemoryOf, rows: &[&MemoryLineReport], width: usize) -> String {
    let mut text = String::new();
    for process in report.processes.iter().filter(|process| process.timeline.bytes.len() > 1) {
        let timeline = &process.timeline;
        let whole_ns = timeline.interval_ns.saturating_mul(timeline.bytes.len() as u64);
        text += &format!(
            "\nLive bytes over {} from the first call on, {} a column; each row has its own scale\n",
            duration(whole_ns),
            duration(timeline.interval_ns)
        );
        let of_process = rows.iter().filter(|line| line.pid == process.pid);
        let drawn = of_process.filter_map(|line| Some((line, line.timeline.as_ref()?))).take(LINES_DRAWN);
        let name = match report.processes.len() {
            1 if of == MemoryOf::Blocks => "all blocks".to_owned(),
            1 => "all memory of devices".to_owned(),
            _ => format!("process {}", process.pid),
        };
        let mut draw = |levels: &[u64], name: &dyn Fn(usize) -> String| {
            let most = levels.iter().copied().max().unwrap_or(0);
            let head = format!("  {}  {:>9}  ", drawing(levels, most), bytes(most));
            let left = width.saturating_sub(head.chars().count()).max(20);
            text += &format!("{head}{}\n", line_safe(&name(left)));
        };
        draw(&timeline.bytes, &|_| name.clone());
        drawn.for_each(|(line, levels)| draw(levels, &|width| line.text(width)));
    }
    text
}

/// Nothing is a blank, so that little is told from it.
fn drawing(levels: &[u64], most: u64) -> String {
    let column = |level: &u64| {
        let eighths = u128::from(*level) * LEVELS.len() as u128;
        let index = usize::try_from(eighths.div_ceil(u128::from(most.max(1)))).unwrap_or(0);
        index.checked_sub(1).and_then(|index| LEVELS.get(index)).copied().unwrap_or(' ')
    };
    levels.iter().map(column).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_high_as_their_share_of_the_most() {
        assert_eq!(drawing(&[0, 1, 50, 100, 12], 100), " ▁▄█▁");
        assert_eq!(drawing(&[0, 0], 0), "  ");
        assert_eq!(drawing(&[u64::MAX, u64::MAX / 2], u64::MAX), "█▄");
    }
}
