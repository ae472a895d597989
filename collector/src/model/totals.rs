//! What the model knows at the end: processes, counts, and what was lost by reason.

use std::collections::BTreeMap;
use std::path::PathBuf;

use gputrace_wire::cell::kind;
use gputrace_wire::counter::Counter;

use crate::batch::{Counters, Excerpt, ProcessBegin, ProcessEnd, SessionBegin, SizeLimit};
use crate::model::definitions::{Definitions, Notice};
use crate::model::in_flight::InFlight;
use crate::model::loss::Loss;
use crate::model::namesakes;
use crate::model::operation::HostCall;
use crate::model::ranges::Ranges;
use crate::model::unkept::Unkept;
use crate::names::EndedName;
use crate::trace_file::Damage;

/// Kinds counted by number; the rest is [`Counts::unknown_kinds`].
const KINDS: usize = 96;

/// What was counted, by process or over all of them. The words mean the same everywhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Kernel launches that the driver took for execution.
    pub launches: u64,
    /// Launches, of kernels or graphs, on a stream that was being captured: they execute nothing.
    pub captured_launches: u64,
    pub graph_launches: u64,
    /// Copy and fill calls that the driver took for execution.
    pub copies: u64,
    pub fills: u64,
    /// Launches, copies and fills that the driver refused.
    pub failed: u64,
    /// Copies and fills on a stream that was being captured.
    pub captured_others: u64,
    /// Device records whose host call is not known.
    pub device_only: u64,
    /// Operations that a device executed or, without a record, was asked to execute.
    pub executed: u64,
    /// Executed operations with valid device times.
    pub timed: u64,
    /// Executed copies that no device had a part in, so that there are no device times to be had: from host to
    /// host, or of no bytes. [`crate::model::host_copies`] has the rules.
    pub host_to_host: u64,
    /// Device records whose times cannot be used.
    pub invalid_timing: u64,
    /// Records of graph launches that came as a whole and by node, in the form that came second: the
    /// first one counts; a whole after some of its nodes is none of these, and has the time that they leave.
    pub doubled_graph_records: u64,
    /// Calls given up on because more were waiting for their records than are remembered.
    pub evicted_calls: u64,
    /// Records given up on because more were waiting for their calls than are remembered.
    pub evicted_records: u64,
    /// Entries of kinds that this version does not know.
    pub unknown_kinds: u64,
    by_kind: [u64; KINDS],
}

impl Default for Counts {
    fn default() -> Self {
        Counts {
            launches: 0,
            captured_launches: 0,
            graph_launches: 0,
            copies: 0,
            fills: 0,
            failed: 0,
            captured_others: 0,
            device_only: 0,
            executed: 0,
            timed: 0,
            host_to_host: 0,
            invalid_timing: 0,
            doubled_graph_records: 0,
            evicted_calls: 0,
            evicted_records: 0,
            unknown_kinds: 0,
            by_kind: [0; KINDS],
        }
    }
}

impl Counts {
    pub(super) fn entry(&mut self, kind: u16) {
        if let Some(count) = self.by_kind.get_mut(usize::from(kind)) {
            *count += 1;
        }
    }

    /// A launch, copy or fill that the driver accepted.
    #[inline]
    pub(super) fn accepted(&mut self, kind: u16, captured: bool) {
        let count = match (kind, captured) {
            (kind::LAUNCH, false) => &mut self.launches,
            (kind::GRAPH_LAUNCH, false) => &mut self.graph_launches,
            (kind::COPY, false) => &mut self.copies,
            (kind::FILL, false) => &mut self.fills,
            (kind::LAUNCH | kind::GRAPH_LAUNCH, true) => &mut self.captured_launches,
            _ => &mut self.captured_others,
        };
        *count += 1;
    }

    /// Entries of a kind, one of [`gputrace_wire::cell::kind`].
    pub fn entries(&self, kind: u16) -> u64 {
        self.by_kind.get(usize::from(kind)).copied().unwrap_or(0)
    }

    /// Entries that are host calls.
    pub fn host_calls(&self) -> u64 {
        (kind::LAUNCH..=kind::CALL).map(|kind| self.entries(kind)).sum()
    }

    /// Operations that a device had a part in.
    pub fn on_devices(&self) -> u64 {
        self.executed.saturating_sub(self.host_to_host)
    }

    /// Those of them with valid times over all of them; 1 if there are none.
    pub fn device_time_coverage(&self) -> f64 {
        if self.on_devices() == 0 { 1.0 } else { self.timed as f64 / self.on_devices() as f64 }
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Counts) {
        self.launches += other.launches;
        self.captured_launches += other.captured_launches;
        self.graph_launches += other.graph_launches;
        self.copies += other.copies;
        self.fills += other.fills;
        self.failed += other.failed;
        self.captured_others += other.captured_others;
        self.device_only += other.device_only;
        self.executed += other.executed;
        self.timed += other.timed;
        self.host_to_host += other.host_to_host;
        self.invalid_timing += other.invalid_timing;
        self.doubled_graph_records += other.doubled_graph_records;
        self.evicted_calls += other.evicted_calls;
        self.evicted_records += other.evicted_records;
        self.unknown_kinds += other.unknown_kinds;
        for (to, from) in self.by_kind.iter_mut().zip(other.by_kind) {
            *to += from;
        }
    }
}

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

/// One process of a session.
#[derive(Debug, Default)]
pub struct Process {
    /// Number over all sessions read, as sinks see it.
    pub number: u32,
    pub begin: ProcessBegin,
    /// How it ended, and when; `None` if the stream does not say.
    pub end: Option<(ProcessEnd, u64)>,
    pub definitions: Definitions,
    /// Its last counters; 0 throughout if there were none.
    pub counters: Counters,
    pub counts: Counts,
    pub ranges: Ranges,
    pub ns_per_tick: f64,
    /// The first call that returned an error that stays ([`crate::model::sticky`]).
    pub failure: Option<HostCall>,
    /// Of a process that failed or vanished.
    pub in_flight: InFlight,
}

impl Process {
    /// A moment of CLOCK_MONOTONIC as people are told it: since tracing of the process began.
    pub fn since_begin_ns(&self, at_ns: u64) -> u64 {
        at_ns.saturating_sub(self.begin.start_monotonic_ns)
    }

    /// Whether it stands for processes that are told together ([`Totals::together`]).
    pub fn stands_for_several(&self) -> bool {
        self.number >= namesakes::FIRST_NUMBER
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

    /// The measured cost of one hook, over the calls where it was measured.
    pub fn hook_cost_ns(&self) -> Option<f64> {
        (self.counters.sampled_hooks > 0).then(|| {
            self.counters.sampled_ticks as f64 * self.ns_per_tick / self.counters.sampled_hooks as f64
        })
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
