//! The tables of the summary.

use crate::label::units::{bandwidth, bytes, count, digits, duration, percent};
use crate::model::operation::PAGEABLE;
use crate::names::line_safe;
use crate::report::estimated::shown;
use crate::report::occupancy::low_occupancy;
use crate::report::table::{Table, fit};
use crate::report::text::IDLE_SHARE_MIN;
use crate::report::text::page::{LABEL, NAME_MIN, TextPage};
use crate::report::words::{dash, plural};
use crate::report::{
    AnomalyReport, DeviceTimes, EstimatedTime, GraphReport, IdleLine, KernelReport, LineReport,
    MemoryCopyReport, MovedReport, RangeReport, Report, Spread, ThreadReport,
};

/// On pages narrower than this, the table of kernels has a short heading.
const NARROW: usize = 95;
/// Rows of the tables of threads and streams.
const PARTS_SHOWN: usize = 4;
/// Rows of the table of kernels that were far slower than usual.
const ANOMALIES_SHOWN: usize = 3;
/// Rows of the table of lines at which devices were idle.
const IDLE_SHOWN: usize = 5;
/// The widest source location beside a name, and the width below which a shortened one is not worth showing.
const LOCATION_WIDTH: usize = 28;
const LOCATION_WIDTH_MIN: usize = 16;
/// The column `mostly`, the kernel with most of a line's time: its greatest width, the least that is worth a
/// column, and what the other columns need.
const MOSTLY_WIDTH: usize = 32;
const MOSTLY_WIDTH_MIN: usize = 16;
const MOSTLY_BESIDE: usize = 62;

impl Report {
    pub(super) fn kernel_table(&self, page: &mut TextPage, rows: usize) {
        if self.kernels.is_empty() {
            return;
        }
        let timed = self.kernels.iter().any(|kernel| kernel.timed_calls > 0);
        let shown = self.kernels.get(..rows).unwrap_or(&self.kernels);
        let unit = TimeUnit::fitting(shown);
        let heading = match page.width {
            ..NARROW => format!("Kernels ({})", unit.name),
            _ => format!("Kernels (min to max in {})", unit.name),
        };
        let mut header = match timed {
            true => vec![heading.as_str(), "calls", "total", "share", "min", "mean", "median", "p99", "max"],
            false => vec!["Kernels (no device times)", "calls"],
        };
        let is_estimated = timed && self.estimate.is_some();
        if is_estimated {
            header.insert(3, "error");
        }
        let verbose = page.verbose;
        header.extend(verbose.then_some("occ"));
        let mut table = Table::new(&header).optional(&["p99", "min", "median", "max"]);
        let row = |name: String, calls: u64, rest: Vec<String>, occupancy: String| {
            let mut cells = vec![name, count(calls)];
            let columns = if timed { 7 + usize::from(is_estimated) } else { 0 };
            cells.extend(rest.into_iter().take(columns));
            cells.extend(verbose.then_some(occupancy));
            cells
        };
        for kernel in shown {
            let spread = &kernel.spread;
            let mut rest = vec![
                kernel.time_ns().map_or_else(dash, duration),
                kernel.share.map_or_else(dash, percent),
                spread.min_ns.map_or_else(dash, |ns| unit.show(ns as f64)),
                spread.mean_ns.map_or_else(dash, |ns| unit.show(ns)),
                spread.median_ns.map_or_else(dash, |ns| unit.show(ns as f64)),
                spread.p99_ns.map_or_else(dash, |ns| unit.show(ns as f64)),
                spread.max_ns.map_or_else(dash, |ns| unit.show(ns as f64)),
            ];
            if let Some(estimate) = kernel.estimate.filter(|_| is_estimated) {
                rest.insert(1, estimate.error_text());
            }
            let occupancy = kernel.occupancy.map_or_else(dash, |share| format!("{:.0}%", share * 100.0));
            table.row(row(kernel.name.clone(), kernel.calls, rest, occupancy));
        }
        let sum =
            |of: &dyn Fn(&KernelReport) -> u64| self.kernels.iter().map(of).fold(0, u64::saturating_add);
        let calls = sum(&|kernel| kernel.calls).saturating_add(self.other_kernels.calls);
        let total_ns = sum(&|kernel| kernel.time_ns().unwrap_or(0));
        let total_ns = total_ns.saturating_add(self.other_kernels.total_ns);
        let more = if self.other_kernels.calls > 0 { "more than " } else { "" };
        let in_all = if page.width < NARROW { "" } else { " in all" };
        let name = format!("{more}{}{in_all}", plural(self.kernels.len() as u64, "kernel", "kernels"));
        let mut rest = vec![String::new(); 8];
        if let Some(total) = rest.first_mut() {
            *total = duration(total_ns);
        }
        table.row(row(name, calls, rest, String::new()));
        // The source location follows the kernel's name, if no column and no name gives way for it.
        table.narrow(page.width, NAME_MIN);
        let name_width = table.first_width(page.width);
        for (row, kernel) in shown.iter().enumerate() {
            let Some(source) = &kernel.source else { continue };
            let left = name_width.saturating_sub(kernel.name.chars().count() + 2).min(LOCATION_WIDTH);
            let location = source.text();
            let location = line_safe(&location);
            let others = kernel.other_sources.len();
            let others = if others > 0 { format!(" +{others}") } else { String::new() };
            let left = left.saturating_sub(others.chars().count());
            if left >= LOCATION_WIDTH_MIN || location.chars().count() <= left {
                table.rename(row, format!("{}  {}{others}", kernel.name, fit(&location, left)));
            }
        }
        page.table(table, true);
        // Mostly of a library's kernels, which nobody can change: for who asks for details.
        let low = if verbose { low_occupancy(shown) } else { Vec::new() };
        for (at, (name, text)) in low.into_iter().enumerate() {
            let left = page.width.saturating_sub(LABEL + 2 + text.chars().count());
            // A line that wraps anyway has place for more of the name.
            let name = fit(name, if left < LOCATION_WIDTH_MIN { NAME_MIN } else { left });
            page.fact(if at == 0 { "Occupancy" } else { "" }, &line_safe(&format!("{name}: {text}")));
        }
    }

    /// The kernels whose anomalies cost the most.
    pub(super) fn anomaly_table(&self, page: &mut TextPage) {
        let mut table =
            Table::new(&["Far slower than usual", "runs", "over", "worst", "usual", "after", "at"])
                .optional(&["after", "usual", "at"]);
        let width_max = LOCATION_WIDTH.min(page.width / 4);
        // Padding all cells of the last column to one width aligns them to the left.
        let location = |anomaly: &AnomalyReport| {
            anomaly.line.as_ref().map_or_else(dash, |line| line_safe(&line.fitted(width_max)).into_owned())
        };
        let shown = self.anomalies.list.iter().take(ANOMALIES_SHOWN);
        let widest = shown.clone().map(|anomaly| location(anomaly).chars().count()).max().unwrap_or(0);
        for anomaly in shown {
            table.row(vec![
                anomaly.name.clone(),
                count(anomaly.runs),
                duration(anomaly.over_ns),
                duration(anomaly.worst_ns),
                duration(anomaly.median_ns),
                duration(anomaly.at_ns),
                format!("{:<widest$}", location(anomaly)),
            ]);
        }
        let more = self.anomalies.list.iter().skip(ANOMALIES_SHOWN);
        let more = more.fold(self.anomalies.left_out, |sum, anomaly| sum.saturating_add(anomaly.runs));
        if more > 0 {
            table.row(vec!["of other kernels".to_owned(), count(more)]);
        }
        page.table(table, true);
        for anomaly in self.anomalies.list.iter().take(ANOMALIES_SHOWN) {
            if let Some(causes) = anomaly.causes() {
                page.paragraph(&format!("{}: {causes}", anomaly.name));
            }
        }
    }

    /// The lines that are charged with the most device time, or host time if no device time is known.
    pub(super) fn line_table(&self, page: &mut TextPage, rows: usize) {
        if self.lines.is_empty() {
            return;
        }
        let timed = self.counts.timed_operations > 0;
        let weight = |line: &LineReport| match timed {
            true => (line.charged_calls, line.charged_time_ns()),
            false => (line.charged_host_calls, Some(line.charged_host_ns)),
        };
        let no_line = match timed {
            true => (self.no_line.calls, self.no_line.time_ns()),
            false => (self.no_line.host_calls, self.no_line.host_total_ns),
        };
        let charged: Vec<&LineReport> = self.lines.iter().filter(|line| weight(line).0 > 0).collect();
        let sums = charged.iter().map(|line| weight(line)).fold(no_line, |(calls, sum_ns), (more, ns)| {
            (calls.saturating_add(more), sum_ns.saturating_add(ns.unwrap_or(0)))
        });
        let heading = if timed { "Where" } else { "Where (no device times)" };
        let time = if timed { "total" } else { "host time" };
        let shown = charged.get(..rows).unwrap_or(&charged);
        let mostly_width = page.width.saturating_sub(MOSTLY_BESIDE).min(MOSTLY_WIDTH);
        let mostly: Vec<String> = shown.iter().map(|line| mostly(line, mostly_width)).collect();
        let widest = mostly.iter().map(|text| text.chars().count()).max().unwrap_or(0);
        let has_mostly = timed && mostly_width >= MOSTLY_WIDTH_MIN;
        // Padding all cells of the last column to one width aligns them to the left.
        let last = |text: &str| has_mostly.then(|| format!("{text:<widest$}"));
        let is_estimated = timed && self.estimate.is_some();
        let mut header = vec![heading.to_owned(), "calls".to_owned(), time.to_owned(), "share".to_owned()];
        if is_estimated {
            header.insert(3, "error".to_owned());
        }
        header.extend(last("mostly"));
        let mut table = Table::new(&header.iter().map(String::as_str).collect::<Vec<_>>());
        let mut add = |name, calls, ns: Option<u64>, estimate: Option<EstimatedTime>, mostly: &str| {
            let share = ns.filter(|_| sums.1 > 0).map(|ns| ns as f64 / sums.1 as f64);
            let mut row =
                vec![name, count(calls), ns.map_or_else(dash, duration), share.map_or_else(dash, percent)];
            if let Some(estimate) = estimate.filter(|_| is_estimated) {
                row.insert(3, estimate.error_text());
            }
            row.extend(last(mostly));
            table.row(row);
        };
        for (line, mostly) in shown.iter().zip(&mostly) {
            let (calls, ns) = weight(line);
            add(line_safe(&line.location.text()).into_owned(), calls, ns, line.estimate, mostly);
        }
        if no_line.0 > 0 {
            add("(no Python line)".to_owned(), no_line.0, Some(no_line.1), self.no_line.estimate, "");
        }
        let name = format!("{} in all", plural(charged.len() as u64, "line", "lines"));
        table.row(vec![name, count(sums.0), duration(sums.1), String::new()]);
        let width = table.first_width(page.width);
        for (row, line) in shown.iter().enumerate() {
            table.rename(row, line_safe(&line.location.fitted(width)).into_owned());
        }
        page.table(table, true);
    }

    /// NVTX ranges. They can be nested, so there is no row with a sum.
    pub(super) fn range_table(&self, page: &mut TextPage, rows: usize) {
        let ranges: Vec<&RangeReport> =
            self.ranges.iter().filter(|range| range.calls + range.open + range.operations > 0).collect();
        if ranges.is_empty() {
            return;
        }
        let mut table =
            Table::new(&["Ranges (NVTX)", "calls", "host time", "GPU calls", "GPU time", "share"])
                .optional(&["GPU calls", "host time"]);
        for range in ranges.iter().take(rows) {
            let host = if range.calls > 0 { duration(range.host_total_ns) } else { dash() };
            table.row(vec![
                line_safe(&range.text()).into_owned(),
                count(range.calls.saturating_add(range.open)),
                host,
                count(range.operations),
                shown(range.estimate.as_ref(), range.device_total_ns).map_or_else(dash, duration),
                range.share.map_or_else(dash, percent),
            ]);
        }
        if let more @ 1.. = ranges.len().saturating_sub(rows) {
            table.row(vec![format!("and {}", plural(more as u64, "more range", "more ranges"))]);
        }
        page.table(table, false);
    }

    pub(super) fn transfer_table(&self, page: &mut TextPage) {
        let has_link = self.transfers.iter().any(|transfer| transfer.link_share.is_some());
        let mut header = vec!["Transfers", "calls", "bytes", "time", "bandwidth"];
        header.extend(has_link.then_some("of link"));
        let mut table = Table::new(&header);
        let mut add = |name: &str, moved: &MovedReport, link_share: Option<f64>| {
            if moved.calls > 0 {
                let mut row = vec![
                    name.to_owned(),
                    count(moved.calls),
                    bytes(moved.bytes),
                    moved.time_ns().map_or_else(dash, duration),
                    moved.bandwidth_mbps.filter(|rate| *rate > 0.0).map_or_else(dash, bandwidth),
                ];
                row.extend(has_link.then(|| link_share.map_or_else(String::new, percent)));
                table.row(row);
            }
        };
        for transfer in &self.transfers {
            let is_pageable = |copies: &MemoryCopyReport| [copies.source, copies.target].contains(&PAGEABLE);
            match transfer.by_memory.as_slice() {
                [only] if is_pageable(only) => {
                    let name = format!("{} ({PAGEABLE})", transfer.direction);
                    add(&name, &transfer.moved, transfer.link_share);
                }
                [] | [_] => add(transfer.direction, &transfer.moved, transfer.link_share),
                several => {
                    add(transfer.direction, &transfer.moved, transfer.link_share);
                    for copies in several {
                        let name = format!("  {} to {}", copies.source, copies.target);
                        add(&name, &copies.moved, copies.link_share);
                    }
                }
            }
            for copies in transfer.by_devices.iter().take(PARTS_SHOWN) {
                add(&format!("  {}", copies.text()), &copies.moved, None);
            }
        }
        add("memset", &self.memsets, None);
        page.table(table, false);
    }

    pub(super) fn call_table(&self, page: &mut TextPage) {
        const ROWS: [(&str, &str); 8] = [
            ("launch", "kernel launches"),
            ("graph_launch", "graph launches"),
            ("copy", "copies"),
            ("fill", "memsets"),
            ("wait", "waiting for the device"),
            ("module_load", "loading modules"),
            ("alloc", "allocating memory"),
            ("free", "freeing memory"),
        ];
        let mut table = Table::new(&["Time in calls", "calls", "total", "mean", "median", "p99", "max"])
            .optional(&["p99", "median", "max"]);
        let of_class = |class: &str| self.call_classes.iter().find(|call| call.class == class);
        for (title, call) in ROWS.iter().filter_map(|(class, title)| Some((title, of_class(class)?))) {
            table.row(spread_row((*title).to_owned(), call.calls, &call.spread));
        }
        page.table(table, false);
    }

    /// Graphs that were timed as a whole.
    pub(super) fn graph_table(&self, page: &mut TextPage) {
        let timed: Vec<&GraphReport> = self.graphs.iter().filter(|graph| graph.timed_calls > 0).collect();
        let mut table = Table::new(&["Graphs as a whole", "calls", "total", "mean", "median", "p99", "max"])
            .optional(&["p99", "median", "max"]);
        for graph in timed.iter().take(PARTS_SHOWN) {
            let spread = Spread { total_ns: graph.time_ns(), ..graph.spread };
            table.row(spread_row(self.of_process(graph.pid, &graph.label), graph.calls, &spread));
        }
        if let more @ 1.. = timed.len().saturating_sub(PARTS_SHOWN) {
            table.row(vec![format!("and {}", plural(more as u64, "more graph", "more graphs"))]);
        }
        page.table(table, false);
    }

    /// Where threads were while a device was idle, over all devices.
    pub(super) fn idle_table(&self, page: &mut TextPage) {
        if self.device_times == DeviceTimes::Windows {
            return;
        }
        let several = self.devices.len() > 1;
        let mut lines: Vec<(u32, &IdleLine)> = self
            .devices
            .iter()
            .flat_map(|device| device.idle.iter().map(|idle| (device.ordinal, idle)))
            .flat_map(|(ordinal, idle)| idle.lines.iter().map(move |line| (ordinal, line)))
            .filter(|(_, line)| line.share.is_some_and(|share| share >= IDLE_SHARE_MIN))
            .collect();
        lines.sort_by_key(|(_, line)| std::cmp::Reverse(line.ns));
        let mut header = vec!["Idle while at", "times", "idle", "of wall", "cause"];
        header.extend(several.then_some("GPU"));
        let mut table = Table::new(&header).optional(&["cause"]);
        for (ordinal, line) in lines.into_iter().take(IDLE_SHOWN) {
            let mut row = vec![
                line_safe(&line.text()).into_owned(),
                count(line.pieces),
                duration(line.ns),
                line.share.map_or_else(dash, percent),
                line.cause.name().to_owned(),
            ];
            row.extend(several.then(|| ordinal.to_string()));
            table.row(row);
        }
        page.table(table, false);
    }

    /// The threads' operations, if any thread has a name of its own.
    pub(super) fn thread_table(&self, page: &mut TextPage) {
        let threads: Vec<&ThreadReport> =
            self.threads.iter().filter(|thread| thread.operations > 0).collect();
        if threads.len() < 2 || !threads.iter().any(|thread| thread.is_named) {
            return;
        }
        let rows = threads.iter().map(|thread| Row {
            name: self.of_process(thread.pid, &thread.label),
            operations: thread.operations,
            device_total_ns: shown(thread.estimate.as_ref(), thread.device_total_ns),
            share: thread.share,
        });
        divided("Threads", "thread", rows, self.threads_left_out, page);
    }

    /// The streams' operations, if the program named any stream.
    pub(super) fn stream_table(&self, page: &mut TextPage) {
        if self.streams.len() < 2 || self.streams.iter().all(|stream| stream.name.is_none()) {
            return;
        }
        let rows = self.streams.iter().map(|stream| Row {
            name: self.of_process(stream.pid, &stream.label),
            operations: stream.operations,
            device_total_ns: shown(stream.estimate.as_ref(), stream.device_total_ns),
            share: stream.share,
        });
        divided("Streams", "stream", rows, self.streams_left_out, page);
    }

    fn of_process(&self, pid: u32, label: &str) -> String {
        let label = line_safe(label);
        if self.processes.len() > 1 { format!("{label} of process {pid}") } else { label.into_owned() }
    }
}

/// A row of the table of threads or streams.
struct Row {
    name: String,
    operations: u64,
    device_total_ns: Option<u64>,
    share: Option<f64>,
}

fn divided(heading: &str, one: &str, rows: impl Iterator<Item = Row>, left_out: u64, page: &mut TextPage) {
    let mut table = Table::new(&[heading, "calls", "GPU time", "share"]);
    let mut more = left_out;
    for (at, row) in rows.enumerate() {
        if at >= PARTS_SHOWN {
            more += 1;
            continue;
        }
        table.row(vec![
            row.name,
            count(row.operations),
            row.device_total_ns.map_or_else(dash, duration),
            row.share.map_or_else(dash, percent),
        ]);
    }
    if more > 0 {
        table.row(vec![format!("and {}", plural(more, &format!("more {one}"), &format!("more {one}s")))]);
    }
    page.table(table, false);
}

/// `sm90_gemm 81%`: the kernel with most of a line's time.
fn mostly(line: &LineReport, width: usize) -> String {
    let Some(first) = line.charged_kernels.first() else { return String::new() };
    let name = fit(&line_safe(&first.name), width);
    match (first.total_ns, line.charged_ns) {
        (Some(ns), Some(all_ns)) if ns < all_ns => format!("{name} {}", percent(ns as f64 / all_ns as f64)),
        _ => name,
    }
}

/// Name, calls, total, mean, median, 99th percentile and maximum.
fn spread_row(name: String, calls: u64, spread: &Spread) -> Vec<String> {
    vec![
        name,
        count(calls),
        spread.total_ns.map_or_else(dash, duration),
        spread.mean_ns.map_or_else(dash, |ns| duration(ns.round() as u64)),
        spread.median_ns.map_or_else(dash, duration),
        spread.p99_ns.map_or_else(dash, duration),
        spread.max_ns.map_or_else(dash, duration),
    ]
}

/// The unit of all durations of one table, so that digits can be compared between rows.
struct TimeUnit {
    name: &'static str,
    ns: f64,
}

impl TimeUnit {
    fn fitting(kernels: &[KernelReport]) -> TimeUnit {
        let shortest = kernels.iter().filter_map(|kernel| kernel.spread.median_ns).min().unwrap_or(0);
        match shortest {
            0..2_000_000 => TimeUnit { name: "µs", ns: 1e3 },
            _ => TimeUnit { name: "ms", ns: 1e6 },
        }
    }

    fn show(&self, ns: f64) -> String {
        let value = ns / self.ns;
        if value >= 999.5 { count(value.round() as u64) } else { digits(value) }
    }
}
