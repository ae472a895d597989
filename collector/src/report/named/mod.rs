//! The report's tables one by one: `gputrace report --report NAME`.
//!
//! Tables that mean what one of nsys's means have its name and its headings. nsys's standard deviations
//! are left out: the histograms that durations are kept in do not have them.
//! `docs/reference/report-tables.md` lists the tables.

mod allocations;
mod copies;
mod format;
mod inside;
mod launches;

use std::fmt;

use crate::report::EstimatedTime;
use crate::report::json::{Report, Spread};
use crate::report::lines::CodeLocation;

pub use format::{TableFormat, markdown_safe, print};

/// A table's value.
#[derive(Clone, PartialEq, Debug)]
pub enum Cell {
    Text(String),
    Count(u64),
    /// With one decimal.
    Figure(f64),
    /// A time that is estimated in part. In a printed table the error has a column of its own.
    Estimated(EstimatedTime),
    Missing,
}

/// A table with its rows, the most important first.
#[derive(Clone, PartialEq, Debug)]
pub struct NamedTable {
    pub name: &'static str,
    pub title: &'static str,
    pub columns: Vec<&'static str>,
    pub rows: Vec<Vec<Cell>>,
}

/// A name for which there is no table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownTable(pub String);

impl fmt::Display for UnknownTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<&str> = names().collect();
        write!(f, "there is no report named {:?}; the reports are {}", self.0, known.join(", "))
    }
}

struct TableKind {
    name: &'static str,
    title: &'static str,
    columns: &'static [&'static str],
    rows: fn(&Report) -> Vec<Vec<Cell>>,
}

/// Those printed where a format was chosen and no table.
pub const DEFAULT: [&str; 4] = ["lines", "cuda_gpu_kern_sum", "cuda_gpu_mem_time_sum", "cuda_api_sum"];

static KINDS: [TableKind; 17] = [
    TableKind {
        name: "findings",
        title: "What costs time, and what would help",
        columns: &["Could Save (%)", "Could Save (ns)", "Rule", "Lines", "Advice", "Finding"],
        rows: findings,
    },
    TableKind {
        name: "lines",
        title: "GPU time by line of the program",
        columns: &["Time (%)", "Total Time (ns)", "Operations", "Host Calls", "Host Time (ns)", "Line"],
        rows: lines,
    },
    TableKind {
        name: "torch_modules",
        title: "GPU time by PyTorch module",
        columns: &inside::columns("Module"),
        rows: inside::modules,
    },
    TableKind {
        name: "torch_ops",
        title: "GPU time by PyTorch operator",
        columns: &inside::columns("Operator"),
        rows: inside::operators,
    },
    TableKind {
        name: "cuda_gpu_kern_sum",
        title: "Kernels",
        columns: &[
            "Time (%)",
            "Total Time (ns)",
            "Instances",
            "Avg (ns)",
            "Med (ns)",
            "Min (ns)",
            "Max (ns)",
            "StdDev (ns)",
            "Name",
        ],
        rows: kernels,
    },
    TableKind {
        name: "cuda_kern_exec_sum",
        title: "Kernels from the begin of the launch on",
        columns: &[
            "Count",
            "QCount",
            "TAvg (ns)",
            "AAvg (ns)",
            "AMax (ns)",
            "QAvg (ns)",
            "QMax (ns)",
            "KAvg (ns)",
            "Shorter",
            "Name",
        ],
        rows: launches::by_kernel,
    },
    TableKind {
        name: "line_exec_sum",
        title: "Launches by line, from the begin of the launch on",
        columns: &[
            "Count",
            "QCount",
            "TAvg (ns)",
            "AAvg (ns)",
            "AMax (ns)",
            "QAvg (ns)",
            "QMax (ns)",
            "KAvg (ns)",
            "Shorter",
            "Line",
        ],
        rows: launches::by_line,
    },
    TableKind {
        name: "cuda_gpu_mem_time_sum",
        title: "Copies and memsets by time",
        columns: &[
            "Time (%)",
            "Total Time (ns)",
            "Count",
            "Avg (ns)",
            "Med (ns)",
            "Min (ns)",
            "Max (ns)",
            "StdDev (ns)",
            "Operation",
        ],
        rows: copies::times,
    },
    TableKind {
        name: "cuda_gpu_mem_size_sum",
        title: "Copies and memsets by size",
        columns: &["Total (MB)", "Count", "Avg (MB)", "Bandwidth (MB/s)", "Operation"],
        rows: copies::sizes,
    },
    TableKind {
        name: "peer_copies",
        title: "Copies between devices by pair",
        columns: &[
            "Time (%)",
            "Total Time (ns)",
            "Count",
            "Total (MB)",
            "Bandwidth (MB/s)",
            "From",
            "To",
            "Devices",
        ],
        rows: copies::peers,
    },
    TableKind {
        name: "line_alloc_sum",
        title: "Allocations of the driver by line",
        columns: &[
            "Time (%)",
            "Total Time (ns)",
            "Allocations",
            "Frees",
            "Freed At Once",
            "Allocated (MB)",
            "Live At Most (MB)",
            "PID",
            "Kind",
            "Line",
        ],
        rows: allocations::by_line,
    },
    TableKind {
        name: "cuda_api_sum",
        title: "Calls of the CUDA driver",
        columns: &[
            "Time (%)",
            "Total Time (ns)",
            "Num Calls",
            "Avg (ns)",
            "Med (ns)",
            "Min (ns)",
            "Max (ns)",
            "StdDev (ns)",
            "Name",
        ],
        rows: calls,
    },
    TableKind {
        name: "nvtx_sum",
        title: "NVTX ranges by host time",
        columns: &["Time (%)", "Total Time (ns)", "Instances", "Avg (ns)", "Range"],
        rows: range_times,
    },
    TableKind {
        name: "nvtx_gpu_sum",
        title: "NVTX ranges by the GPU time of what was launched in them",
        columns: &["Time (%)", "Total Time (ns)", "Operations", "Range"],
        rows: range_work,
    },
    TableKind {
        name: "threads",
        title: "Threads",
        columns: &["Time (%)", "Total Time (ns)", "Operations", "Host Calls", "PID", "TID", "Thread"],
        rows: threads,
    },
    TableKind {
        name: "streams",
        title: "Streams",
        columns: &["Time (%)", "Total Time (ns)", "Operations", "PID", "Device", "Stream"],
        rows: streams,
    },
    TableKind {
        name: "devices",
        title: "Devices",
        columns: &["Busy (%)", "Busy Time (ns)", "Operations", "Timed Operations", "UUID", "Device"],
        rows: devices,
    },
];

/// The tables' names.
pub fn names() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.name)
}

/// # Errors
/// The first name for which there is no table.
pub fn check(names: &[String]) -> Result<(), UnknownTable> {
    match names.iter().find(|name| kind(name).is_none()) {
        Some(unknown) => Err(UnknownTable(unknown.clone())),
        None => Ok(()),
    }
}

/// The tables of these names, in their order, without those that [`check`] rejects.
pub fn tables(report: &Report, names: &[String]) -> Vec<NamedTable> {
    let table = |kind: &TableKind| NamedTable {
        name: kind.name,
        title: kind.title,
        columns: kind.columns.to_vec(),
        rows: (kind.rows)(report),
    };
    let table = |kind: &TableKind| with_errors(table(kind));
    names.iter().filter_map(|name| kind(name)).map(table).collect()
}

/// The same with each estimated time in two columns: the time, and half of its 95 % interval.
fn with_errors(mut table: NamedTable) -> NamedTable {
    let is_estimated = |row: &Vec<Cell>| row.iter().position(|cell| matches!(cell, Cell::Estimated(_)));
    let Some(column) = table.rows.iter().find_map(is_estimated) else { return table };
    table.columns.insert(column + 1, "Error (ns)");
    for row in &mut table.rows {
        let error = match row.get(column) {
            Some(Cell::Estimated(estimate)) => Cell::Count(estimate.error_ns),
            _ => Cell::Missing,
        };
        row.insert(column + 1, error);
        if let Some(cell) = row.get_mut(column)
            && let Cell::Estimated(estimate) = cell
        {
            *cell = time(estimate.known_ns());
        }
    }
    table
}

fn kind(name: &str) -> Option<&'static TableKind> {
    KINDS.iter().find(|kind| kind.name == name)
}

fn time(ns: Option<u64>) -> Cell {
    ns.map_or(Cell::Missing, Cell::Count)
}

/// A time, estimated where not all of it was measured.
fn estimated(estimate: Option<EstimatedTime>, measured_ns: Option<u64>) -> Cell {
    estimate.map_or_else(|| time(measured_ns), Cell::Estimated)
}

fn percent(share: Option<f64>) -> Cell {
    share.map_or(Cell::Missing, |share| Cell::Figure(share * 100.0))
}

fn part(ns: Option<u64>, all_ns: u64) -> Cell {
    percent(ns.filter(|_| all_ns > 0).map(|ns| ns as f64 / all_ns as f64))
}

/// Share, total, calls, mean, median, least, most: the first seven columns of nsys's sums.
fn sums(share: Cell, calls: u64, estimate: Option<EstimatedTime>, spread: &Spread) -> Vec<Cell> {
    vec![
        share,
        estimated(estimate, spread.total_ns),
        Cell::Count(calls),
        spread.mean_ns.map_or(Cell::Missing, Cell::Figure),
        time(spread.median_ns),
        time(spread.min_ns),
        time(spread.max_ns),
        spread.deviation_ns.map_or(Cell::Missing, Cell::Figure),
    ]
}

fn with(mut cells: Vec<Cell>, label: impl Into<String>) -> Vec<Cell> {
    cells.push(Cell::Text(label.into()));
    cells
}

fn location(location: &CodeLocation) -> String {
    let file = location.file.as_deref().unwrap_or("?");
    match location.line {
        Some(line) => format!("{file}:{line} {}", location.function),
        None => format!("{file} {}", location.function),
    }
}

fn findings(report: &Report) -> Vec<Vec<Cell>> {
    let list = report.findings.iter().flat_map(|findings| &findings.list);
    list.map(|finding| {
        let lines: Vec<String> = finding.lines.iter().map(CodeLocation::text).collect();
        vec![
            Cell::Figure(finding.saves.share * 100.0),
            Cell::Count(finding.saves.ns),
            Cell::Text(finding.rule.to_owned()),
            Cell::Text(lines.join(", ")),
            Cell::Text(finding.advice.clone()),
            Cell::Text(finding.title.clone()),
        ]
    })
    .collect()
}

/// Those with work or calls of their own: a line is not counted for what it called.
fn lines(report: &Report) -> Vec<Vec<Cell>> {
    let is_charged = |calls: u64, host_calls: u64| calls > 0 || host_calls > 0;
    let charged = report.lines.iter().filter(|line| is_charged(line.charged_calls, line.charged_host_calls));
    let mut rows: Vec<_> = charged.collect();
    rows.sort_by_key(|line| std::cmp::Reverse((line.charged_time_ns(), line.charged_host_ns)));
    rows.iter()
        .map(|line| {
            let figures = vec![
                percent(line.charged_share),
                estimated(line.estimate, line.charged_ns),
                Cell::Count(line.charged_calls),
                Cell::Count(line.charged_host_calls),
                Cell::Count(line.charged_host_ns),
            ];
            with(figures, location(&line.location))
        })
        .collect()
}

fn kernels(report: &Report) -> Vec<Vec<Cell>> {
    let row = |kernel: &crate::report::KernelReport| {
        with(
            sums(percent(kernel.share), kernel.calls, kernel.estimate, &kernel.spread),
            kernel.full_name.as_str(),
        )
    };
    report.kernels.iter().map(row).collect()
}

fn calls(report: &Report) -> Vec<Vec<Cell>> {
    let all_ns = report.calls.iter().filter_map(|call| call.spread.total_ns).fold(0, u64::saturating_add);
    let row = |call: &crate::report::CallReport| {
        with(sums(part(call.spread.total_ns, all_ns), call.calls, None, &call.spread), call.name.as_str())
    };
    report.calls.iter().map(row).collect()
}

fn range_times(report: &Report) -> Vec<Vec<Cell>> {
    let all_ns = report.ranges.iter().map(|range| range.host_total_ns).fold(0, u64::saturating_add);
    let mut all: Vec<_> = report.ranges.iter().filter(|range| range.calls > 0).collect();
    all.sort_by_key(|range| std::cmp::Reverse(range.host_total_ns));
    all.iter()
        .map(|range| {
            let figures = vec![
                part(Some(range.host_total_ns), all_ns),
                Cell::Count(range.host_total_ns),
                Cell::Count(range.calls),
                Cell::Figure(range.host_total_ns as f64 / range.calls as f64),
            ];
            with(figures, range.text())
        })
        .collect()
}

fn range_work(report: &Report) -> Vec<Vec<Cell>> {
    let all = report.ranges.iter().filter(|range| range.operations > 0);
    all.map(|range| {
        let figures = vec![
            percent(range.share),
            estimated(range.estimate, range.device_total_ns),
            Cell::Count(range.operations),
        ];
        with(figures, range.text())
    })
    .collect()
}

fn threads(report: &Report) -> Vec<Vec<Cell>> {
    let row = |thread: &crate::report::ThreadReport| {
        let figures = vec![
            percent(thread.share),
            estimated(thread.estimate, thread.device_total_ns),
            Cell::Count(thread.operations),
            Cell::Count(thread.host_calls),
            Cell::Count(thread.pid.into()),
            Cell::Count(thread.tid.into()),
        ];
        with(figures, thread.label.as_str())
    };
    report.threads.iter().map(row).collect()
}

fn streams(report: &Report) -> Vec<Vec<Cell>> {
    let row = |stream: &crate::report::StreamReport| {
        let figures = vec![
            percent(stream.share),
            estimated(stream.estimate, stream.device_total_ns),
            Cell::Count(stream.operations),
            Cell::Count(stream.pid.into()),
            stream.device.map_or(Cell::Missing, |device| Cell::Count(device as u64)),
        ];
        with(figures, stream.label.as_str())
    };
    report.streams.iter().map(row).collect()
}

fn devices(report: &Report) -> Vec<Vec<Cell>> {
    let row = |device: &crate::report::DeviceReport| {
        let figures = vec![
            part(device.busy_ns, report.wall_ns),
            time(device.busy_ns),
            Cell::Count(device.operations),
            Cell::Count(device.timed_operations),
            device.uuid.clone().map_or(Cell::Missing, Cell::Text),
        ];
        with(figures, device.name.as_str())
    };
    report.devices.iter().map(row).collect()
}
