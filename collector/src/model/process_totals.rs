//! The totals of one process.

use crate::batch::{Counters, ProcessBegin, ProcessEnd};
use crate::model::counts::Counts;
use crate::model::definitions::Definitions;
use crate::model::in_flight::InFlight;
use crate::model::operation::HostCall;
use crate::model::ranges::Ranges;
use crate::names::EndedName;

/// Names that are told apart; the processes of more are one group.
pub(super) const GROUPS_MAX: usize = 1024;
/// The number of the first group. Processes are numbered from 0 on and never come so far.
pub(super) const FIRST_NUMBER: u32 = u32::MAX - GROUPS_MAX as u32 - 1;

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
    pub ranges: Ranges,
    pub ns_per_tick: f64,
    /// The first call that returned a sticky error ([`crate::model::sticky`]).
    pub failure: Option<HostCall>,
    /// Filled for a process that failed or vanished.
    pub in_flight: InFlight,
}

impl Process {
    /// A time on CLOCK_MONOTONIC as outputs show it: since tracing of the process began.
    pub fn since_begin_ns(&self, at_ns: u64) -> u64 {
        at_ns.saturating_sub(self.begin.start_monotonic_ns)
    }

    /// Whether it stands for processes that are told together ([`crate::model::Totals::together`]).
    pub fn stands_for_several(&self) -> bool {
        self.number >= FIRST_NUMBER
    }

    /// What those are called.
    pub fn ended_name(&self) -> Option<EndedName> {
        let name = || EndedName::new(&self.definitions.process().unwrap_or_default());
        self.stands_for_several().then(name)
    }

    /// About how many bytes of memory it takes to keep that.
    pub fn held_bytes(&self) -> usize {
        let parts = self.definitions.held_bytes() + self.ranges.held_bytes() + self.in_flight.held_bytes();
        size_of::<Process>() + parts
    }

    /// The mean cost of the hooks that were measured.
    pub fn hook_cost_ns(&self) -> Option<f64> {
        (self.counters.sampled_hooks > 0).then(|| {
            self.counters.sampled_ticks as f64 * self.ns_per_tick / self.counters.sampled_hooks as f64
        })
    }
}
