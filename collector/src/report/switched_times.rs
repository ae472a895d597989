//! How much of a session has device times, where these were switched while it ran (`gputrace ctl … set`).

use gputrace_wire::counter::Counter;
use serde::Serialize;

use crate::label::units::{count, duration};
use crate::model::Totals;
use crate::model::recording::timed_intervals;
use crate::report::recording::{RecordedInterval, in_session};

/// Only in the report of sessions whose device times were switched.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SwitchedTimesReport {
    /// The time in which any process recorded with device times.
    pub timed_ns: u64,
    /// These times, since the begin of the first session.
    pub intervals: Vec<RecordedInterval>,
    pub intervals_left_out: u64,
    /// Operations that were executed meanwhile without device times. A graph launch counts as one.
    pub switched_off_operations: u64,
    /// Only where device times were taken in windows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub windows: Option<WindowsReport>,
}

/// The windows of all processes, as these counted them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WindowsReport {
    pub opened: u64,
    /// Those that something new triggered.
    pub triggered: u64,
    /// How long CUPTI took to switch on and off for them, in all.
    pub switch_on_ns: u64,
    pub switch_off_ns: u64,
}

pub(super) fn switched_times(totals: &Totals) -> Option<SwitchedTimesReport> {
    let intervals = timed_intervals(totals)?;
    let left_out: u64 = totals.processes.iter().map(|process| process.definitions.timed.left_out).sum();
    let beyond_ns = totals.processes.iter().map(|process| process.definitions.timed.beyond_ns);
    let (shown, more) = in_session(totals, &intervals);
    Some(SwitchedTimesReport {
        timed_ns: intervals.iter().map(|(from, to)| to - from).chain(beyond_ns).fold(0, u64::saturating_add),
        intervals_left_out: left_out + more,
        intervals: shown,
        switched_off_operations: totals.counts.switched_off,
        windows: Some(WindowsReport {
            opened: totals.counter(Counter::Windows),
            triggered: totals.counter(Counter::WindowsTriggered),
            switch_on_ns: totals.counter(Counter::SwitchOnNs),
            switch_off_ns: totals.counter(Counter::SwitchOffNs),
        })
        .filter(|windows| windows.opened > 0),
    })
}

impl SwitchedTimesReport {
    /// What the line of timed operations adds.
    pub(super) fn words(&self, wall_ns: u64) -> String {
        let off = count(self.switched_off_operations);
        let (timed, wall) = (duration(self.timed_ns), duration(wall_ns));
        format!("; device times were on for {timed} of {wall}, {off} operations came while they were off")
    }
}
