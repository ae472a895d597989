//! The tables of launches, from the begin of the call to the end of the kernel.

use super::{Cell, location, time, with};
use crate::report::json::{LaunchesReport, Report};

pub(super) fn by_kernel(report: &Report) -> Vec<Vec<Cell>> {
    let named = |kernel: &crate::report::KernelReport| Some((kernel.launches?, kernel.full_name.clone()));
    rows(report.kernels.iter().filter_map(named))
}

/// Lines with the launches that are charged to them, and the launches without a line.
pub(super) fn by_line(report: &Report) -> Vec<Vec<Cell>> {
    let named = |line: &crate::report::LineReport| Some((line.launches?, location(&line.location)));
    let no_line = report.no_line.launches.filter(|_| !report.lines.is_empty());
    let no_line = no_line.map(|launches| (launches, "(no Python line)".to_owned()));
    rows(report.lines.iter().filter_map(named).chain(no_line))
}

/// Those with the most time from the begin of the launch to the end of the kernel first.
fn rows(all: impl Iterator<Item = (LaunchesReport, String)>) -> Vec<Vec<Cell>> {
    let row = |(launches, label): (LaunchesReport, String)| {
        let figures = vec![
            Cell::Count(launches.calls),
            Cell::Count(launches.queued_calls),
            Cell::Figure(launches.total_mean_ns),
            Cell::Figure(launches.api_mean_ns),
            Cell::Count(launches.api_max_ns),
            launches.queue_mean_ns.map_or(Cell::Missing, Cell::Figure),
            time(launches.queue_max_ns),
            Cell::Figure(launches.kernel_mean_ns),
            Cell::Count(launches.shorter_calls),
        ];
        (launches.total_mean_ns * launches.calls as f64, with(figures, label))
    };
    let mut rows: Vec<(f64, Vec<Cell>)> = all.map(row).collect();
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    rows.into_iter().map(|(_, cells)| cells).collect()
}
