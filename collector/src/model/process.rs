//! One process in the model: its rings, clocks, join and counts.

mod counted;
mod entries;
mod ranges;
mod ring;

use rustc_hash::FxHashMap;

use gputrace_wire::call::{Call, Detail};
use gputrace_wire::cell::{Cell, flag, kind};
use gputrace_wire::counter::Counter;
use gputrace_wire::definition::rung;
use gputrace_wire::device::Execution;

use crate::batch::{Counters, Definition, ProcessBegin, ProcessEnd, SessionBegin};
use crate::model::before::Before;
use crate::model::callers::Callers;
use crate::model::clock::Clocks;
use crate::model::correlate::{Join, JoinOutcome};
use crate::model::counts::Counts;
use crate::model::definitions::Definitions;
use crate::model::elapsed::Elapsed;
use crate::model::epochs::Epochs;
use crate::model::executed::Out;
use crate::model::graphs::GraphTable;
use crate::model::history::Histories;
use crate::model::host_copies::HostCopies;
use crate::model::in_flight::{InFlight, Progress};
use crate::model::instances::Numbers;
use crate::model::key::JoinKey;
use crate::model::loss::Loss;
use crate::model::operation::{GraphNode, HostCall, Operation, Timing, Verdict, What};
use crate::model::process_snapshot::ProcessSnapshot;
use crate::model::process_totals::Process;
use crate::model::ranges::Ranges;
use crate::model::running_process::RunningProcess;
use crate::model::sink::Sink;
use crate::model::unidentified::{Unidentified, ids_are_unreliable};
use ring::RingState;

/// Rings whose state is kept; a process has at most a few thousand.
const RINGS_MAX: usize = 1 << 16;

/// An [`Out`] of this process. A macro, since a function would borrow the join as well.
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

/// How to treat batches that repeat what earlier files of a series contain about a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Repetition {
    /// No repeated batches are expected.
    #[default]
    None,
    /// They are skipped: the file before was read to its end.
    Skipped,
    /// They are taken in, and do not count in the rings' positions.
    Taken,
}

#[derive(Debug, Default)]
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
    graphs: GraphTable,
    progress: Progress,
    host_copies: HostCopies,
    histories: Histories,
    in_flight: InFlight,
    /// Decided at the first call that executes something: the libraries are known by then.
    ids_are_unreliable: Option<bool>,
    epochs: Epochs,
    saw_device_record: bool,
    losses: Vec<(Loss, u64)>,
    /// Whether several collectors recorded it, one after the other.
    resumed: bool,
    /// Whether another collector, whose trace was not read, recorded its beginning.
    began_before: bool,
    repetition: Repetition,
    pub(super) last_seen_ns: u64,
    /// `last_seen_ns` without the end, whose time is the collector's.
    alive_ns: u64,
}

impl ProcessState {
    pub(super) fn new(number: u32, begin: ProcessBegin) -> ProcessState {
        ProcessState {
            number,
            clocks: Clocks::new(&begin),
            last_seen_ns: begin.start_monotonic_ns,
            alive_ns: begin.start_monotonic_ns,
            begin,
            ..ProcessState::default()
        }
    }

    /// Whether the process ran on when its session ended. Another session may then contain the rest.
    pub(super) fn runs_on(&self) -> bool {
        matches!(self.end, None | Some((ProcessEnd::Running, _)))
    }

    /// Whether `begin` is of this process: of the same start times, if these are known.
    pub(super) fn is(&self, begin: &ProcessBegin) -> bool {
        begin.start_monotonic_ns != 0
            && *begin == ProcessBegin { process: begin.process, ..self.begin.clone() }
    }

    /// Another collector continues with this process. It reads the definitions from their beginning, and
    /// also each ring that has no `TakenOver` gap: the earlier collector had released nothing of it.
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

    pub(super) fn running(&self) -> RunningProcess<'_> {
        let has_ended = self.end.is_some();
        RunningProcess { begin: &self.begin, counters: &self.counters, counts: &self.counts, has_ended }
    }

    pub(super) fn set_counters<S: Sink>(&mut self, counters: &Counters, sink: &mut S) {
        self.counters = counters.clone();
        self.emit_snapshot(sink);
    }

    fn emit_snapshot<S: Sink>(&self, sink: &mut S) {
        let snapshot = ProcessSnapshot {
            at_ns: self.last_seen_ns,
            counters: &self.counters,
            counts: &self.counts,
            losses: self.lost(),
            ns_per_tick: self.clocks.ns_per_tick(),
        };
        sink.snapshot(self.number, &snapshot, &self.definitions);
    }

    /// What was lost so far, by reason; none is 0.
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
    fn host_call<S: Sink>(&mut self, ring: &mut RingState, call: &Call, sink: &mut S) {
        let start_ns = self.clocks.monotonic_ns(call.start_ticks);
        let duration_ns = self.clocks.duration_ns(call.duration_ticks);
        let end_ns = start_ns.saturating_add(duration_ns);
        self.last_seen_ns = self.last_seen_ns.max(end_ns);
        let mut host = HostCall {
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
            stream: call.stream,
            status: call.status,
            window: call.window,
            detail: call.detail,
            before: Before::default(),
        };
        ring.since_launch.call(&mut host);
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
        counts.unstacked += u64::from(call.flags & flag::UNSTACKED != 0);
        let key = JoinKey { epoch: self.epochs.at(call.start_ticks), correlation: call.correlation };
        let many = has_several_records(&call.detail);
        // Without device times (the hooks rung) only calls that still got an id have a record.
        if self.ids_are_unreliable.is_none() {
            self.ids_are_unreliable = Some(ids_are_unreliable(&self.definitions));
        }
        let is_switched_off = call.flags & flag::UNTIMED != 0;
        self.counts.switched_off += u64::from(is_switched_off);
        let no_records = is_switched_off || self.definitions.rung() == rung::HOOKS && key.correlation == 0;
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

    /// A call that is not in the trace, because the session was paused. Its device records are not either.
    fn paused_call<S: Sink>(&mut self, ring: &RingState, call: &Call, sink: &mut S) {
        let start_ns = self.clocks.monotonic_ns(call.start_ticks);
        let duration_ns = self.clocks.duration_ns(call.duration_ticks);
        self.last_seen_ns = self.last_seen_ns.max(start_ns.saturating_add(duration_ns));
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
            stack: 0,
            ranges: 0,
            range: 0,
            caller: 0,
            stream: 0,
            status: call.status,
            window: call.window,
            detail: call.detail,
            before: Default::default(),
        };
        let key = JoinKey { epoch: self.epochs.at(call.start_ticks), correlation: call.correlation };
        let mut out = out!(self, sink);
        let many = has_several_records(&call.detail);
        self.join.call(key, host, many, &mut |outcome| out.outcome(outcome));
    }

    #[inline]
    fn device_record<S: Sink>(&mut self, ring: &RingState, execution: &Execution, what: What, sink: &mut S) {
        self.saw_device_record = true;
        let epoch = ring.epoch.unwrap_or_else(|| self.epochs.latest());
        let timing = execution.has_timing().then(|| Timing {
            start_ns: self.clocks.device_to_monotonic_ns(epoch, execution.start_ns),
            duration_ns: execution.end_ns - execution.start_ns,
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
            device: execution.device,
            context: execution.context,
            stream: execution.stream,
            graph: (execution.graph != 0 || execution.graph_node != 0).then_some(GraphNode {
                graph: execution.graph,
                node: execution.graph_node,
                nodes: 0,
                made: None,
            }),
            verdict: Verdict::None,
        };
        let key = JoinKey { epoch, correlation: execution.correlation };
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

    /// Notes how the process ended, or that it ran on when the session ended.
    pub(super) fn end_as(&mut self, end: ProcessEnd, at_ns: u64) {
        self.alive_ns = self.last_seen_ns;
        self.last_seen_ns = self.last_seen_ns.max(at_ns);
        self.end = self.end.or(Some((end, at_ns)));
    }

    /// Ends the process. Returns its part of [`crate::model::Totals`].
    pub(super) fn finish<S: Sink>(mut self, sink: &mut S) -> Process {
        let mut out = out!(self, sink);
        let vanished = matches!(self.end, Some((ProcessEnd::Vanished, _)));
        // Entries missing in the file may be the records of the last calls.
        let is_cut = self.losses.iter().any(|(loss, _)| *loss == Loss::NotInTrace);
        let finds_in_flight = (vanished || out.progress.failure().is_some()) && !is_cut;
        if matches!(self.end, Some((ProcessEnd::Exit, _))) {
            out.progress.note_orderly_end();
        }
        let mut left = Vec::new();
        let mut alone = |out: &mut Out<'_, S>, call: HostCall| {
            if finds_in_flight {
                left.push(call.clone());
            }
            out.call_alone(call);
        };
        self.join.finish(&mut |outcome| match outcome {
            JoinOutcome::Alone(call) if call.is_paused() => {}
            JoinOutcome::Alone(call) => alone(&mut out, call),
            record => out.outcome(record),
        });
        for call in out.unidentified.finish() {
            alone(&mut out, call);
        }
        if finds_in_flight {
            let elapsed = Elapsed {
                alive_ns: self.alive_ns,
                noticed_ns: self.last_seen_ns,
                record_lag_max_ns: self.counters.value(Counter::RecordLagMaxNs),
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
        self.emit_snapshot(sink);
        sink.process_ends(self.number, self.last_seen_ns, &self.definitions);
        self.into_totals()
    }

    pub(super) fn time_passes<S: Sink>(&self, now_ns: u64, sink: &mut S) {
        sink.time_passes(self.number, now_ns, &self.definitions);
    }

    /// Announces the process to the sinks.
    pub(super) fn introduce<S: Sink>(&self, session: &SessionBegin, sink: &mut S) {
        sink.process_begins(self.number, &self.begin, session);
    }

    fn into_totals(mut self) -> Process {
        self.counts.evicted_calls = self.join.evicted_calls;
        self.counts.evicted_records = self.join.evicted_records;
        let losses = self.lost();
        // Without device times, or with windows, a missing record shows nothing.
        if !matches!(self.definitions.rung(), rung::HOOKS | rung::WINDOWS) {
            self.counts.host_to_host = self.host_copies.count(&self.counters, !losses.is_empty());
        }
        for ring in self.rings.values() {
            self.ranges.left_open(ring.ranges);
        }
        Process {
            number: self.number,
            begin: self.begin,
            end: self.end,
            definitions: self.definitions,
            counters: self.counters,
            counts: self.counts,
            losses,
            ranges: self.ranges,
            ns_per_tick: self.clocks.ns_per_tick(),
            failure: self.progress.into_failure(),
            in_flight: self.in_flight,
            last_seen_ns: self.last_seen_ns,
        }
    }
}

/// Whether a call has several device records: the nodes of a graph, the copies of a batch.
fn has_several_records(detail: &Detail) -> bool {
    match detail {
        Detail::GraphLaunch { .. } => true,
        Detail::Copy(copy) => copy.count > 1,
        _ => false,
    }
}
