//! What is known of a process beside its events, while it goes on: for whoever adds up over time.

use gputrace_wire::counter::Counter;

use crate::batch::Counters;
use crate::model::counts::Counts;
use crate::model::loss::Loss;

/// Everything up to a moment of the stream; totals, never differences.
#[derive(Debug)]
pub struct ProcessSnapshot<'a> {
    /// The latest moment on CLOCK_MONOTONIC that anything in the stream tells of.
    pub at_ns: u64,
    pub counters: &'a Counters,
    pub counts: &'a Counts,
    pub(super) losses: Vec<(Loss, u64)>,
    pub ns_per_tick: f64,
}

impl ProcessSnapshot<'_> {
    /// What was lost, by the reason that reports give; none of them is 0.
    pub fn lost(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let known = self.losses.iter().map(|(loss, count)| (loss.name(), *count));
        known.chain(self.counters.losses().filter(|(_, count)| *count > 0))
    }

    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters.value(counter)
    }

    /// The time spent in hooks, as far as it was measured: the mean of those measured times their number.
    pub fn hooks_ns(&self) -> f64 {
        match self.counters.sampled_hooks {
            0 => 0.0,
            sampled => {
                let each_ns = self.counters.sampled_ticks as f64 * self.ns_per_tick / sampled as f64;
                each_ns * self.counts.host_calls() as f64
            }
        }
    }
}
