//! What those processes come to of which nothing is kept: each has its place in all sums.

use std::collections::BTreeMap;

use gputrace_wire::counter::Counter;
use gputrace_wire::definition::rung;

use crate::batch::{Counters, ProcessEnd};
use crate::model::process_totals::Process;

/// Why operations have no device times, as far as is known; the order is that of the notices.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Untimed {
    Vanished,
    Running,
    Exec,
    /// The trace ends before the process does.
    Cut,
    Unusable,
    NoRecord,
}

impl Process {
    /// Its operations whose device times were wanted and never came, by cause: none of a process that did not take
    /// times throughout, of which a notice says so.
    pub fn untimed(&self) -> [(Untimed, u64); 2] {
        let missing = match self.definitions.rung() {
            rung::HOOKS | rung::WINDOWS => 0,
            _ => self.counts.on_devices().saturating_sub(self.counts.timed),
        };
        let unusable = self.counts.invalid_timing.min(missing);
        let cause = match self.end {
            Some((ProcessEnd::Vanished, _)) => Untimed::Vanished,
            Some((ProcessEnd::Running, _)) => Untimed::Running,
            Some((ProcessEnd::Exec, _)) => Untimed::Exec,
            Some((ProcessEnd::Exit, _)) => Untimed::NoRecord,
            None => Untimed::Cut,
        };
        [(Untimed::Unusable, unusable), (cause, missing - unusable)]
    }
}

/// Such operations of some processes, the last of which had that process id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Missing {
    pub operations: u64,
    pub processes: u64,
    pub pid: u32,
}

/// What tracing costs some processes.
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
    pub fn add(&mut self, process: &Process) {
        let counters = &process.counters;
        self.records_ns += (counters.value(Counter::RecordTicks) as f64 * process.ns_per_tick).round();
        self.record_lag_max_ns = self.record_lag_max_ns.max(counters.value(Counter::RecordLagMaxNs));
        self.sampled_hooks = self.sampled_hooks.saturating_add(counters.sampled_hooks);
        if let Some(each_ns) = process.hook_cost_ns() {
            self.sampled_ns += each_ns * counters.sampled_hooks as f64;
            self.hooks_ns += each_ns * process.counts.host_calls() as f64;
        }
    }
}

/// All of them.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Unkept {
    pub counters: Counters,
    pub untimed: BTreeMap<Untimed, Missing>,
    pub cost: CostSums,
    /// Whether any took times in windows, or none at all, or was a simulation.
    pub windows: bool,
    pub hooks: bool,
    pub simulated: bool,
}

impl Unkept {
    pub fn add(&mut self, process: &Process) {
        self.counters.add(&process.counters);
        add_untimed(&mut self.untimed, process);
        self.cost.add(process);
        self.windows |= process.definitions.rung() == rung::WINDOWS;
        self.hooks |= process.definitions.rung() == rung::HOOKS;
        self.simulated |= process.definitions.simulated();
    }
}

pub fn add_untimed(sums: &mut BTreeMap<Untimed, Missing>, process: &Process) {
    for (cause, operations) in process.untimed() {
        if operations > 0 {
            let sum = sums.entry(cause).or_default();
            sum.operations += operations;
            sum.processes += 1;
            sum.pid = process.begin.pid;
        }
    }
}
