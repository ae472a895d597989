//! What a session recorded that was paused for a time, and what it only counted.

use gputrace_wire::counter::Counter;
use serde::Serialize;

use crate::label::units::{count, duration};
use crate::model::Totals;
use crate::model::recording::{all_intervals, recorded_intervals};

/// Intervals in the report.
const INTERVALS_MAX: usize = 1000;

/// Only in the report of sessions that were paused. All figures elsewhere are of what was recorded.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PausedReport {
    /// The time in which any process recorded.
    pub recorded_ns: u64,
    /// These times, since the begin of the first session.
    pub intervals: Vec<RecordedInterval>,
    pub intervals_left_out: u64,
    /// Calls that succeeded while the session was paused. They are in no other count.
    pub paused_launches: u64,
    pub paused_graph_launches: u64,
    pub paused_copies: u64,
    pub paused_memsets: u64,
    pub paused_waits: u64,
    /// Only where capture ranges were asked for.
    pub capture_ranges: Option<CaptureRangesReport>,
}

/// The capture ranges of all processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CaptureRangesReport {
    pub wanted: u64,
    pub begun: u64,
    pub ended: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RecordedInterval {
    pub begin_ns: u64,
    pub end_ns: u64,
}

/// Intervals since the begin of the first session, and how many are left out.
pub(super) fn in_session(totals: &Totals, intervals: &[(u64, u64)]) -> (Vec<RecordedInterval>, u64) {
    let begin_ns = totals.begin_monotonic_ns();
    let shown = intervals.iter().take(INTERVALS_MAX).map(|(from, to)| RecordedInterval {
        begin_ns: from.saturating_sub(begin_ns),
        end_ns: to.saturating_sub(begin_ns),
    });
    (shown.collect(), intervals.len().saturating_sub(INTERVALS_MAX) as u64)
}

pub(super) fn paused(totals: &Totals) -> Option<PausedReport> {
    let [launches, graph_launches, copies, memsets, waits] =
        Counter::PAUSED.map(|counter| totals.counter(counter));
    let intervals = recorded_intervals(totals);
    let capture_ranges = CaptureRangesReport {
        wanted: totals.counter(Counter::CaptureRangesWanted),
        begun: totals.counter(Counter::CaptureRangesBegun),
        ended: totals.counter(Counter::CaptureRangesEnded),
    };
    let capture_ranges = Some(capture_ranges).filter(|ranges| ranges.wanted > 0);
    if intervals.is_none()
        && capture_ranges.is_none()
        && [launches, graph_launches, copies, memsets, waits].iter().all(|calls| *calls == 0)
    {
        return None;
    }
    let intervals = intervals.unwrap_or_else(|| all_intervals(totals));
    let left_out: u64 = totals.processes.iter().map(|process| process.definitions.recorded.left_out).sum();
    let (shown, more) = in_session(totals, &intervals);
    Some(PausedReport {
        recorded_ns: intervals.iter().map(|(from, to)| to - from).sum(),
        intervals_left_out: left_out + more,
        intervals: shown,
        paused_launches: launches,
        paused_graph_launches: graph_launches,
        paused_copies: copies,
        paused_memsets: memsets,
        paused_waits: waits,
        capture_ranges,
    })
}

impl PausedReport {
    /// Calls that were only counted.
    pub(super) fn paused_calls(&self) -> u64 {
        let all = [
            self.paused_launches,
            self.paused_graph_launches,
            self.paused_copies,
            self.paused_memsets,
            self.paused_waits,
        ];
        all.into_iter().fold(0, u64::saturating_add)
    }

    pub(super) fn line(&self, wall_ns: u64) -> String {
        let intervals = match self.intervals.len() {
            1 => "1 interval".to_owned(),
            more => format!("{} intervals", count(more as u64 + self.intervals_left_out)),
        };
        let counted: Vec<String> = [
            (self.paused_launches, "launches"),
            (self.paused_graph_launches, "graph launches"),
            (self.paused_copies, "copies"),
            (self.paused_memsets, "memsets"),
            (self.paused_waits, "waits"),
        ]
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, what)| format!("{} {what}", count(*number)))
        .collect();
        let counted = match counted.is_empty() {
            true => String::new(),
            false => format!("; paused, only counted: {}", counted.join(", ")),
        };
        let ranges = self.capture_ranges.map(CaptureRangesReport::words).unwrap_or_default();
        format!("{} of {} in {intervals}{ranges}{counted}", duration(self.recorded_ns), duration(wall_ns))
    }
}

impl CaptureRangesReport {
    /// What is missing of them, if anything is.
    fn words(self) -> String {
        let ranges = |number: u64| match number {
            1 => "1 capture range".to_owned(),
            more => format!("{} capture ranges", count(more)),
        };
        let begun = match self.begun {
            0 => "; no capture range began".to_owned(),
            begun if begun < self.wanted => format!("; {} of {} began", count(begun), ranges(self.wanted)),
            _ => String::new(),
        };
        match self.begun.saturating_sub(self.ended) {
            0 => begun,
            open => format!("{begun}; {} did not end", ranges(open)),
        }
    }
}
