//! What tracing cost the processes.

use gputrace_wire::counter::Counter;

use crate::model::process_totals::Process;

#[derive(Clone, PartialEq, Debug, Default)]
pub struct CostSums {
    pub records_ns: f64,
    pub record_lag_max_ns: u64,
    pub sampled_hooks: u64,
    /// Of the hooks that were measured, and of all hooks at that rate.
    pub sampled_ns: f64,
    pub hooks_ns: f64,
}

impl CostSums {
    pub(super) fn add(&mut self, process: &Process) {
        let counters = &process.counters;
        self.records_ns += (counters.value(Counter::RecordTicks) as f64 * process.ns_per_tick).round();
        self.record_lag_max_ns = self.record_lag_max_ns.max(counters.value(Counter::RecordLagMaxNs));
        self.sampled_hooks = self.sampled_hooks.saturating_add(counters.sampled_hooks);
        if let Some(each_ns) = process.hook_cost_ns() {
            self.sampled_ns += each_ns * counters.sampled_hooks as f64;
            self.hooks_ns += each_ns * process.counts.hooks().saturating_add(counters.paused_calls()) as f64;
        }
    }
}
