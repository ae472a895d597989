//! Whether tracing cost no more than a budget allowed, by what the traced processes measured meanwhile.

use gputrace_wire::counter::Counter;
use serde::Serialize;

use crate::label::units::{count, duration};
use crate::model::Totals;
use crate::student::t95;

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
    /// Half of the 95 % interval around the sum of these, by how the intervals differ in which it was
    /// measured; null with fewer than two.
    pub cost_error_ns: Option<u64>,
    /// Windows of device times, and those of them that something new triggered.
    pub windows: u64,
    pub triggered_windows: u64,
    /// The parts of `wall_ns`: all kernels had device times; those in windows; launches outside of windows
    /// were recorded without their stacks; they were only counted.
    pub full_ns: u64,
    pub windows_ns: u64,
    pub unstacked_ns: u64,
    pub counted_ns: u64,
    /// The time in which windows had the least part of the time that they can have.
    pub least_ns: u64,
}

/// Half of the 95 % interval around the mean of so many intervals' costs, by their sum and the sum of their
/// squares; `None` with fewer than two.
pub fn mean_error(intervals: u64, sum: u64, squares: u64) -> Option<f64> {
    let (n, sum, squares) = (intervals as f64, sum as f64, squares as f64);
    let variance = (squares - sum * sum / n).max(0.0) / (n - 1.0);
    (intervals >= 2).then(|| t95(n - 1.0) * (variance / n).sqrt())
}

pub(super) fn budget(totals: &Totals) -> Option<BudgetReport> {
    let of = |counter| totals.counter(counter);
    let wall_ns = of(Counter::BudgetWallNs);
    let error_ppm = mean_error(
        of(Counter::BudgetIntervals),
        of(Counter::BudgetCostPpm),
        of(Counter::BudgetCostPpmSquares),
    );
    let [full_ns, unstacked_ns, counted_ns] =
        [Counter::BudgetFullNs, Counter::BudgetUnstackedNs, Counter::BudgetCountedNs].map(of);
    let mut report = BudgetReport {
        wall_ns,
        allowed_ns: of(Counter::BudgetAllowedNs),
        is_kept: false,
        hooks_ns: of(Counter::BudgetHooksNs),
        records_ns: of(Counter::BudgetRecordsNs),
        switches_ns: of(Counter::BudgetSwitchesNs),
        cost_error_ns: error_ppm.map(|ppm| (ppm / 1e6 * wall_ns as f64).round() as u64),
        windows: of(Counter::Windows),
        triggered_windows: of(Counter::WindowsTriggered),
        full_ns,
        windows_ns: [full_ns, unstacked_ns, counted_ns].into_iter().fold(wall_ns, u64::saturating_sub),
        unstacked_ns,
        counted_ns,
        least_ns: of(Counter::BudgetLeastNs),
    };
    report.is_kept = report.cost_ns() <= report.allowed_ns;
    (report.wall_ns > 0).then_some(report)
}

impl BudgetReport {
    fn cost_ns(&self) -> u64 {
        self.hooks_ns.saturating_add(self.records_ns).saturating_add(self.switches_ns)
    }

    /// For how long what was recorded; nothing where windows were all.
    fn states(&self) -> String {
        let states = [
            (self.full_ns, "all device times"),
            (self.windows_ns, "windows"),
            (self.unstacked_ns, "stacks of sampled launches only"),
            (self.counted_ns, "counts of launches outside of windows only"),
        ];
        if states.iter().all(|(ns, what)| *ns == 0 || *what == "windows") {
            return String::new();
        }
        let states = states.iter().filter(|(ns, _)| *ns > 0);
        let words: Vec<String> = states.map(|(ns, what)| format!("{what} for {}", duration(*ns))).collect();
        format!("; {}", words.join(", "))
    }

    pub(super) fn words(&self) -> String {
        let share = |ns: u64| ns as f64 / self.wall_ns.max(1) as f64 * 100.0;
        let kept = if self.is_kept { "kept" } else { "not kept" };
        let error = self.cost_error_ns.map_or_else(String::new, |ns| format!(" ±{:.2}%", share(ns)));
        let least = match self.least_ns {
            0 => String::new(),
            ns => format!("; device times at their least for {}", duration(ns)),
        };
        format!(
            "{:.1}% {kept}: tracing cost {:.2}%{error} of {}, hooks {:.2}%, CUPTI's records {:.2}%, switches \
             {:.2}%, {} windows{}{least}",
            share(self.allowed_ns),
            share(self.cost_ns()),
            duration(self.wall_ns),
            share(self.hooks_ns),
            share(self.records_ns),
            share(self.switches_ns),
            count(self.windows),
            self.states(),
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
            cost_error_ns: None,
            windows: 1_200,
            triggered_windows: 3,
            full_ns: 0,
            windows_ns: 10_000_000_000,
            unstacked_ns: 0,
            counted_ns: 0,
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
        let saving = BudgetReport {
            cost_error_ns: Some(4_000_000),
            full_ns: 1_000_000_000,
            windows_ns: 2_000_000_000,
            unstacked_ns: 3_000_000_000,
            counted_ns: 4_000_000_000,
            ..kept
        };
        assert!(saving.words().contains("tracing cost 0.65% ±0.04% of 10.0 s, "), "{}", saving.words());
        assert!(
            saving.words().ends_with(
                ", 1,200 windows; all device times for 1.00 s, windows for 2.00 s, stacks of sampled launches \
                 only for 3.00 s, counts of launches outside of windows only for 4.00 s"
            ),
            "{}",
            saving.words()
        );
    }

    #[test]
    fn states_are_parts_of_the_time_and_the_error_is_that_of_a_mean() {
        let mut totals = Totals::default();
        for (counter, value) in [
            (Counter::BudgetWallNs, 3_000_000_000),
            (Counter::BudgetFullNs, 500_000_000),
            (Counter::BudgetUnstackedNs, 700_000_000),
            (Counter::BudgetCountedNs, 800_000_000),
            (Counter::BudgetIntervals, 3),
            (Counter::BudgetCostPpm, 30_000),
            (Counter::BudgetCostPpmSquares, 8_000 * 8_000 + 10_000 * 10_000 + 12_000 * 12_000),
        ] {
            totals.counters.values[counter as usize] = value;
        }
        let report = budget(&totals).unwrap();
        assert_eq!(report.windows_ns, 1_000_000_000);
        // 4.3027 × 2,000 ppm ÷ √3, of 3 s.
        let error_ns = report.cost_error_ns.unwrap();
        assert!(error_ns.abs_diff(14_905_000) < 1_000, "{error_ns}");
        totals.counters.values[Counter::BudgetIntervals as usize] = 1;
        assert_eq!(budget(&totals).unwrap().cost_error_ns, None);
    }
}
