//! What is estimated where only a part of the operations has device times, and how certain that is.

use std::hash::Hash;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::aggregate::{Aggregates, Estimate, EstimatedRow, Estimation, Leaf};
use crate::label::units::{count, duration, percent};
use crate::label::{KernelNames, StackFrame, StackNames};
use crate::model::Totals;
use crate::report::json::{ReportCounts, is_zero, share};
use crate::report::{KernelReport, LineReport, MovedReport, NoLineReport};

/// Device time of operations with and without device times.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EstimatedTime {
    /// What was measured, and the estimate for other operations.
    pub total_ns: u64,
    /// Half of the 95 % interval around `total_ns`.
    pub error_ns: u64,
    /// Operations that are estimated.
    pub estimated_calls: u64,
    /// Half of the 95 % interval around the row's number of operations: launches whose stack was not taken
    /// are where others of their kernel were. Absent where the number is exact.
    #[serde(skip_serializing_if = "is_zero")]
    pub calls_error: u64,
    /// Operations that are neither measured nor estimated, since none like them was.
    pub unmeasured_calls: u64,
}

impl EstimatedTime {
    pub(super) fn new(measured_ns: u64, estimate: &Estimate) -> EstimatedTime {
        EstimatedTime {
            total_ns: measured_ns.saturating_add(estimate.ns.round() as u64),
            error_ns: estimate.error_ns.round() as u64,
            estimated_calls: estimate.calls,
            calls_error: estimate.calls_error.round() as u64,
            unmeasured_calls: estimate.unmeasured,
        }
    }

    /// The error as a share of the total, if there is any time.
    pub fn error_share(&self) -> Option<f64> {
        (self.total_ns > 0).then(|| self.error_ns as f64 / self.total_ns as f64)
    }

    /// The total, if anything was measured or estimated.
    pub(super) fn known_ns(&self) -> Option<u64> {
        (self.total_ns > 0).then_some(self.total_ns)
    }

    /// `±1.2%`; nothing where all is measured.
    pub(super) fn error_text(&self) -> String {
        match self.error_share() {
            Some(share) if self.estimated_calls > 0 => format!("±{}", percent(share)),
            _ => String::new(),
        }
    }
}

/// The whole session, where its device times were taken in windows or were switched.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EstimateReport {
    #[serde(flatten)]
    pub time: EstimatedTime,
    /// The measured part of `total_ns`, and its operations.
    pub measured_ns: u64,
    pub measured_calls: u64,
    /// Windows with operations, those that were scheduled and those that something new opened. Of a session
    /// whose device times were switched, the intervals in which they were on, from the second one on.
    pub windows: u64,
    pub triggered_windows: u64,
    /// Operations that were launched in windows, and those of them whose device times were lost.
    pub window_operations: u64,
    pub window_operations_lost: u64,
}

/// The estimates of a report's rows.
pub(super) struct ReportEstimates {
    pub estimation: Estimation,
    pub report: EstimateReport,
}

impl ReportEstimates {
    /// `None` where device times were taken throughout, or not at all.
    pub(super) fn new(totals: &Totals, aggregates: &Aggregates) -> Option<ReportEstimates> {
        let estimation = Estimation::new(aggregates.estimates.as_ref()?);
        let measured_ns = aggregates.device_stacks.total_ns();
        let windows = estimation.windows;
        let report = EstimateReport {
            time: EstimatedTime::new(measured_ns, &estimation.total()),
            measured_ns,
            measured_calls: totals.counts.timed,
            windows: windows.scheduled,
            triggered_windows: windows.triggered,
            window_operations: windows.operations,
            window_operations_lost: windows.lost,
        };
        Some(ReportEstimates { estimation, report })
    }

    /// A row's part of the whole.
    pub(super) fn share(&self, time: &EstimatedTime) -> Option<f64> {
        share(time.known_ns(), self.report.time.total_ns)
    }

    /// Sums of what is not measured, by one group for each row.
    pub(super) fn by<G: Hash + Eq>(
        &self,
        mut group: impl FnMut(&EstimatedRow) -> Option<G>,
    ) -> FxHashMap<G, Estimate> {
        self.estimation.sums(|row, groups| groups.extend(group(row)))
    }

    /// By kernel, under its full name.
    pub(super) fn kernels(&self, names: &mut KernelNames<'_>) -> FxHashMap<Arc<str>, Estimate> {
        self.by(|row| match row.key.leaf {
            Leaf::Kernel(name) if names.has_process(row.key.process) => {
                Some(names.name(row.key.process, name).full)
            }
            _ => None,
        })
    }

    /// By the line that stacks are charged to; `None` for those without one.
    pub(super) fn lines(&self, stacks: &mut StackNames<'_>) -> FxHashMap<Option<StackFrame>, Estimate> {
        self.by(|row| {
            let frames = stacks.frames(row.key.process, row.key.stack);
            Some(stacks.charged(&frames).cloned())
        })
    }
}

impl EstimateReport {
    /// `GPU time from 9.8% of the operations in 1,204 windows: 3.21 s ±1.2%`.
    pub(super) fn lines(&self, counts: &ReportCounts) -> Vec<String> {
        let time = &self.time;
        let operations = counts.executed_operations.saturating_sub(counts.host_to_host);
        let measured = match operations {
            0 => String::new(),
            _ => {
                format!(" from {} of the operations", percent(self.measured_calls as f64 / operations as f64))
            }
        };
        let windows = match self.windows {
            0 => String::new(),
            1 => " in 1 window".to_owned(),
            many => format!(" in {} windows", count(many)),
        };
        let total = duration(time.total_ns);
        let mut lines = vec![format!("GPU time{measured}{windows}: {total} {}", time.error_text())];
        if time.unmeasured_calls > 0 {
            lines.push(match time.unmeasured_calls {
                1 => "without 1 operation of which none like it was timed".to_owned(),
                many => format!("without {} operations of which none like them was timed", count(many)),
            });
        }
        let (unstacked, counted) = (counts.unstacked_launches, counts.counted_launches);
        if unstacked + counted > 0 {
            lines.push(format!(
                "calls and times by line with {} launches without a stack, of which {} were only counted: they \
                 are where others of their kernels were in windows",
                count(unstacked.saturating_add(counted)),
                count(counted)
            ));
        }
        if self.window_operations_lost > 0 {
            lines.push(format!(
                "{} of {} operations in windows came without device times",
                count(self.window_operations_lost),
                count(self.window_operations)
            ));
        }
        lines
    }
}

/// What the report shows as a row's device time: the estimate where there is one, else what was measured.
pub(super) fn shown(estimate: Option<&EstimatedTime>, measured_ns: Option<u64>) -> Option<u64> {
    estimate.map_or(measured_ns, EstimatedTime::known_ns)
}

impl KernelReport {
    /// Its device time, estimated where not all of it was measured.
    pub fn time_ns(&self) -> Option<u64> {
        shown(self.estimate.as_ref(), self.spread.total_ns)
    }
}

impl LineReport {
    /// The device time that is charged to it, estimated where not all of it was measured.
    pub fn charged_time_ns(&self) -> Option<u64> {
        shown(self.estimate.as_ref(), self.charged_ns)
    }
}

impl NoLineReport {
    /// Its device time, estimated where not all of it was measured.
    pub fn time_ns(&self) -> u64 {
        self.estimate.map_or(self.total_ns, |estimate| estimate.total_ns)
    }
}

impl MovedReport {
    /// Its device time, estimated where not all of it was measured.
    pub fn time_ns(&self) -> Option<u64> {
        shown(self.estimate.as_ref(), self.spread.total_ns)
    }
}
