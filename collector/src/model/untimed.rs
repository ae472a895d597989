//! Operations whose device times were wanted and never came, by cause.

use std::collections::BTreeMap;

use gputrace_wire::definition::rung;

use crate::batch::ProcessEnd;
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

/// Such operations of some processes, the last of which had that process id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Missing {
    pub operations: u64,
    pub processes: u64,
    pub pid: u32,
}

impl Process {
    /// Its operations without device times, by cause. There are none of a process that did not take times
    /// throughout: a notice of its own says so.
    pub(super) fn untimed(&self) -> [(Untimed, u64); 2] {
        let missing = match self.definitions.rung() {
            rung::HOOKS | rung::WINDOWS => 0,
            _ => self.counts.on_devices().saturating_sub(self.counts.timed + self.counts.switched_off),
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

pub(super) fn add(sums: &mut BTreeMap<Untimed, Missing>, process: &Process) {
    for (cause, operations) in process.untimed().into_iter().filter(|(_, operations)| *operations > 0) {
        let sum = sums.entry(cause).or_default();
        sum.operations += operations;
        sum.processes += 1;
        sum.pid = process.begin.pid;
    }
}
