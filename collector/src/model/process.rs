//! One process in the model: its rings, clocks, join and counts.

mod entries;
mod ranges;
mod ring;

use rustc_hash::FxHashMap;

use gputrace_wire::call::{Call, Detail};
use gputrace_wire::cell::{Cell, flag, kind};
use gputrace_wire::definition::rung;
use gputrace_wire::device::Place;

use crate::batch::{Counters, Definition, ProcessBegin, ProcessEnd, SessionBegin};
use crate::model::callers::Callers;
use crate::model::clock::Clocks;
use crate::model::correlate::{Join, Outcome};
use crate::model::counts::Counts;
use crate::model::definitions::Definitions;
use crate::model::elapsed::Elapsed;
use crate::model::epochs::Epochs;
use crate::model::executed::Out;
use crate::model::graphs::Graphs;
use crate::model::history::{Histories, Verdict};
use crate::model::host_copies::HostCopies;
use crate::model::in_flight::{InFlight, Progress};
use crate::model::instances::Numbers;
use crate::model::key::Key;
use crate::model::loss::Loss;
use crate::model::operation::{GraphNode, HostCall, Operation, Timing, What};
use crate::model::process_totals::Process;
use crate::model::ranges::Ranges;
use crate::model::running::Running;
use crate::model::sink::Sink;
use crate::model::standing::Standing;
use crate::model::unidentified::{Unidentified, ids_are_unreliable};
use ring::RingState;

/// Rings whose state is kept; a process has at most a few thousand.
const RINGS_MAX: usize = 1 << 16;

/// Where what is executed goes. Not a function, which would borrow the join as well.
macro_rules! out {
    ($self:ident, $sink:ident) => {
        Out {
            definitions: &$self.definitions,
            graphs: &$self.graphs,
            counts: &mut $self.counts,
            unidentified: &mut $self.unidentified,
            progress: &mut $self.progress,
            host_copies: &mut $self.host_copies,
            histories: &mut $self.histories,
            sink: $sink,
        }
    };
}

/// What becomes of the batches that repeat what earlier files of a series say of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Repetition {
    /// None comes.
    None,
    /// They are skipped: the file before was read to its end.
    Skipped,
    /// They are taken in, and are not in the rings' positions.
    Taken,
}

#[derive(Debug)]
pub(super) struct ProcessState {
    number: u32,
    begin: ProcessBegin,
    end: Option<(ProcessEnd, u64)>,
    definitions: Definitions,
    counters: Counters,
    counts: Counts,
    clocks: Clocks,
    rings: FxHashMap<u32, RingState>,
    join: Join,
    unidentified: Unidentified,
    ranges: Ranges,
    instances: Numbers,
    callers: Callers,
    graphs: Graphs,
    progress: Progress,
    host_copies: HostCopies,
    histories: Histories,
    in_flight: InFlight,
    /// Decided at the first call that executes something: the libraries are known by then.
    ids_are_unreliable: Option<bool>,
    epochs: Epochs,
    saw_device_record: bool,
    losses: Vec<(Loss, u64)>,
    /// Whether more than one collector recorded it, one after the other.
    resumed: bool,
    repetition: Repetition,
    pub(super) last_seen_ns: u64,
    /// The same without the end, which somebody else notices.
    alive_ns: u64,
}

impl ProcessState {
    pub(super) fn new(number: u32, begin: ProcessBegin) -> ProcessState {
        ProcessState {
            number,
            end: None,
            definitions: Definitions::default(),
            counters: Counters::default(),
            counts: Counts::default(),
            clocks: Clocks::new(&begin),
            rings: FxHashMap::default(),
            join: Join::default(),
            unidentified: Unidentified::default(),
            ranges: Ranges::default(),
            instances: Numbers::default(),
            callers: Callers::default(),
            graphs: Graphs::default(),
            progress: Progress::default(),
            host_copies: HostCopies::default(),
            histories: Histories::default(),
            in_flight: InFlight::default(),
            ids_are_unreliable: None,
            epochs: Epochs::default(),
            saw_device_record: false,
            losses: Vec::new(),
            resumed: false,
            repetition: Repetition::None,
            last_seen_ns: begin.start_monotonic_ns,
            alive_ns: begin.start_monotonic_ns,
            begin,
        }
    }

    /// Whether the process ran on when its session ended, so that another may have gone on with it.
    pub(super) fn runs_on(&self) -> bool {
        matches!(self.end, None | Some((ProcessEnd::Running, _)))
    }

    /// Whether that is the same process as this one. Its clocks at the start tell, if they are said.
    pub(super) fn is(&self, begin: &ProcessBegin) -> bool {
        begin.start_monotonic_ns != 0
            && *begin == ProcessBegin { process: begin.process, ..self.begin.clone() }
    }

    /// Another collector goes on with it. It reads the definitions from their beginning, and the
    /// rings too where it does not say otherwise: the one before it had given nothing back.
    pub(super) fn resume(&mut self) {
        self.end = None;
        if self.repetition == Repetition::Skipped {
            // The cut is not a moment of the process's.
            self.last_seen_ns = self.alive_ns;
            return;
        }
        self.resumed = true;
        for ring in self.rings.values_mut() {
            ring.repeated = ring.seen();
            ring.position = 0;
        }
    }

    pub(super) fn repeat(&mut self, repetition: Repetition) {
        self.repetition = repetition;
    }

    pub(super) fn repetition(&self) -> Repetition {
        self.repetition
    }

    pub(super) fn define<S: Sink>(&mut self, records: &[Definition], sink: &mut S) {
        for record in records {
            if !self.resumed || !self.definitions.is_known(record) {
                self.definitions.add(record);
            }
        }
        sink.defines(self.number, &self.definitions);
    }

    pub(super) fn running(&self) -> Running<'_> {
        let has_ended = self.end.is_some();
        Running { begin: &self.begin, counters: &self.counters, counts: &self.counts, has_ended }
    }

    pub(super) fn set_counters<S: Sink>(&mut self, counters: &Counters, sink: &mut S) {
        self.counters = counters.clone();
        self.tell_standing(sink);
    }

    fn tell_standing<S: Sink>(&self, sink: &mut S) {
        let standing = Standing {
            at_ns: self.last_seen_ns,
            counters: &self.counters,
            counts: &self.counts,
            losses: self.lost(),
            ns_per_tick: self.clocks.ns_per_tick(),
        };
        sink.stands(self.number, &standing, &self.definitions);
    }

    /// What was lost of it so far, by reason; none of them is 0.
    fn lost(&self) -> Vec<(Loss, u64)> {
        let mut losses = self.losses.clone();
        let reasons = [
            (Loss::LateRecords, self.join.late_records),
            (Loss::RefusedDefinitions, self.definitions.refused),
            (Loss::RefusedGraphNodes, self.graphs.refused),
            (Loss::RingFull, self.counters.ring_full),
        ];
        losses.extend(reasons.into_iter().filter(|(_, count)| *count > 0));
        losses
    }

    pub(super) fn cells<S: Sink>(&mut self, ring: u32, cells: &[Cell], sink: &mut S) {
        let known = self.rings.get_mut(&ring).map(std::mem::take);
        let is_known = known.is_some();
        let mut state = known.unwrap_or_default();
        let mut rest = cells;
        while let Some(first) = rest.first() {
            let length = usize::from(first.cells());
            let Some((entry, after)) = rest.split_at_checked(length.max(1)).filter(|_| length != 0) else {
                self.lose(Loss::DamagedEntries, 1);
                break;
            };
            rest = after;
            if first.kind() != kind::GAP && self.repetition == Repetition::None {
                state.position = state.position.saturating_add(length as u64);
                if state.repeated > 0 {
                    state.repeated = state.repeated.saturating_sub(length as u64);
                    continue;
                }
            }
            self.entry(&mut state, entry, sink);
        }
        if is_known || self.rings.len() < RINGS_MAX {
            self.rings.insert(ring, state);
        }
    }

    #[inline]
    fn host_call<S: Sink>(&mut self, ring: &RingState, call: &Call, sink: &mut S) {
        let start_ns = self.clocks.monotonic_ns(call.start_ticks);
        let duration_ns = self.clocks.duration_ns(call.duration_ticks);
        let end_ns = start_ns.saturating_add(duration_ns);
        self.last_seen_ns = self.last_seen_ns.max(end_ns);
        let host = HostCall {
            process: self.number,
            thread: ring.thread,
            kind: call.kind,
            flags: call.flags,
            api: call.api,
            start_ticks: call.start_ticks,
            start_ns,
            duration_ns,
            correlation: call.correlation,
            stack: call.stack,
            ranges: ring.ranges,
            range: ring.range,
            caller: ring.caller,
            context: call.context,
            stream: call.stream,
            status: call.status,
            detail: call.detail,
        };
        sink.host_call(&host, &self.definitions);

        if call.kind == kind::GRAPH {
            self.graphs.call(&host, &self.definitions);
        }
        let counts = &mut self.counts;
        let is_launch = matches!(call.kind, kind::LAUNCH | kind::GRAPH_LAUNCH);
        if !is_launch || call.status != 0 {
            self.progress.host_call(&host);
        }
        if !is_launch && !matches!(call.kind, kind::COPY | kind::FILL) {
            return;
        }
        if call.status != 0 {
            counts.failed += 1;
            return;
        }
        let captured = call.flags & flag::CAPTURED != 0;
        counts.accepted(call.kind, captured);
        if captured {
            return;
        }
        let key = Key { epoch: self.epochs.at(call.start_ticks), correlation: call.correlation };
        let many = match call.detail {
            Detail::GraphLaunch { .. } => true,
            Detail::Copy(copy) => copy.count > 1,
            _ => false,
        };
        // On the hooks rung no record will come, but for calls that got an id before a step down.
        if self.ids_are_unreliable.is_none() {
            self.ids_are_unreliable = Some(ids_are_unreliable(&self.definitions));
        }
        let no_records = self.definitions.rung() == rung::HOOKS && key.correlation == 0;
        let mut out = out!(self, sink);
        if no_records {
            out.without_record(host);
        } else if key.correlation == 0 || is_launch && self.ids_are_unreliable == Some(true) {
            if !self.saw_device_record && !self.definitions.has_device_records() {
                out.without_record(host);
            } else if let Some(host) = out.unidentified.keep(host, out.definitions) {
                out.without_record(host);
            }
        } else {
            self.join.call(key, host, many, &mut |outcome| out.outcome(outcome));
        }
    }

    #[inline]
    fn device_record<S: Sink>(&mut self, ring: &RingState, place: &Place, what: What, sink: &mut S) {
        self.saw_device_record = true;
        let epoch = ring.epoch.unwrap_or_else(|| self.epochs.latest());
        let timing = place.has_timing().then(|| Timing {
            start_ns: self.clocks.device_to_monotonic_ns(epoch, place.start_ns),
            duration_ns: place.end_ns - place.start_ns,
        });
        if let Some(timing) = timing {
            self.last_seen_ns = self.last_seen_ns.max(timing.start_ns.saturating_add(timing.duration_ns));
        } else {
            self.counts.invalid_timing += 1;
        }
        let operation = Operation {
            process: self.number,
            what,
            call: None,
            timing,
            device: place.device,
            context: place.context,
            stream: place.stream,
            graph: (place.graph != 0 || place.graph_node != 0).then_some(GraphNode {
                graph: place.graph,
                node: place.graph_node,
                nodes: 0,
                made: None,
            }),
            verdict: Verdict::None,
        };
        let key = Key { epoch, correlation: place.correlation };
        let mut out = out!(self, sink);
        self.join.record(key, operation, &mut |outcome| out.outcome(outcome));
    }

    fn lose(&mut self, loss: Loss, count: u64) {
        if count == 0 {
            return;
        }
        match self.losses.iter_mut().find(|(known, _)| *known == loss) {
            Some((_, total)) => *total = total.saturating_add(count),
            None => self.losses.push((loss, count)),
        }
    }

    /// The session ended, and the process with it or not.
    pub(super) fn end_as(&mut self, end: ProcessEnd, at_ns: u64) {
        self.alive_ns = self.last_seen_ns;
        self.last_seen_ns = self.last_seen_ns.max(at_ns);
        self.end = self.end.or(Some((end, at_ns)));
    }

    /// Nothing more comes of this process: the process for [`crate::model::Totals`], and what was lost of it.
    pub(super) fn finish<S: Sink>(mut self, sink: &mut S) -> (Process, Vec<(Loss, u64)>) {
        let mut out = out!(self, sink);
        let vanished = matches!(self.end, Some((ProcessEnd::Vanished, _)));
        // What is not in the file may have been the records of the last calls in it.
        let is_cut = self.losses.iter().any(|(loss, _)| *loss == Loss::NotInTrace);
        let tells = (vanished || out.progress.failure().is_some()) && !is_cut;
        if matches!(self.end, Some((ProcessEnd::Exit, _))) {
            out.progress.note_good_bye();
        }
        let mut left = Vec::new();
        let mut alone = |out: &mut Out<'_, S>, call: HostCall| {
            if tells {
                left.push(call.clone());
            }
            out.call_alone(call);
        };
        self.join.finish(&mut |outcome| match outcome {
            Outcome::Alone(call) => alone(&mut out, call),
            record => out.outcome(record),
        });
        for call in out.unidentified.finish() {
            alone(&mut out, call);
        }
        if tells {
            let elapsed = Elapsed {
                alive_ns: self.alive_ns,
                noticed_ns: self.last_seen_ns,
                histories: &self.histories,
                definitions: &self.definitions,
            };
            let elapsed = Some(elapsed).filter(|_| vanished && self.saw_device_record);
            self.in_flight = InFlight {
                by_waits_only: !self.saw_device_record,
                ..self.progress.finish(left.into_iter(), vanished, elapsed, &self.definitions)
            };
        }
        self.close_ranges(sink);
        self.tell_standing(sink);
        sink.process_ends(self.number, self.last_seen_ns, &self.definitions);
        self.into_totals()
    }

    pub(super) fn time_passes<S: Sink>(&self, now_ns: u64, sink: &mut S) {
        sink.time_passes(self.number, now_ns, &self.definitions);
    }

    /// What sinks know it by.
    pub(super) fn introduce<S: Sink>(&self, session: &SessionBegin, sink: &mut S) {
        sink.process_begins(self.number, &self.begin, session);
    }

    fn into_totals(mut self) -> (Process, Vec<(Loss, u64)>) {
        self.counts.evicted_calls = self.join.evicted_calls;
        self.counts.evicted_records = self.join.evicted_records;
        let losses = self.lost();
        // Where no times are taken, or now and then, a missing record says nothing.
        if !matches!(self.definitions.rung(), rung::HOOKS | rung::WINDOWS) {
            self.counts.host_to_host = self.host_copies.count(&self.counters, !losses.is_empty());
        }
        for ring in self.rings.values() {
            self.ranges.left_open(ring.ranges);
        }
        let process = Process {
            number: self.number,
            begin: self.begin,
            end: self.end,
            definitions: self.definitions,
            counters: self.counters,
            counts: self.counts,
            ranges: self.ranges,
            ns_per_tick: self.clocks.ns_per_tick(),
            failure: self.progress.into_failure(),
            in_flight: self.in_flight,
        };
        (process, losses)
    }
}
