//! Whether tracing cost no more than a budget allowed, by what the traced processes measured meanwhile.

use gputrace_wire::counter::Counter;
use serde::Serialize;

use crate::label::units::{count, duration};
use crate::model::Totals;

/// Only in the report of sessions with a budget. Sums over processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BudgetReport {
    /// The time over which the cost was measured, and what tracing was allowed to cost in it.
    pub wall_ns: u64,
    pub allowed_ns: u64,
    /// Whether the cost is at most what is allowed.
    pub is_kept: bool,
    /// The measured cost: hooks and CUPTI's callbacks, CUPTI's records, the switches of windows.
    pub hooks_ns: u64,
    pub records_ns: u64,
    pub switches_ns: u64,
    /// Windows of device times, and those of them that something new triggered.
    pub windows: u64,
    pub triggered_windows: u64,
    /// The time in which windows had the least part of the time that they can have.
    pub least_ns: u64,
}

pub(super) fn budget(totals: &Totals) -> Option<BudgetReport> {
    let of = |counter| totals.counter(counter);
    let mut report = BudgetReport {
        wall_ns: of(Counter::BudgetWallNs),
        allowed_ns: of(Counter::BudgetAllowedNs),
        is_kept: false,
        hooks_ns: of(Counter::BudgetHooksNs),
        records_ns: of(Counter::BudgetRecordsNs),
        switches_ns: of(Counter::BudgetSwitchesNs),
        windows: of(Counter::Windows),
        triggered_windows: of(Counter::WindowsTriggered),
        least_ns: of(Counter::BudgetLeastNs),
    };
    report.is_kept = report.cost_ns() <= report.allowed_ns;
    (report.wall_ns > 0).then_some(report)
}

impl BudgetReport {
    fn cost_ns(&self) -> u64 {
        self.hooks_ns.saturating_add(self.records_ns).saturating_add(self.switches_ns)
    }

    pub(super) fn words(&self) -> String {
        let share = |ns: u64| ns as f64 / self.wall_ns.max(1) as f64 * 100.0;
        let kept = if self.is_kept { "kept" } else { "not kept" };
        let least = match self.least_ns {
            0 => String::new(),
            ns => format!("; device times at their least for {}", duration(ns)),
        };
        format!(
            "{:.1}% {kept}: tracing cost {:.2}% of {}, hooks {:.2}%, CUPTI's records {:.2}%, switches {:.2}%, \
             {} windows{least}",
            share(self.allowed_ns),
            share(self.cost_ns()),
            duration(self.wall_ns),
            share(self.hooks_ns),
            share(self.records_ns),
            share(self.switches_ns),
            count(self.windows),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_is_kept_where_the_parts_add_up_to_no_more() {
        let kept = BudgetReport {
            wall_ns: 10_000_000_000,
            allowed_ns: 100_000_000,
            is_kept: true,
            hooks_ns: 40_000_000,
            records_ns: 20_000_000,
            switches_ns: 5_000_000,
            windows: 1_200,
            triggered_windows: 3,
            least_ns: 0,
        };
        assert_eq!(
            kept.words(),
            "1.0% kept: tracing cost 0.65% of 10.0 s, hooks 0.40%, CUPTI's records 0.20%, switches 0.05%, \
             1,200 windows"
        );
        let exceeded = BudgetReport { is_kept: false, least_ns: 2_000_000_000, ..kept };
        assert!(exceeded.words().starts_with("1.0% not kept: "), "{}", exceeded.words());
        assert!(
            exceeded.words().ends_with("; device times at their least for 2.00 s"),
            "{}",
            exceeded.words()
        );
    }
}
