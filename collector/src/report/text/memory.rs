//! The program's memory in the summary.

use crate::label::units::{bytes, count, duration, percent};
use crate::names::line_safe;
use crate::report::memory::{MemoryLineReport, REPEATED_MIN};
use crate::report::table::Table;
use crate::report::text::page::TextPage;
use crate::report::words::plural;
use crate::report::{BlocksReport, ProcessMemoryReport, Report, UnmatchedFreesReport};

/// Rows of the table, and lines of each fact.
const LINES_SHOWN: usize = 4;
const PROCESSES_SHOWN: usize = 2;
const LEAKS_SHOWN: usize = 2;
const POOLS_SHOWN: usize = 2;
/// Fewer temporary allocations of one line cost nothing worth a note.
const CHURN_MIN: u64 = 100;

impl Report {
    /// Who held the device's memory when it was the most, and what was never freed.
    pub(super) fn memory_table(&self, page: &mut TextPage) {
        let memory = &self.memory;
        let sum = |of: &dyn Fn(&ProcessMemoryReport) -> u64| {
            memory.processes.iter().map(of).fold(0, u64::saturating_add)
        };
        let [peak, end] = [sum(&|process| process.peak_bytes), sum(&|process| process.end_bytes)];
        held_table(page, ["Memory (of devices)", "allocations"], &memory.lines, [peak, end]);
        let names_process = memory.processes.len() > 1;
        let has_facts =
            memory.processes.iter().any(|process| process.leaked_allocations > 0 || process.peak_bytes > 0);
        if has_facts {
            page.blank();
        }
        let mut label = "Memory";
        for process in memory.processes.iter().filter(|process| process.peak_bytes > 0).take(PROCESSES_SHOWN)
        {
            let text = process.line(names_process);
            page.fact(label, &text);
            label = "";
        }
        self.leak_lines(page);
        for line in memory.temporary().iter().take(1).filter(|line| line.temporary >= CHURN_MIN) {
            let (name, times) = (line.text(page.width), plural(line.temporary, "allocation", "allocations"));
            let spent = duration(line.calls_ns);
            page.fact(
                "Churn",
                &line_safe(&format!("{name}: {times} freed at once, {spent} in the calls for them")),
            );
        }
        self.blocks(page);
        for process in &memory.processes {
            self.memory_state(process, page);
            if let Some(text) =
                unmatched(&process.unmatched_frees, process.not_followed, process.sizes_unknown)
            {
                page.fact("Unmatched", &text);
            }
        }
    }

    /// What a caching allocator gave out, where that is recorded.
    fn blocks(&self, page: &mut TextPage) {
        let memory = &self.memory;
        let blocks = || memory.processes.iter().filter_map(|process| process.blocks.as_ref());
        let sum = |of: &dyn Fn(&BlocksReport) -> u64| blocks().map(of).fold(0, u64::saturating_add);
        let [peak, end] = [sum(&|blocks| blocks.peak_bytes), sum(&|blocks| blocks.end_bytes)];
        held_table(page, ["PyTorch's blocks", "blocks"], &memory.block_lines, [peak, end]);
        let shown = memory.processes_with_blocks();
        if !shown.is_empty() {
            page.blank();
        }
        let mut label = "Blocks";
        for fact in shown.iter().take(PROCESSES_SHOWN).flat_map(|(_, blocks)| blocks.facts()) {
            page.fact(label, &fact);
            label = "";
        }
    }

    /// Pools, memory of graphs, and what the device has in use beside what is accounted.
    fn memory_state(&self, process: &ProcessMemoryReport, page: &mut TextPage) {
        let mut label = "Pool";
        for pool in process.pools.iter().filter(|pool| pool.peak_bytes > 0).take(POOLS_SHOWN) {
            page.fact(label, &pool.text());
            label = "";
        }
        if process.graph_allocations > 0 {
            let made = plural(process.graph_allocations, "allocation", "allocations");
            let text =
                format!("{made} of {} when they are launched, in no sum here", bytes(process.graph_bytes));
            page.fact("In graphs", &text);
        }
        if let Some(used) = &process.device_use {
            page.fact("Device", &used.text());
        }
    }

    fn leak_lines(&self, page: &mut TextPage) {
        let leaks = self.memory.leaks();
        let mut label = "Not freed";
        for line in leaks.iter().take(LEAKS_SHOWN) {
            let held = plural(line.leaked_allocations, "allocation", "allocations");
            let oldest = match line.oldest_at_ns {
                Some(at_ns) if line.leaked_allocations >= REPEATED_MIN => {
                    format!(", the oldest made after {}", duration(at_ns))
                }
                _ => String::new(),
            };
            let name = line.text(page.width);
            let text = format!("{name}: {} in {held}{oldest}", bytes(line.leaked_bytes));
            page.fact(label, &line_safe(&text));
            label = "";
        }
        if let more @ 1.. = leaks.len().saturating_sub(LEAKS_SHOWN) {
            page.fact(
                "",
                &format!("and {}: gputrace memory --leaks", plural(more as u64, "more line", "more lines")),
            );
        }
        if let Some((kept, libraries)) = self.memory.kept() {
            let held = plural(kept.count, "allocation", "allocations");
            page.fact(
                "Kept",
                &format!("{} in {held}, which {libraries} keeps to the end", bytes(kept.bytes)),
            );
        }
    }
}

/// The first lines with what they held of devices at the peak; below them all that was held at the peak, and
/// at the end.
fn held_table(page: &mut TextPage, heads: [&str; 2], lines: &[MemoryLineReport], all: [u64; 2]) {
    let [peak, end] = all;
    let held: Vec<&MemoryLineReport> =
        lines.iter().filter(|line| line.peak_bytes > 0 && line.is_on_device()).collect();
    if held.is_empty() {
        return;
    }
    let mut table =
        Table::new(&[heads[0], "at peak", "share", "at end", "live", heads[1]]).optional(&["live", "share"]);
    let row = |line: &MemoryLineReport, name: String| {
        vec![
            name,
            bytes(line.peak_bytes),
            percent(line.peak_bytes as f64 / peak.max(1) as f64),
            bytes(line.end_bytes),
            count(line.end_allocations),
            count(line.allocations),
        ]
    };
    let shown = held.get(..LINES_SHOWN).unwrap_or(&held);
    for line in shown {
        table.row(row(line, line.text(page.width)));
    }
    let of = |of: &dyn Fn(&MemoryLineReport) -> u64| held.iter().map(|line| of(line)).sum::<u64>();
    let name = format!("{} in all", plural(held.len() as u64, "line", "lines"));
    let live = count(of(&|line| line.end_allocations));
    let made = count(of(&|line| line.allocations));
    table.row(vec![name, bytes(peak), String::new(), bytes(end), live, made]);
    table.narrow(page.width, crate::report::text::page::NAME_MIN);
    let width = table.first_width(page.width);
    for (at, line) in shown.iter().enumerate() {
        table.rename(at, line_safe(&line.text(width)).into_owned());
    }
    page.table(table, true);
}

fn unmatched(frees: &UnmatchedFreesReport, not_followed: u64, sizes_unknown: u64) -> Option<String> {
    let parts = [
        (frees.unknown, "of memory that was allocated unseen"),
        (frees.twice, "of memory that was freed before"),
        (frees.interior, "of an address inside of an allocation"),
        (frees.refused, "that the driver refused"),
    ];
    let mut said: Vec<String> = parts
        .iter()
        .filter(|(frees, _)| *frees > 0)
        .map(|(frees, what)| format!("{} {what}", plural(*frees, "free", "frees")))
        .collect();
    if not_followed > 0 {
        said.push(format!(
            "{} beyond those that are followed",
            plural(not_followed, "allocation", "allocations")
        ));
    }
    if sizes_unknown > 0 {
        let made = plural(sizes_unknown, "allocation", "allocations");
        said.push(format!("{made} of unknown size, counted as 0 B"));
    }
    (!said.is_empty()).then(|| said.join(", "))
}
