//! One process's spans: what becomes one, and under which other it stands.
//!
//! Under a process stand its ranges and host calls, by the range that they were made in; under what
//! launched it, each thing that a device did. Where that is no span, the nearest one around it takes
//! its place. What was done for a span of somebody else's stands under that, in its trace, and so do ranges. Nothing is written here, and all that is held is bounded.

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
use crate::spans::contest::Contest;
use crate::spans::describe::{self, Describer};
use crate::spans::ids::{Of, ProcessSeed, SessionSeed};
use crate::spans::joined::Joined;
use crate::spans::known_ranges::KnownRanges;
use crate::spans::sampling::Sampling;
use crate::spans::span::{Event, Receiver, Span, Value};
use crate::spans::trace_context::SAMPLED;

/// Calls that are spans and may have launched something that is not known yet.
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
    contest: Contest<Candidate>,
    ranges: KnownRanges,
    callers: Callers,
    lines: Lines,
    launches: Launches,
    operations: u64,
    told: u64,
    left_out: LeftOut,
    /// The error that stays with which the context was lost.
    lost_with: Option<u16>,
}

/// Calls and operations that do not become spans, by why. Ranges are counted where they are forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct LeftOut {
    short: u64,
    by_rate: u64,
    /// Operations without device times.
    untimed: u64,
    /// Kernels without a history; they may be spans all the same.
    unjudged: u64,
}

/// From CLOCK_MONOTONIC to CLOCK_REALTIME, as both were at the session's begin.
#[derive(Clone, Copy, Debug)]
struct Clock {
    monotonic_ns: u64,
    realtime_ns: u64,
}

#[derive(Debug)]
enum Candidate {
    Call(HostCall),
    Operation {
        operation: Operation,
        number: u64,
        anomaly: Option<Anomaly>,
    },
    /// By its number.
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
            contest: Contest::new(sampling.rate),
            ranges: KnownRanges::default(),
            callers: Callers::default(),
            lines: Lines::default(),
            launches: Launches::default(),
            operations: 0,
            told: 0,
            left_out: LeftOut::default(),
            lost_with: None,
        }
    }

    pub fn root(&self) -> u64 {
        self.seed.span(Of::Process, 0, 0)
    }

    pub fn host_call<R: Receiver>(&mut self, call: &HostCall, to: &mut Teller<'_, R>) {
        let failed = has_failed(call, to.definitions);
        if !failed && !self.sampling.is_candidate(call.duration_ns) {
            self.left_out.short += 1;
            return;
        }
        let end_ns = call.start_ns.saturating_add(call.duration_ns);
        // What fails since the context is lost says nothing new, and a program may go on asking as fast as it can.
        let is_new = failed && self.lost_with != Some(call.status);
        if failed && is_sticky(call.status) {
            self.lost_with = Some(call.status);
        }
        self.enter(Candidate::Call(call.clone()), end_ns, call.duration_ns, is_new, to);
    }

    pub fn operation<R: Receiver>(&mut self, operation: &Operation, to: &mut Teller<'_, R>) {
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
            Candidate::Operation { operation: operation.clone(), number: self.operations, anomaly };
        self.enter(candidate, end_ns, timing.duration_ns, anomaly.is_some(), to);
    }

    /// The number stands for that span of somebody else's from now on.
    pub fn caller(&mut self, number: u32, caller: &Caller) {
        self.callers.learn(number, caller);
    }

    pub fn range_begins(&mut self, range: &RangeInstance) {
        self.ranges.begins(range.number);
    }

    pub fn range_ends<R: Receiver>(&mut self, range: &RangeInstance, to: &mut Teller<'_, R>) {
        self.ranges.ends(range);
        let duration_ns = range.end_ns.saturating_sub(range.start_ns);
        if self.sampling.is_candidate(duration_ns) {
            self.enter(Candidate::Range(range.number), range.end_ns, duration_ns, false, to);
        }
        self.tell_ranges(to);
    }

    /// Tells what nothing can win against any more.
    pub fn time_passes<R: Receiver>(&mut self, now_ns: u64, to: &mut Teller<'_, R>) {
        if self.contest.ends_by(now_ns) {
            self.close_second(to);
        }
    }

    /// Tells all that is held, and the process itself.
    pub fn ends<R: Receiver>(&mut self, end_ns: u64, to: &mut Teller<'_, R>) {
        self.close_second(to);
        let joined = to.joined.clone();
        let mut attributes = vec![
            ("gpu.backend", Value::text("cuda")),
            ("gputrace.operations", Value::number(self.operations)),
            ("gputrace.spans", Value::number(self.told + 1)),
            ("gputrace.left_out.short", Value::number(self.left_out.short)),
            ("gputrace.left_out.by_rate", Value::number(self.left_out.by_rate)),
            ("gputrace.left_out.untimed", Value::number(self.left_out.untimed)),
            ("gputrace.left_out.unjudged", Value::number(self.left_out.unjudged)),
        ];
        let baggage = joined.baggage.iter().map(|(key, value)| format!("{key}={value}"));
        let baggage: Vec<_> = baggage.map(|member| member.into()).collect();
        attributes.extend((!baggage.is_empty()).then_some(("gputrace.baggage", Value::Texts(baggage))));
        let command = to.definitions.process().and_then(|process| process.command.into_iter().next());
        let command = command.filter(|command| !command.is_empty()).unwrap_or_else(|| self.pid.to_string());
        let name = format!("process: {}", command.rsplit('/').next().unwrap_or(&command));
        let (start_ns, parent) = (self.start_ns, joined.parent);
        let place = Place { parent, parent_is_remote: joined.parent_is_remote, ..self.place(0, 0, &joined) };
        let span = self.span((name, attributes), self.root(), place, (start_ns, end_ns));
        to.receiver.span(span, to.definitions);
    }

    fn enter<R: Receiver>(
        &mut self,
        candidate: Candidate,
        end_ns: u64,
        duration_ns: u64,
        is_certain: bool,
        to: &mut Teller<'_, R>,
    ) {
        if self.contest.is_over(end_ns) {
            self.close_second(to);
        }
        let lost = self.contest.enter(candidate, end_ns, duration_ns, is_certain);
        // A range may yet become a span, by what is in it.
        let is_left_out = matches!(lost, Some(Candidate::Call(_) | Candidate::Operation { .. }));
        self.left_out.by_rate += u64::from(is_left_out);
    }

    /// What won the second becomes spans: calls first, since what they launched stands under them.
    fn close_second<R: Receiver>(&mut self, to: &mut Teller<'_, R>) {
        let mut winners = self.contest.winners();
        winners.sort_unstable_by_key(Candidate::order);
        for winner in winners {
            match winner {
                Candidate::Range(number) => {
                    let is_forgotten = self.ranges.choose(number) == 0;
                    self.left_out.by_rate += u64::from(is_forgotten);
                }
                Candidate::Call(call) => self.tell_call(&call, to),
                Candidate::Operation { operation, number, anomaly } => {
                    self.tell_operation(&operation, number, anomaly, to);
                }
            }
        }
        self.tell_ranges(to);
    }

    fn tell_call<R: Receiver>(&mut self, call: &HostCall, to: &mut Teller<'_, R>) {
        let id = self.call_id(call);
        if matches!(call.kind, kind::LAUNCH | kind::GRAPH_LAUNCH | kind::COPY | kind::FILL) {
            self.launches.insert(id);
        }
        let place = self.place(call.range, call.caller, to.joined);
        let described = describe::call(call, &self.sampling, to.definitions);
        let times = (call.start_ns, call.start_ns.saturating_add(call.duration_ns));
        let mut span = self.span(described, id, place, times);
        let says_all = self.sampling.is_slow(call.duration_ns) || has_failed(call, to.definitions);
        self.lines.describe(call.stack, says_all, to.definitions, &mut span.attributes);
        let error = has_failed(call, to.definitions).then(|| describe::failure(call, to.definitions));
        self.tell(Span { error, ..span }, to);
    }

    fn tell_operation<R: Receiver>(
        &mut self,
        operation: &Operation,
        number: u64,
        anomaly: Option<Anomaly>,
        to: &mut Teller<'_, R>,
    ) {
        let Some(timing) = operation.timing else { return };
        let place = match &operation.call {
            Some(call) => {
                let place = self.place(call.range, call.caller, to.joined);
                let id = self.call_id(call);
                // Whatever was told in another trace is no parent.
                match self.launches.contains(id) && place.is_whole {
                    true => Place { parent: id, parent_is_remote: false, ..place },
                    false => place,
                }
            }
            None => self.place(0, 0, to.joined),
        };
        let described =
            self.describer.operation(operation, timing.duration_ns, anomaly, &self.sampling, to.definitions);
        let id = self.seed.span(Of::Operation, number, 0);
        let times = (timing.start_ns, timing.start_ns.saturating_add(timing.duration_ns));
        let mut span = self.span(described, id, place, times);
        let stack = operation.call.as_ref().map_or(0, |call| call.stack);
        let is_slow = self.sampling.is_slow(timing.duration_ns);
        self.lines.describe(stack, is_slow, to.definitions, &mut span.attributes);
        let launch = operation.call.as_ref().map(|call| call.start_ns);
        span.events
            .extend(launch.map(|at_ns| Event { name: "launch", at_ns: self.clock.realtime_ns(at_ns) }));
        self.tell(span, to);
    }

    /// Ranges that became spans, and those around them, which are ones thereby.
    fn tell_ranges<R: Receiver>(&mut self, to: &mut Teller<'_, R>) {
        while let Some(range) = self.ranges.next_chosen() {
            let place = self.place(range.around, range.caller, to.joined);
            let described = describe::range(&range, to.definitions);
            let times = (range.start_ns, range.end_ns);
            let span = self.span(described, self.range_id(range.number), place, times);
            self.tell(span, to);
        }
    }

    /// Under the span of that range, which is one from now on; else under the caller's or the process's.
    fn place(&mut self, range: u32, caller: u32, joined: &Joined) -> Place {
        let of = self.callers.get(caller).copied();
        let is_whole = caller == 0 || of.is_some();
        // One that was forgotten had a trace of its own, which its ranges are in.
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
                let Joined { trace_id, flags, .. } = *joined;
                Place { trace_id, flags, state: state(), parent, parent_is_remote, is_whole }
            }
            Some(of) => {
                let [lower, upper] = of.trace;
                let trace_id = u128::from(upper) << 64 | u128::from(lower);
                // The state is of the trace that the process was given.
                let state = if trace_id == joined.trace_id { state() } else { Arc::default() };
                Place { trace_id, flags: of.flags & SAMPLED, state, parent, parent_is_remote, is_whole }
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
        Place { trace_id, flags, state, parent, parent_is_remote, .. }: Place,
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

    fn tell<R: Receiver>(&mut self, span: Span, to: &mut Teller<'_, R>) {
        self.told += 1;
        to.receiver.span(span, to.definitions);
    }
}

/// Where a span stands.
#[derive(Debug)]
struct Place {
    trace_id: u128,
    flags: u8,
    state: Arc<str>,
    parent: u64,
    parent_is_remote: bool,
    /// Whether that is where it belongs, or was for whom it was forgotten.
    is_whole: bool,
}

/// Where spans go, and what they share.
#[derive(Debug)]
pub struct Teller<'a, R> {
    pub receiver: &'a mut R,
    pub definitions: &'a Definitions,
    pub joined: &'a Joined,
}

impl Clock {
    fn realtime_ns(self, monotonic_ns: u64) -> u64 {
        let since = i128::from(monotonic_ns) - i128::from(self.monotonic_ns);
        u64::try_from((i128::from(self.realtime_ns) + since).max(0)).unwrap_or(u64::MAX)
    }
}

impl Candidate {
    fn order(&self) -> (bool, u64) {
        match self {
            Candidate::Call(call) => (false, call.start_ns),
            Candidate::Operation { number, .. } => (true, *number),
            Candidate::Range(number) => (true, u64::from(*number)),
        }
    }
}

/// The latest calls that are spans and launched something.
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
