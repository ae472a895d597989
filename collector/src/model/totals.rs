//! What the model knows at the end: processes, counts, and what was lost by reason.

use std::collections::BTreeMap;
use std::path::PathBuf;

use gputrace_wire::counter::Counter;

use crate::batch::{Excerpt, SeriesFile, SessionBegin, SizeLimit};
use crate::model::counts::Counts;
use crate::model::definitions::Notice;
use crate::model::loss::Loss;
use crate::model::process_totals::Process;
use crate::model::unkept::Unkept;
use crate::trace_file::Damage;

/// One session of the recorder: one trace file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Session {
    pub begin: SessionBegin,
    /// Where the stream is the last part of the session's only.
    pub excerpt: Option<Excerpt>,
    /// Where the stream is the first part of the session's only, from a file of limited size.
    pub size_limit: Option<SizeLimit>,
    /// Where the stream was cut into files: which of them were read.
    pub series: Option<Series>,
    /// As the recorder measured it; `None` if the stream was not closed in order.
    pub wall_ns: Option<u64>,
    /// The latest moment on CLOCK_MONOTONIC that anything in the stream tells of.
    pub last_seen_ns: u64,
    /// Processes that should be in it and are not, and why.
    pub unrecorded: Vec<String>,
}

/// The files of a series that were read, by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Series {
    pub first: u32,
    pub last: u32,
    /// Files before the last one that were not read.
    pub missing: u32,
    /// Whether the stream goes on in a file that was not read.
    pub goes_on: bool,
    /// When the first file begins, on CLOCK_MONOTONIC; `None`: with the session.
    pub begin_ns: Option<u64>,
}

impl Series {
    /// The first file does not begin with a number.
    pub(super) const FIRST_FILE: Series =
        Series { first: 1, last: 1, missing: 0, goes_on: false, begin_ns: None };
}

impl From<SeriesFile> for Series {
    /// The series as read if it begins with that file.
    fn from(file: SeriesFile) -> Series {
        let SeriesFile { number, cut_ns, .. } = file;
        let missing = number.saturating_sub(1);
        Series { first: number, last: number, missing, goes_on: false, begin_ns: Some(cut_ns) }
    }
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
            None => self.whole_length_ns().saturating_sub(self.before_series_ns()),
        }
    }

    /// The time before the first file of a series that was read.
    fn before_series_ns(&self) -> u64 {
        let begin_ns = self.series.and_then(|series| series.begin_ns).unwrap_or(0);
        begin_ns.saturating_sub(self.begin.monotonic_ns)
    }

    /// When that begins, on CLOCK_REALTIME.
    fn start_realtime_ns(&self) -> u64 {
        let before_ns = self.excerpt.as_ref().map(|e| e.from_ns.saturating_sub(self.begin.monotonic_ns));
        self.begin.realtime_ns.saturating_add(before_ns.unwrap_or_else(|| self.before_series_ns()))
    }
}

/// Everything at the end.
#[derive(Debug, Default)]
pub struct Totals {
    pub sessions: Vec<Session>,
    /// Those that are kept, by number.
    pub processes: Vec<Process>,
    /// Those that ended and are told together with others of their name, a process for each name: it has their
    /// definitions and ranges, and no counts of its own. Among them are all that are not kept.
    pub together: Vec<Process>,
    pub told_together: u64,
    /// Those that are not kept.
    pub unkept: Unkept,
    /// Over all processes.
    pub counts: Counts,
    /// Files that were read to their first damage only; nothing of that is known live.
    pub damages: Vec<(PathBuf, Damage)>,
    /// Processes that should be in one of the sessions and are not, and why.
    pub unrecorded: Vec<String>,
    /// Processes whose `cuInit` failed, and what it returned; known live only.
    pub not_initialised: Vec<(u32, u16)>,
    pub(super) losses: BTreeMap<&'static str, u64>,
}

impl Totals {
    /// Live: the trace file lacks so many entries, which are counted here.
    pub(crate) fn not_in_trace(&mut self, entries: u64) {
        if entries > 0 {
            *self.losses.entry(Loss::NotInTrace.name()).or_default() += entries;
        }
    }

    /// What was lost, by reason; only reasons that apply.
    pub fn losses(&self) -> &BTreeMap<&'static str, u64> {
        &self.losses
    }

    /// A process-wide counter over all processes.
    pub fn counter(&self, counter: Counter) -> u64 {
        let kept = self.processes.iter().map(|process| &process.counters);
        kept.chain([&self.unkept.counters])
            .fold(0, |sum: u64, counters| sum.saturating_add(counters.value(counter)))
    }

    /// From the first session's begin to the last one's end, on the clock that they share.
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

    /// Whether any driver or device said that it is a simulation.
    pub fn simulated(&self) -> bool {
        self.unkept.simulated || self.processes.iter().any(|process| process.definitions.simulated())
    }
}
