//! The model's results at the end: processes, counts, and losses by reason.

use std::collections::BTreeMap;
use std::path::PathBuf;

use gputrace_wire::counter::Counter;

use crate::batch::{Excerpt, SessionBegin, SizeLimit};
use crate::model::counts::Counts;
use crate::model::definitions::Notice;
use crate::model::loss::Loss;
use crate::model::process_totals::Process;
use crate::model::unkept::Unkept;
use crate::trace_file::Damage;

/// One session of a collector: one trace file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Session {
    pub begin: SessionBegin,
    /// Set if the stream is only the last part of the session.
    pub excerpt: Option<Excerpt>,
    /// Set if the stream is only the first part of the session, from a file of limited size.
    pub size_limit: Option<SizeLimit>,
    /// As the collector measured it; `None` if the stream was not closed in order.
    pub wall_ns: Option<u64>,
    /// The latest time of anything in the stream, on CLOCK_MONOTONIC.
    pub last_seen_ns: u64,
    /// Processes that could not be recorded, and why.
    pub unrecorded: Vec<String>,
}

impl Session {
    /// The length of the session, measured or up to the last event.
    pub fn whole_length_ns(&self) -> u64 {
        self.wall_ns.unwrap_or_else(|| self.last_seen_ns.saturating_sub(self.begin.monotonic_ns))
    }

    /// The length of the part that the stream contains.
    pub fn length_ns(&self) -> u64 {
        match &self.excerpt {
            Some(excerpt) => excerpt.to_ns.saturating_sub(excerpt.from_ns),
            None => self.whole_length_ns(),
        }
    }

    /// When that part begins, on CLOCK_REALTIME.
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
    /// Those that ended and are told together with others of their name, a process for each name: it has
    /// their definitions and ranges, and no counts of its own. Among them are all that are not kept.
    pub together: Vec<Process>,
    pub told_together: u64,
    /// Those that are not kept.
    pub unkept: Unkept,
    /// Over all processes.
    pub counts: Counts,
    /// Files that were read only up to their first damage. Empty live.
    pub damages: Vec<(PathBuf, Damage)>,
    /// Processes that could not be recorded in one of the sessions, and why.
    pub unrecorded: Vec<String>,
    /// Processes whose `cuInit` failed, and what it returned; known live only.
    pub not_initialised: Vec<(u32, u16)>,
    pub(super) losses: BTreeMap<&'static str, u64>,
}

impl Totals {
    /// Notes that the trace file lacks this many entries, which the live counts contain.
    pub(crate) fn not_in_trace(&mut self, entries: u64) {
        if entries > 0 {
            *self.losses.entry(Loss::NotInTrace.name()).or_default() += entries;
        }
    }

    /// Losses by reason; none is 0.
    pub fn losses(&self) -> &BTreeMap<&'static str, u64> {
        &self.losses
    }

    /// A process-wide counter over all processes.
    pub fn counter(&self, counter: Counter) -> u64 {
        let kept = self.processes.iter().map(|process| &process.counters);
        kept.chain([&self.unkept.counters])
            .fold(0, |sum: u64, counters| sum.saturating_add(counters.value(counter)))
    }

    /// From the first session's begin to the last one's end, on CLOCK_REALTIME.
    pub fn wall_ns(&self) -> u64 {
        let begin = self.sessions.iter().map(Session::start_realtime_ns).min().unwrap_or(0);
        let end = self.sessions.iter().map(|s| s.start_realtime_ns().saturating_add(s.length_ns())).max();
        end.unwrap_or(0).saturating_sub(begin)
    }

    /// Whoever sinks name by number: the processes that are kept, and those that stand for several.
    pub fn named(&self) -> impl Iterator<Item = &Process> + Clone {
        self.processes.iter().chain(&self.together)
    }

    /// One that is kept.
    pub fn process(&self, number: u32) -> Option<&Process> {
        let at = self.processes.binary_search_by_key(&number, |process| process.number).ok()?;
        self.processes.get(at)
    }

    /// One that sinks name by number.
    pub fn named_process(&self, number: u32) -> Option<&Process> {
        let group = || self.together.iter().find(|process| process.number == number);
        self.process(number).or_else(group)
    }

    /// Every process's notices, with the process's number.
    pub fn notices(&self) -> impl Iterator<Item = (u32, &Notice)> {
        self.processes
            .iter()
            .flat_map(|process| process.definitions.notices().iter().map(|notice| (process.number, notice)))
    }

    /// Whether any driver or device is simulated.
    pub fn simulated(&self) -> bool {
        self.unkept.simulated || self.processes.iter().any(|process| process.definitions.simulated())
    }
}
