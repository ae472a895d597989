//! The totals of one process.

use crate::batch::{Counters, ProcessBegin, ProcessEnd};
use crate::model::counts::Counts;
use crate::model::definitions::Definitions;
use crate::model::in_flight::InFlight;
use crate::model::loss::Loss;
use crate::model::operation::HostCall;
use crate::model::ranges::Ranges;

/// One process of a session.
#[derive(Debug, Default)]
pub struct Process {
    /// Number over all sessions read, as sinks see it.
    pub number: u32,
    pub begin: ProcessBegin,
    /// How and when it ended; `None` if unknown.
    pub end: Option<(ProcessEnd, u64)>,
    pub definitions: Definitions,
    /// Its last counters; 0 throughout if there were none.
    pub counters: Counters,
    pub counts: Counts,
    /// What was lost of it beside what its counters say, by reason.
    pub losses: Vec<(Loss, u64)>,
    pub ranges: Ranges,
    pub ns_per_tick: f64,
    /// The first call that returned a sticky error ([`crate::model::sticky`]).
    pub failure: Option<HostCall>,
    /// Filled for a process that failed or vanished.
    pub in_flight: InFlight,
    /// The end of its last event, on CLOCK_MONOTONIC; its own end, if that is known.
    pub last_seen_ns: u64,
}

impl Process {
    /// A time on CLOCK_MONOTONIC as outputs show it: since tracing of the process began.
    pub fn since_begin_ns(&self, at_ns: u64) -> u64 {
        at_ns.saturating_sub(self.begin.start_monotonic_ns)
    }

    /// What was lost of it, by the name of the reason.
    pub fn lost(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let losses = self.losses.iter().map(|(loss, count)| (loss.name(), *count));
        losses.chain(self.counters.losses())
    }

    /// About how many bytes of memory it takes to keep that.
    pub fn held_bytes(&self) -> usize {
        let parts = self.definitions.held_bytes() + self.ranges.held_bytes() + self.in_flight.held_bytes();
        size_of::<Process>() + parts
    }

    /// The mean cost of the hooks that were measured.
    pub fn hook_cost_ns(&self) -> Option<f64> {
        self.counters.hook_cost_ns(self.ns_per_tick)
    }
}
