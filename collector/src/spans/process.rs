//! One process's spans: what becomes one, and under which other it stands.
//!
//! Under a process stand its ranges and host calls, by the range that they were made in; under what
//! launched it, each thing that a device did. Where that is no span, the nearest one around it takes
//! its place. Nothing is written here, and all that is held is bounded.

use std::collections::VecDeque;

use rustc_hash::FxHashSet;

use gputrace_wire::cell::kind;

use crate::batch::{ProcessBegin, SessionBegin};
use crate::failed_calls::has_failed;
use crate::model::definitions::Definitions;
use crate::model::instances::RangeInstance;
use crate::model::operation::{HostCall, Operation, What};
use crate::spans::contest::Contest;
use crate::spans::describe::{self, Describer};
use crate::spans::history::{Anomaly, Histories};
use crate::spans::ids::{Of, ProcessSeed, SessionSeed};
use crate::spans::joined::Joined;
use crate::spans::known_ranges::KnownRanges;
use crate::spans::sampling::Sampling;
use crate::spans::span::{Event, Receiver, Span, Value};

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
    launches: Launches,
    histories: Histories<Shape>,
    operations: u64,
    told: u64,
    left_out: LeftOut,
}

/// Calls and operations that do not become spans, by why. Ranges are counted where they are forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct LeftOut {
    short: u64,
    by_rate: u64,
    /// Operations without device times.
    untimed: u64,
}

/// From CLOCK_MONOTONIC to CLOCK_REALTIME, as both were at the session's begin.
#[derive(Clone, Copy, Debug)]
struct Clock {
    monotonic_ns: u64,
    realtime_ns: u64,
}

/// A kernel and the shape of its launch: what a history is of.
type Shape = (u32, [u32; 3], [u32; 3], u32);

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
            launches: Launches::default(),
            histories: Histories::new(sampling.sigmas),
            operations: 0,
            told: 0,
            left_out: LeftOut::default(),
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
        self.enter(Candidate::Call(call.clone()), end_ns, call.duration_ns, failed, to);
    }

    pub fn operation<R: Receiver>(&mut self, operation: &Operation, to: &mut Teller<'_, R>) {
        self.operations += 1;
        let Some(timing) = operation.timing else {
            self.left_out.untimed += 1;
            return;
        };
        let anomaly = match operation.what {
            What::Kernel(kernel) => {
                let shape = (kernel.name, kernel.grid, kernel.block, kernel.dynamic_shared_bytes);
                self.histories.judge(shape, timing.duration_ns)
            }
            _ => None,
        };
        if anomaly.is_none() && !self.sampling.is_candidate(timing.duration_ns) {
            self.left_out.short += 1;
            return;
        }
        let end_ns = timing.start_ns.saturating_add(timing.duration_ns);
        let candidate =
            Candidate::Operation { operation: operation.clone(), number: self.operations, anomaly };
        self.enter(candidate, end_ns, timing.duration_ns, anomaly.is_some(), to);
    }

    pub fn range_begins(&mut self, range: &RangeInstance) {
        self.ranges.begins(range.number);
    }

    pub fn range_ends<R: Receiver>(&mut self, range: &RangeInstance, to: &mut Teller<'_, R>) {
        self.ranges.ends(range, false);
        let duration_ns = range.end_ns.saturating_sub(range.start_ns);
        if self.sampling.is_candidate(duration_ns) {
            self.enter(Candidate::Range(range.number), range.end_ns, duration_ns, false, to);
        }
        self.tell_ranges(to);
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
            ("gputrace.left_out.unjudged", Value::number(self.histories.unjudged)),
        ];
        let baggage = joined.baggage.iter().map(|(key, value)| format!("{key}={value}"));
        let baggage: Vec<_> = baggage.map(|member| member.into()).collect();
        attributes.extend((!baggage.is_empty()).then_some(("gputrace.baggage", Value::Texts(baggage))));
        let command = to.definitions.process().and_then(|process| process.command.into_iter().next());
        let command = command.filter(|command| !command.is_empty()).unwrap_or_else(|| self.pid.to_string());
        let name = format!("process: {}", command.rsplit('/').next().unwrap_or(&command));
        let (start_ns, parent) = (self.start_ns, joined.parent);
        let span = self.span((name, attributes), self.root(), parent, (start_ns, end_ns), to);
        to.receiver.span(Span { parent_is_remote: joined.parent_is_remote, ..span }, to.definitions);
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
        winners.sort_by_key(Candidate::order);
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
        let parent = self.range_or_root(call.range);
        let described = describe::call(call, &self.sampling, to.definitions);
        let times = (call.start_ns, call.start_ns.saturating_add(call.duration_ns));
        let span = self.span(described, id, parent, times, to);
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
        let parent = match &operation.call {
            Some(call) if self.launches.contains(self.call_id(call)) => self.call_id(call),
            Some(call) => self.range_or_root(call.range),
            None => self.root(),
        };
        let described =
            self.describer.operation(operation, timing.duration_ns, anomaly, &self.sampling, to.definitions);
        let id = self.seed.span(Of::Operation, number, 0);
        let times = (timing.start_ns, timing.start_ns.saturating_add(timing.duration_ns));
        let mut span = self.span(described, id, parent, times, to);
        let launch = operation.call.as_ref().map(|call| call.start_ns);
        span.events
            .extend(launch.map(|at_ns| Event { name: "launch", at_ns: self.clock.realtime_ns(at_ns) }));
        self.tell(span, to);
    }

    /// Ranges that became spans, and those around them, which are ones thereby.
    fn tell_ranges<R: Receiver>(&mut self, to: &mut Teller<'_, R>) {
        while let Some(range) = self.ranges.next_chosen() {
            let parent = self.range_or_root(range.around);
            let described = describe::range(&range, to.definitions);
            let times = (range.start_ns, range.end_ns);
            let span = self.span(described, self.range_id(range.number), parent, times, to);
            self.tell(span, to);
        }
    }

    /// The span of that range, which is one from now on; else the process's.
    fn range_or_root(&mut self, number: u32) -> u64 {
        match self.ranges.choose(number) {
            0 => self.root(),
            number => self.range_id(number),
        }
    }

    fn range_id(&self, number: u32) -> u64 {
        self.seed.span(Of::Range, u64::from(number), 0)
    }

    fn call_id(&self, call: &HostCall) -> u64 {
        let thread = u64::from(call.thread) << 32 | u64::from(call.correlation);
        self.seed.span(Of::Call, call.start_ticks, thread)
    }

    fn span<R>(
        &self,
        (name, attributes): describe::Described,
        id: u64,
        parent: u64,
        (start_ns, end_ns): (u64, u64),
        to: &Teller<'_, R>,
    ) -> Span {
        Span {
            process: self.number,
            trace_id: to.joined.trace_id,
            id,
            parent,
            parent_is_remote: false,
            flags: to.joined.flags,
            trace_state: to.joined.state.clone(),
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
