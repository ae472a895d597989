//! What the model knows at the end: processes, counts, and what was lost by reason.

use std::collections::BTreeMap;
use std::path::PathBuf;

use gputrace_wire::counter::Counter;
use gputrace_wire::definition::rung;

use crate::batch::{Counters, Excerpt, SessionBegin, SizeLimit};
use crate::model::cost::CostSums;
use crate::model::counts::Counts;
use crate::model::definitions::Notice;
use crate::model::evicted::Evicted;
use crate::model::loss::Loss;
use crate::model::process_totals::Process;
use crate::model::untimed::{self, Missing, Untimed};
use crate::trace_file::Damage;

/// One session of the recorder: one trace file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Session {
    pub begin: SessionBegin,
    /// Where the stream is the last part of the session's only.
    pub excerpt: Option<Excerpt>,
    /// Where the stream is the first part of the session's only, from a file of limited size.
    pub size_limit: Option<SizeLimit>,
    /// As the recorder measured it; `None` if the stream was not closed in order.
    pub wall_ns: Option<u64>,
    /// The latest moment on CLOCK_MONOTONIC that anything in the stream tells of.
    pub last_seen_ns: u64,
    /// Processes that should be in it and are not, and why.
    pub unrecorded: Vec<String>,
}

impl Session {
    /// The length of the session: measured, or as far as the stream tells.
    pub fn whole_length_ns(&self) -> u64 {
        self.wall_ns.unwrap_or_else(|| self.last_seen_ns.saturating_sub(self.begin.monotonic_ns))
    }

    /// The length of what the stream tells of.
    pub fn length_ns(&self) -> u64 {
        match &self.excerpt {
            Some(excerpt) => excerpt.to_ns.saturating_sub(excerpt.from_ns),
            None => self.whole_length_ns(),
        }
    }

    /// When that begins, on CLOCK_REALTIME.
    fn start_realtime_ns(&self) -> u64 {
        let before_ns = self.excerpt.as_ref().map(|e| e.from_ns.saturating_sub(self.begin.monotonic_ns));
        self.begin.realtime_ns.saturating_add(before_ns.unwrap_or(0))
    }
}

/// Everything at the end.
#[derive(Debug, Default)]
pub struct Totals {
    pub sessions: Vec<Session>,
    /// Those that are kept, by number.
    pub processes: Vec<Process>,
    /// The sums of those that are not kept. They are in everything below too, which is of all processes.
    pub evicted: Evicted,
    pub counts: Counts,
    pub counters: Counters,
    pub untimed: BTreeMap<Untimed, Missing>,
    pub cost: CostSums,
    /// Whether any of them took device times in windows, or none at all.
    pub any_in_windows: bool,
    pub any_on_hooks: bool,
    /// Whether the driver or device of any said that it is a simulation.
    pub simulated: bool,
    /// Files that were read to their first damage only; nothing of that is known live.
    pub damages: Vec<(PathBuf, Damage)>,
    /// Processes that should be in one of the sessions and are not, and why.
    pub unrecorded: Vec<String>,
    /// Processes whose `cuInit` failed, and what it returned; known live only.
    pub not_initialised: Vec<(u32, u16)>,
    pub(super) losses: BTreeMap<&'static str, u64>,
}

impl Totals {
    pub(super) fn lose(&mut self, reason: &'static str, count: u64) {
        if count > 0 {
            let total = self.losses.entry(reason).or_default();
            *total = total.saturating_add(count);
        }
    }

    /// Adds a process to all sums.
    pub(super) fn add(&mut self, process: &Process) {
        process.lost().for_each(|(reason, count)| self.lose(reason, count));
        self.counts.add(&process.counts);
        self.counters.add(&process.counters);
        untimed::add(&mut self.untimed, process);
        self.cost.add(process);
        self.any_in_windows |= process.definitions.rung() == rung::WINDOWS;
        self.any_on_hooks |= process.definitions.rung() == rung::HOOKS;
        self.simulated |= process.definitions.simulated();
    }

    /// A process that is in the sums is not kept.
    pub(super) fn evict(&mut self, process: &Process) {
        self.evicted.add(process);
        self.lose(Loss::ProcessesNotKept.name(), 1);
    }

    /// Live: the trace file lacks so many entries, which are counted here.
    pub(crate) fn not_in_trace(&mut self, entries: u64) {
        self.lose(Loss::NotInTrace.name(), entries);
    }

    /// What was lost, by reason; only reasons that apply.
    pub fn losses(&self) -> &BTreeMap<&'static str, u64> {
        &self.losses
    }

    /// A process-wide counter over all processes.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters.value(counter)
    }

    /// From the first session's begin to the last one's end, on the clock that they share.
    pub fn wall_ns(&self) -> u64 {
        let begin = self.sessions.iter().map(Session::start_realtime_ns).min().unwrap_or(0);
        let end = self.sessions.iter().map(|s| s.start_realtime_ns().saturating_add(s.length_ns())).max();
        end.unwrap_or(0).saturating_sub(begin)
    }

    /// One that is kept.
    pub fn process(&self, number: u32) -> Option<&Process> {
        let at = self.processes.binary_search_by_key(&number, |process| process.number).ok()?;
        self.processes.get(at)
    }

    /// Every process's notices, with the process's number.
    pub fn notices(&self) -> impl Iterator<Item = (u32, &Notice)> {
        self.processes
            .iter()
            .flat_map(|process| process.definitions.notices().iter().map(|notice| (process.number, notice)))
    }
}
