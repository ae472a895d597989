//! The results of a session or of traces, in every form that is written or printed.

use std::collections::BTreeMap;
use std::env;
use std::os::fd::AsRawFd;

use gputrace_collector::aggregate::Aggregates;
use gputrace_collector::flame::Flame;
use gputrace_collector::label::Labels;
use gputrace_collector::model::Totals;
use gputrace_collector::otlp::ExportStatus;
use gputrace_collector::report::named::{self, TableFormat};
use gputrace_collector::report::{PartReport, Report, TextOptions, grouped_count};

use crate::cli::settings::Flames;

/// The width of a page that is written there: what `COLUMNS` says, else the terminal's.
pub fn page_width(output: &impl AsRawFd) -> Option<usize> {
    let asked = env::var("COLUMNS").ok().and_then(|columns| columns.trim().parse().ok());
    asked.filter(|width| *width > 0).or_else(|| terminal_width(output))
}

#[derive(Debug)]
pub struct Analysis {
    report: Report,
    flame: Flame,
    /// If it is wanted and any idle time is known.
    idle: Option<Flame>,
}

impl Analysis {
    pub fn new(totals: &Totals, aggregates: &Aggregates, flames: &Flames) -> Analysis {
        let mut labels = Labels::new(totals, aggregates);
        let report = Report::with(totals, aggregates, &mut labels);
        let flame = Flame::with(totals, aggregates, &mut labels, flames.ranges, &flames.group_by);
        let idle = flames.idle.then(|| Flame::of_idle(totals, aggregates, &mut labels));
        let idle = idle.filter(|idle| !idle.lines.is_empty());
        Analysis { report, flame, idle }
    }

    /// The same, of what was selected of the traces.
    pub fn of_part(self, part: PartReport) -> Analysis {
        Analysis { report: self.report.of_part(part), flame: self.flame.of_part(), ..self }
    }

    /// The report and the flamegraph.
    pub fn into_parts(self) -> (Report, Flame) {
        (self.report, self.flame)
    }

    pub fn report(&self) -> &Report {
        &self.report
    }

    /// The report for programs, with how spans were sent if they were.
    pub fn json(&self, sent: Option<&ExportStatus>) -> String {
        self.report.to_json_with(sent)
    }

    /// The report for people in a file or a pipe.
    pub fn summary(&self, verbose: bool) -> String {
        self.report.to_text(&TextOptions { verbose, ..TextOptions::default() })
    }

    /// The same, as wide as the terminal that it is written to.
    pub fn summary_on(&self, output: &impl AsRawFd, verbose: bool) -> String {
        let plain = TextOptions { verbose, ..TextOptions::default() };
        self.report.to_text(&TextOptions { width: page_width(output).unwrap_or(plain.width), ..plain })
    }

    /// Single tables of the report.
    pub fn tables(&self, names: &[String], format: TableFormat) -> String {
        named::print(&named::tables(&self.report, names), format)
    }

    /// Whether the flamegraph has no line.
    pub fn has_empty_flame(&self) -> bool {
        self.flame.lines.is_empty()
    }

    pub fn flame(&self) -> &Flame {
        &self.flame
    }

    /// The flamegraph of idle time, if it was asked for and any is known.
    pub fn idle(&self) -> Option<&Flame> {
        self.idle.as_ref()
    }

    /// Losses by reason, their counts as they are read; only reasons that apply.
    pub fn losses(&self) -> BTreeMap<&str, String> {
        let dropped = self.report.dropped.iter().map(|(reason, count)| (reason.as_str(), *count));
        let untimed = self.report.counts.untimed_operations;
        let untimed = (untimed > 0).then_some(("device_times", untimed));
        dropped.chain(untimed).map(|(reason, count)| (reason, grouped_count(count))).collect()
    }

    /// Host calls and executed operations that were recorded, as their number is read.
    pub fn events(&self) -> String {
        grouped_count(self.report.counts.host_calls + self.report.counts.executed_operations)
    }

    /// Whether any call or operation was recorded.
    pub fn has_events(&self) -> bool {
        self.report.counts.host_calls + self.report.counts.executed_operations > 0
    }
}

/// The columns of a terminal; `None` if it is no terminal or its width is unknown.
fn terminal_width(output: &impl AsRawFd) -> Option<usize> {
    // SAFETY: a winsize of zeroes is a valid one.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: TIOCGWINSZ writes one winsize, which outlives the call, and fails on what is no
    // terminal.
    let answered = unsafe { libc::ioctl(output.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) } == 0;
    (answered && size.ws_col > 0).then_some(usize::from(size.ws_col))
}
