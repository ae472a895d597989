//! The span of a whole run: what `gputrace run` names to its command as TRACEPARENT.
//!
//! Its id is worked out from the session's beginning, so that the program's own spans can stand under
//! it before there is any of ours. Processes that nobody else gave a span stand under it, and it is told
//! last, when it is known how long it was.

use std::sync::Arc;

use gputrace_wire::definition::{kind, origin_of};
use rustc_hash::FxHashMap;

use crate::batch::{Definition, SessionBegin};
use crate::model::definitions::Definitions;
use crate::spans::ids::SessionSeed;
use crate::spans::span::{Receiver, Span, Value};
use crate::spans::trace_context::{Malformed, SAMPLED, TraceParent};

/// What a session gave to its command, and what it had been given itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handed {
    pub context: TraceParent,
    pub caller: Option<TraceParent>,
}

impl Handed {
    /// `None` where a session gave nothing.
    pub fn of(session: &SessionBegin) -> Option<Handed> {
        session.hands_on.then(|| {
            let seed = SessionSeed::new(session);
            let caller = Handed::caller(session).and_then(Result::ok);
            let trace_id = caller.map_or_else(|| seed.trace(), |caller| caller.trace_id);
            let flags = caller.map_or(SAMPLED, |caller| caller.flags & SAMPLED);
            Handed { context: TraceParent { trace_id, span_id: seed.run(), flags }, caller }
        })
    }

    /// What the session was given, if it was.
    pub fn caller(session: &SessionBegin) -> Option<Result<TraceParent, Malformed>> {
        Some(&session.traceparent).filter(|text| !text.is_empty()).map(|text| TraceParent::parse(text))
    }
}

/// The TRACEPARENT that a session gives to its command.
pub fn traceparent(session: &SessionBegin) -> Option<String> {
    Handed::of(session).map(|handed| handed.context.to_string())
}

/// Why the TRACEPARENT that a session was given is not used, if it is not.
pub fn complaint(session: &SessionBegin) -> Option<String> {
    Handed::caller(session)?.err().map(|why| why.to_string())
}

/// The runs of all sessions in the stream.
#[derive(Debug, Default)]
pub struct Runs {
    runs: FxHashMap<SessionSeed, Run>,
    /// In order of appearance.
    order: Vec<SessionSeed>,
}

#[derive(Debug)]
struct Run {
    handed: Handed,
    command: Vec<String>,
    realtime_ns: u64,
    monotonic_ns: u64,
    end_monotonic_ns: u64,
    processes: u64,
    /// Of the first process that ended: what telemetry is called there, and the machine.
    origins: Vec<(u64, String)>,
    state: Arc<str>,
}

impl Runs {
    pub fn begin(&mut self, session: &SessionBegin, handed: Handed) {
        let seed = SessionSeed::new(session);
        if self.runs.contains_key(&seed) {
            return;
        }
        self.order.push(seed);
        self.runs.insert(
            seed,
            Run {
                handed,
                command: session.command.clone(),
                realtime_ns: session.realtime_ns,
                monotonic_ns: session.monotonic_ns,
                end_monotonic_ns: session.monotonic_ns,
                processes: 0,
                origins: Vec::new(),
                state: Arc::default(),
            },
        );
    }

    /// A process of that session has ended.
    pub fn process_ends(
        &mut self,
        session: SessionSeed,
        last_seen_ns: u64,
        (trace_id, state): (u128, &Arc<str>),
        definitions: &Definitions,
    ) {
        let Some(run) = self.runs.get_mut(&session) else { return };
        run.end_monotonic_ns = run.end_monotonic_ns.max(last_seen_ns);
        run.processes += 1;
        if run.origins.is_empty() {
            let kept = [
                origin_of::SERVICE_NAME,
                origin_of::RESOURCE_ATTRIBUTES,
                origin_of::HOST_NAME,
                origin_of::HOST_ARCH,
            ];
            let said = kept.into_iter().filter_map(|of| Some((of, definitions.origin(of)?.to_owned())));
            run.origins = said.collect();
        }
        if trace_id == run.handed.context.trace_id && run.state.is_empty() {
            run.state = Arc::clone(state);
        }
    }

    /// Tells the spans of all runs that had a process.
    pub fn finish<R: Receiver>(&mut self, receiver: &mut R) {
        let runs = std::mem::take(&mut self.runs);
        for (at, seed) in self.order.drain(..).enumerate() {
            // Numbers of processes begin at the other end.
            let number = u32::MAX - u32::try_from(at).unwrap_or(0);
            if let Some(run) = runs.get(&seed).filter(|run| run.processes > 0) {
                let definitions = run.definitions();
                receiver.span(run.span(number), &definitions);
                receiver.process_ended(number, &definitions);
            }
        }
    }
}

impl Run {
    fn span(&self, process: u32) -> Span {
        let Handed { context, caller } = self.handed;
        let command = self.command.first().map_or("", String::as_str);
        let length_ns = self.end_monotonic_ns.saturating_sub(self.monotonic_ns);
        Span {
            process,
            trace_id: context.trace_id,
            id: context.span_id,
            parent: caller.map_or(0, |caller| caller.span_id),
            parent_is_remote: caller.is_some(),
            flags: context.flags,
            trace_state: self.state.clone(),
            name: format!("run: {}", command.rsplit('/').next().unwrap_or(command)),
            start_ns: self.realtime_ns,
            end_ns: self.realtime_ns.saturating_add(length_ns),
            attributes: vec![
                ("gpu.backend", Value::text("cuda")),
                ("gputrace.processes", Value::number(self.processes)),
            ],
            events: Vec::new(),
            error: None,
        }
    }

    /// What its resource is made of.
    fn definitions(&self) -> Definitions {
        let mut definitions = Definitions::default();
        let origins = self.origins.iter().map(|(of, text)| (kind::ORIGIN, vec![*of], text.clone()));
        let process = (kind::PROCESS, Vec::new(), self.command.join("\0"));
        for (id, (kind, fields, text)) in (1..).zip(std::iter::once(process).chain(origins)) {
            definitions.add(&Definition { kind, id, fields, text: text.into_bytes() });
        }
        definitions
    }
}
