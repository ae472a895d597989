//! The model's results at the end: processes, counts, and losses by reason.

use std::collections::BTreeMap;
use std::path::PathBuf;

use gputrace_wire::counter::Counter;
use gputrace_wire::definition::rung;

use crate::batch::{Counters, Excerpt, SeriesFile, SessionBegin, SizeLimit};
use crate::model::cost::CostSums;
use crate::model::counts::Counts;
use crate::model::definitions::Notice;
use crate::model::evicted::Evicted;
use crate::model::loss::Loss;
use crate::model::process_totals::Process;
use crate::model::untimed::{self, Missing, Untimed};
use crate::trace_file::Damage;

/// One session of a collector: one trace file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Session {
    pub begin: SessionBegin,
    /// Set if the stream is only the last part of the session.
    pub excerpt: Option<Excerpt>,
    /// Set if the stream is only the first part of the session, from a file of limited size.
    pub size_limit: Option<SizeLimit>,
    /// Where the stream was cut into files: which of them were read.
    pub series: Option<Series>,
    /// As the collector measured it; `None` if the stream was not closed in order.
    pub wall_ns: Option<u64>,
    /// The latest time of anything in the stream, on CLOCK_MONOTONIC.
    pub last_seen_ns: u64,
    /// Processes that could not be recorded, and why.
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
    /// The length of the session, measured or up to the last event.
    pub fn whole_length_ns(&self) -> u64 {
        self.wall_ns.unwrap_or_else(|| self.last_seen_ns.saturating_sub(self.begin.monotonic_ns))
    }

    /// The length of the part that the stream contains.
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

    /// When that part begins, on CLOCK_REALTIME.
    pub(crate) fn start_realtime_ns(&self) -> u64 {
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
    /// Files that were read only up to their first damage. Empty live.
    pub damages: Vec<(PathBuf, Damage)>,
    /// Processes that could not be recorded in one of the sessions, and why.
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

    /// Replaces what is counted by the counts of what was selected, by process. Missing times and the cost of
    /// tracing are not known of a selection. Processes are all kept, so that names are those of the whole.
    pub fn narrow(&mut self, mut selected: BTreeMap<u32, Counts>) {
        // Where no operation of a device lacks its times, those without times are copies by the host.
        if self.counts.timed == self.counts.on_devices() {
            for counts in selected.values_mut() {
                counts.host_to_host = counts.executed.saturating_sub(counts.timed);
            }
        }
        self.counts = Counts::default();
        selected.values().for_each(|counts| self.counts.add(counts));
        for process in &mut self.processes {
            process.counts = selected.get(&process.number).cloned().unwrap_or_default();
        }
        (self.evicted, self.untimed, self.cost) = Default::default();
    }

    /// Replaces the counts of operations, by process, by those of the same recording with device times in
    /// windows.
    pub fn in_windows(&mut self, counted: &BTreeMap<u32, Counts>) {
        self.any_in_windows = true;
        for process in &mut self.processes {
            let Some(of) = counted.get(&process.number) else { continue };
            self.counts.replace_operations(&process.counts, of);
            let before = process.counts.clone();
            process.counts.replace_operations(&before, of);
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

    /// Notes that the trace file lacks this many entries, which the live counts contain.
    pub(crate) fn not_in_trace(&mut self, entries: u64) {
        self.lose(Loss::NotInTrace.name(), entries);
    }

    /// Losses by reason; none is 0.
    pub fn losses(&self) -> &BTreeMap<&'static str, u64> {
        &self.losses
    }

    /// A process-wide counter over all processes.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters.value(counter)
    }

    /// From the first session's begin to the last one's end, on CLOCK_REALTIME.
    pub fn wall_ns(&self) -> u64 {
        let begin = self.sessions.iter().map(Session::start_realtime_ns).min().unwrap_or(0);
        let end = self.sessions.iter().map(|s| s.start_realtime_ns().saturating_add(s.length_ns())).max();
        end.unwrap_or(0).saturating_sub(begin)
    }

    /// When the first session began.
    pub fn begin_monotonic_ns(&self) -> u64 {
        self.sessions.iter().map(|session| session.begin.monotonic_ns).min().unwrap_or(0)
    }

    /// When the last session ended, or the part of it that the stream contains, on CLOCK_MONOTONIC.
    pub fn end_monotonic_ns(&self) -> u64 {
        self.sessions.last().map_or(0, |session| match &session.excerpt {
            Some(excerpt) => excerpt.to_ns,
            None => session.begin.monotonic_ns.saturating_add(session.whole_length_ns()),
        })
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
