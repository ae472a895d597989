//! A process's counters at one moment, for sinks that report them over time.

use gputrace_wire::counter::Counter;

use crate::batch::Counters;
use crate::model::counts::Counts;
use crate::model::loss::Loss;

/// Totals since the process began, up to a moment of the stream.
#[derive(Debug)]
pub struct ProcessSnapshot<'a> {
    /// The latest time of anything in the stream, on CLOCK_MONOTONIC.
    pub at_ns: u64,
    pub counters: &'a Counters,
    pub counts: &'a Counts,
    pub(super) losses: Vec<(Loss, u64)>,
    pub ns_per_tick: f64,
}

impl ProcessSnapshot<'_> {
    /// Losses by the reason that reports name; none is 0.
    pub fn lost(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let known = self.losses.iter().map(|(loss, count)| (loss.name(), *count));
        known.chain(self.counters.losses().filter(|(_, count)| *count > 0))
    }

    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters.value(counter)
    }

    /// The mean cost of the hooks that were measured.
    pub fn hook_cost_ns(&self) -> Option<f64> {
        self.counters.hook_cost_ns(self.ns_per_tick)
    }

    /// An estimate of the time spent in hooks: the mean of the measured hooks times the number of all hooks.
    pub fn hooks_ns(&self) -> f64 {
        let hooks = self.counts.hooks().saturating_add(self.counters.paused_calls());
        self.hook_cost_ns().unwrap_or(0.0) * hooks as f64
    }
}
