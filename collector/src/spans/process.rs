//! One process's spans: which operations become spans, and which span is the parent of each.
//!
//! The parent of a host call is the range that it was made in; the parent of a device operation is the call
//! that launched it, if that is a span, else the call's range. Without a range it is the active span of
//! another tracer, in that span's trace, and else the process's own span. All tables here are bounded.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashSet;

use gputrace_wire::caller::Caller;
use gputrace_wire::cell::kind;

use crate::batch::{ProcessBegin, SessionBegin};
use crate::failed_calls::has_failed;
use crate::model::callers::Callers;
use crate::model::definitions::Definitions;
use crate::model::instances::RangeInstance;
use crate::model::operation::{Anomaly, HostCall, Operation, Verdict};
use crate::model::sticky::is_sticky;
use crate::spans::code::Lines;
use crate::spans::describe::{self, Describer};
use crate::spans::ids::{Of, ProcessSeed, SessionSeed};
use crate::spans::known_ranges::KnownRanges;
use crate::spans::process_trace::ProcessTrace;
use crate::spans::sampler::TopSampler;
use crate::spans::sampling::Sampling;
use crate::spans::span::{Span, SpanEvent, SpanReceiver, Value};
use crate::spans::trace_context::SAMPLED;

/// Remembered calls that are spans and whose device operations may still come.
const LAUNCHES_MAX: usize = 1 << 16;

#[derive(Debug)]
pub struct ProcessSpans {
    number: u32,
    pub pid: u32,
    pub session: SessionSeed,
    pub seed: ProcessSeed,
    clock: Clock,
    start_ns: u64,
    sampling: Sampling,
    describer: Describer,
    sampler: TopSampler<SpanCandidate>,
    ranges: KnownRanges,
    callers: Callers,
    lines: Lines,
    launches: Launches,
    operations: u64,
    emitted: u64,
    left_out: LeftOutSpans,
    /// The sticky error with which the context was lost.
    lost_with: Option<u16>,
}

/// Counts calls and operations that do not become spans, by reason. A range counts only once it is forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct LeftOutSpans {
    short: u64,
    by_rate: u64,
    /// Operations without device times.
    untimed: u64,
    /// Kernels whose history is too short to compare with; they may still be spans.
    unjudged: u64,
    /// Launches that were only counted.
    counted: u64,
}

/// Both clocks at the beginning of the session, to convert CLOCK_MONOTONIC to CLOCK_REALTIME.
#[derive(Clone, Copy, Debug)]
struct Clock {
    monotonic_ns: u64,
    realtime_ns: u64,
}

#[derive(Debug)]
enum SpanCandidate {
    Call(HostCall),
    Operation {
        operation: Operation,
        number: u64,
        anomaly: Option<Anomaly>,
    },
    /// The range's number.
    Range(u32),
}

impl ProcessSpans {
    pub fn new(
        number: u32,
        process: &ProcessBegin,
        session: &SessionBegin,
        sampling: Sampling,
    ) -> ProcessSpans {
        let session_seed = SessionSeed::new(session);
        ProcessSpans {
            number,
            pid: process.pid,
            session: session_seed,
            seed: session_seed.process(process),
            clock: Clock { monotonic_ns: session.monotonic_ns, realtime_ns: session.realtime_ns },
            start_ns: process.start_monotonic_ns,
            sampling,
            describer: Describer::default(),
            sampler: TopSampler::new(sampling.rate),
            ranges: KnownRanges::default(),
            callers: Callers::default(),
            lines: Lines::default(),
            launches: Launches::default(),
            operations: 0,
            emitted: 0,
            left_out: LeftOutSpans::default(),
            lost_with: None,
        }
    }

    pub fn root(&self) -> u64 {
        self.seed.span(Of::Process, 0, 0)
    }

    pub fn host_call<R: SpanReceiver>(&mut self, call: &HostCall, to: &mut SpanOutput<'_, R>) {
        let failed = has_failed(call, to.definitions);
        if !failed && !self.sampling.is_candidate(call.duration_ns) {
            self.left_out.short += 1;
            return;
        }
        let end_ns = call.start_ns.saturating_add(call.duration_ns);
        // Once the context is lost every call fails with the same error, and a program may retry as fast as
        // it can.
        let is_new = failed && self.lost_with != Some(call.status);
        if failed && is_sticky(call.status) {
            self.lost_with = Some(call.status);
        }
        self.offer(SpanCandidate::Call(call.clone()), end_ns, call.duration_ns, is_new, to);
    }

    pub fn operation<R: SpanReceiver>(&mut self, operation: &Operation, to: &mut SpanOutput<'_, R>) {
        self.operations += 1;
        let Some(timing) = operation.timing else {
            self.left_out.untimed += 1;
            return;
        };
        let anomaly = operation.verdict.anomaly();
        self.left_out.unjudged += u64::from(operation.verdict == Verdict::Unjudged);
        if anomaly.is_none() && !self.sampling.is_candidate(timing.duration_ns) {
            self.left_out.short += 1;
            return;
        }
        let end_ns = timing.start_ns.saturating_add(timing.duration_ns);
        let candidate =
            SpanCandidate::Operation { operation: operation.clone(), number: self.operations, anomaly };
        self.offer(candidate, end_ns, timing.duration_ns, anomaly.is_some(), to);
    }

    pub fn counted(&mut self, launches: u64) {
        self.left_out.counted = self.left_out.counted.saturating_add(launches);
    }

    /// From now on the number identifies that span of another tracer.
    pub fn caller(&mut self, number: u32, caller: &Caller) {
        self.callers.learn(number, caller);
    }

    pub fn range_begins(&mut self, range: &RangeInstance) {
        self.ranges.begins(range.number);
    }

    pub fn range_ends<R: SpanReceiver>(&mut self, range: &RangeInstance, to: &mut SpanOutput<'_, R>) {
        self.ranges.ends(range);
        let duration_ns = range.end_ns.saturating_sub(range.start_ns);
        if self.sampling.is_candidate(duration_ns) {
            self.offer(SpanCandidate::Range(range.number), range.end_ns, duration_ns, false, to);
        }
        self.emit_ranges(to);
    }

    pub fn range_ends_as_parent<R: SpanReceiver>(
        &mut self,
        range: &RangeInstance,
        to: &mut SpanOutput<'_, R>,
    ) {
        self.ranges.ends(range);
        self.emit_ranges(to);
    }

    /// Emits the spans of a second that is over.
    pub fn time_passes<R: SpanReceiver>(&mut self, now_ns: u64, to: &mut SpanOutput<'_, R>) {
        if self.sampler.ends_second_by(now_ns) {
            self.close_second(to);
        }
    }

    /// Emits all held spans, and the process's own.
    pub fn ends<R: SpanReceiver>(&mut self, end_ns: u64, to: &mut SpanOutput<'_, R>) {
        self.close_second(to);
        let joined = to.joined.clone();
        let mut attributes = vec![
            ("gpu.backend", Value::text("cuda")),
            ("gputrace.operations", Value::number(self.operations.saturating_add(self.left_out.counted))),
            ("gputrace.spans", Value::number(self.emitted + 1)),
            ("gputrace.left_out.short", Value::number(self.left_out.short)),
            ("gputrace.left_out.by_rate", Value::number(self.left_out.by_rate)),
            ("gputrace.left_out.untimed", Value::number(self.left_out.untimed)),
            ("gputrace.left_out.unjudged", Value::number(self.left_out.unjudged)),
        ];
        if self.left_out.counted > 0 {
            attributes.push(("gputrace.left_out.counted", Value::number(self.left_out.counted)));
        }
        let baggage = joined.baggage.iter().map(|(key, value)| format!("{key}={value}"));
        let baggage: Vec<_> = baggage.map(|member| member.into()).collect();
        attributes.extend((!baggage.is_empty()).then_some(("gputrace.baggage", Value::Texts(baggage))));
        attributes.extend(self.recorded(end_ns, to.definitions));
        let command = to.definitions.process().and_then(|process| process.command.into_iter().next());
        let command = command.filter(|command| !command.is_empty()).unwrap_or_else(|| self.pid.to_string());
        let name = format!("process: {}", command.rsplit('/').next().unwrap_or(&command));
        let (start_ns, parent) = (self.start_ns, joined.parent);
        let parent =
            SpanParent { parent, parent_is_remote: joined.parent_is_remote, ..self.parent_of(0, 0, &joined) };
        let span = self.span((name, attributes), self.root(), parent, (start_ns, end_ns));
        to.receiver.span(span, to.definitions);
    }

    /// The intervals that were recorded, in seconds since the process's begin, if not all was.
    fn recorded(&self, end_ns: u64, definitions: &Definitions) -> Option<(&'static str, Value)> {
        /// The most that the attribute has.
        const INTERVALS_MAX: usize = 100;
        let recorded = &definitions.recorded;
        let seconds = |ns: u64| ns.saturating_sub(self.start_ns) as f64 / 1e9;
        recorded.was_paused().then(|| {
            let intervals = recorded.between(self.start_ns, end_ns);
            let texts = intervals.iter().take(INTERVALS_MAX);
            let texts = texts.map(|(from, to)| format!("{:.6}-{:.6}", seconds(*from), seconds(*to)).into());
            ("gpu.cuda.recorded_intervals", Value::Texts(texts.collect()))
        })
    }

    fn offer<R: SpanReceiver>(
        &mut self,
        candidate: SpanCandidate,
        end_ns: u64,
        duration_ns: u64,
        is_certain: bool,
        to: &mut SpanOutput<'_, R>,
    ) {
        if self.sampler.is_over(end_ns) {
            self.close_second(to);
        }
        let lost = self.sampler.offer(candidate, end_ns, duration_ns, is_certain);
        // A displaced range may still become a span, for what is in it.
        let is_left_out = matches!(lost, Some(SpanCandidate::Call(_) | SpanCandidate::Operation { .. }));
        self.left_out.by_rate += u64::from(is_left_out);
    }

    /// Emits the selected candidates of the second: calls first, since they are parents of what they
    /// launched.
    fn close_second<R: SpanReceiver>(&mut self, to: &mut SpanOutput<'_, R>) {
        let mut selected = self.sampler.selected();
        selected.sort_unstable_by_key(SpanCandidate::order);
        for candidate in selected {
            match candidate {
                SpanCandidate::Range(number) => {
                    let is_forgotten = self.ranges.choose(number) == 0;
                    self.left_out.by_rate += u64::from(is_forgotten);
                }
                SpanCandidate::Call(call) => self.emit_call(&call, to),
                SpanCandidate::Operation { operation, number, anomaly } => {
                    self.emit_operation(&operation, number, anomaly, to);
                }
            }
        }
        self.emit_ranges(to);
    }

    fn emit_call<R: SpanReceiver>(&mut self, call: &HostCall, to: &mut SpanOutput<'_, R>) {
        let id = self.call_id(call);
        if matches!(call.kind, kind::LAUNCH | kind::GRAPH_LAUNCH | kind::COPY | kind::FILL) {
            self.launches.insert(id);
        }
        let parent = self.parent_of(call.range, call.caller, to.joined);
        let described = describe::call(call, &self.sampling, to.definitions);
        let times = (call.start_ns, call.start_ns.saturating_add(call.duration_ns));
        let mut span = self.span(described, id, parent, times);
        let is_detailed = self.sampling.is_slow(call.duration_ns) || has_failed(call, to.definitions);
        self.lines.describe(call.stack, is_detailed, to.definitions, &mut span.attributes);
        let error = has_failed(call, to.definitions).then(|| describe::failure(call, to.definitions));
        self.emit(Span { error, ..span }, to);
    }

    fn emit_operation<R: SpanReceiver>(
        &mut self,
        operation: &Operation,
        number: u64,
        anomaly: Option<Anomaly>,
        to: &mut SpanOutput<'_, R>,
    ) {
        let Some(timing) = operation.timing else { return };
        let parent = match &operation.call {
            Some(call) => {
                let parent = self.parent_of(call.range, call.caller, to.joined);
                let id = self.call_id(call);
                // A call whose caller was forgotten may have been emitted in another trace.
                match self.launches.contains(id) && parent.is_whole {
                    true => SpanParent { parent: id, parent_is_remote: false, ..parent },
                    false => parent,
                }
            }
            None => self.parent_of(0, 0, to.joined),
        };
        let described =
            self.describer.operation(operation, timing.duration_ns, anomaly, &self.sampling, to.definitions);
        let id = self.seed.span(Of::Operation, number, 0);
        let times = (timing.start_ns, timing.start_ns.saturating_add(timing.duration_ns));
        let mut span = self.span(described, id, parent, times);
        let stack = operation.call.as_ref().map_or(0, |call| call.stack);
        let is_slow = self.sampling.is_slow(timing.duration_ns);
        self.lines.describe(stack, is_slow, to.definitions, &mut span.attributes);
        let launch = operation.call.as_ref().map(|call| call.start_ns);
        span.events
            .extend(launch.map(|at_ns| SpanEvent { name: "launch", at_ns: self.clock.realtime_ns(at_ns) }));
        self.emit(span, to);
    }

    /// Emits ranges that became spans. Doing so makes the ranges around them spans too.
    fn emit_ranges<R: SpanReceiver>(&mut self, to: &mut SpanOutput<'_, R>) {
        while let Some(range) = self.ranges.next_chosen() {
            let parent = self.parent_of(range.around, range.caller, to.joined);
            let described = describe::range(&range, to.definitions);
            let times = (range.start_ns, range.end_ns);
            let span = self.span(described, self.range_id(range.number), parent, times);
            self.emit(span, to);
        }
    }

    /// The parent of what was done in a range for a caller: the range, which becomes a span; else the
    /// caller's span; else the process's.
    fn parent_of(&mut self, range: u32, caller: u32, joined: &ProcessTrace) -> SpanParent {
        let of = self.callers.get(caller).copied();
        let is_whole = caller == 0 || of.is_some();
        // The ranges of a forgotten caller are in that caller's trace.
        let range = if is_whole { self.ranges.choose(range) } else { 0 };
        let parent = match (range, &of) {
            (0, Some(of)) => of.span,
            (0, None) => self.root(),
            (range, _) => self.range_id(range),
        };
        let parent_is_remote = range == 0 && of.is_some_and(|of| of.remote != 0);
        let state = || joined.state.clone();
        match of {
            None => {
                let ProcessTrace { trace_id, flags, .. } = *joined;
                SpanParent { trace_id, flags, state: state(), parent, parent_is_remote, is_whole }
            }
            Some(of) => {
                let [lower, upper] = of.trace;
                let trace_id = u128::from(upper) << 64 | u128::from(lower);
                // The trace state belongs to the trace that the process was given.
                let state = if trace_id == joined.trace_id { state() } else { Arc::default() };
                SpanParent { trace_id, flags: of.flags & SAMPLED, state, parent, parent_is_remote, is_whole }
            }
        }
    }

    fn range_id(&self, number: u32) -> u64 {
        self.seed.span(Of::Range, u64::from(number), 0)
    }

    fn call_id(&self, call: &HostCall) -> u64 {
        let thread = u64::from(call.thread) << 32 | u64::from(call.correlation);
        self.seed.span(Of::Call, call.start_ticks, thread)
    }

    fn span(
        &self,
        (name, attributes): describe::Described,
        id: u64,
        SpanParent { trace_id, flags, state, parent, parent_is_remote, .. }: SpanParent,
        (start_ns, end_ns): (u64, u64),
    ) -> Span {
        Span {
            process: self.number,
            trace_id,
            id,
            parent,
            parent_is_remote,
            flags,
            trace_state: state,
            name,
            start_ns: self.clock.realtime_ns(start_ns),
            end_ns: self.clock.realtime_ns(end_ns.max(start_ns)),
            attributes,
            events: Vec::new(),
            error: None,
        }
    }

    fn emit<R: SpanReceiver>(&mut self, span: Span, to: &mut SpanOutput<'_, R>) {
        self.emitted += 1;
        to.receiver.span(span, to.definitions);
    }
}

/// A span's trace and parent.
#[derive(Debug)]
struct SpanParent {
    trace_id: u128,
    flags: u8,
    state: Arc<str>,
    parent: u64,
    parent_is_remote: bool,
    /// False if the caller's span was forgotten, so that this is a substitute.
    is_whole: bool,
}

/// Where a process's spans go, and what they share.
#[derive(Debug)]
pub struct SpanOutput<'a, R> {
    pub receiver: &'a mut R,
    pub definitions: &'a Definitions,
    pub joined: &'a ProcessTrace,
}

impl Clock {
    fn realtime_ns(self, monotonic_ns: u64) -> u64 {
        let since = i128::from(monotonic_ns) - i128::from(self.monotonic_ns);
        u64::try_from((i128::from(self.realtime_ns) + since).max(0)).unwrap_or(u64::MAX)
    }
}

impl SpanCandidate {
    fn order(&self) -> (bool, u64) {
        match self {
            SpanCandidate::Call(call) => (false, call.start_ns),
            SpanCandidate::Operation { number, .. } => (true, *number),
            SpanCandidate::Range(number) => (true, u64::from(*number)),
        }
    }
}

/// The latest calls that are spans and launch device operations.
#[derive(Debug, Default)]
struct Launches {
    known: FxHashSet<u64>,
    order: VecDeque<u64>,
}

impl Launches {
    fn insert(&mut self, id: u64) {
        if self.known.insert(id) {
            self.order.push_back(id);
        }
        if self.order.len() > LAUNCHES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    fn contains(&self, id: u64) -> bool {
        self.known.contains(&id)
    }
}
