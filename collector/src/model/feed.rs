//! The pipeline's end: feeds batches to the processes that they belong to.

use gputrace_wire::counter::Counter;

use crate::batch::{Batch, ProcessBegin, ProcessEnd, SessionBegin};
use crate::model::loss::Loss;
use crate::model::operation::Sink;
use crate::model::process::ProcessState;
use crate::model::totals::{Session, Totals};
use crate::session::Running;

/// Processes of one session that are kept.
const PROCESSES_MAX: usize = 1 << 16;

/// Consumes the stream of one or several sessions, one after the other.
#[derive(Debug)]
pub struct Model<S> {
    sink: S,
    sessions: Vec<Session>,
    /// Processes of the session at hand by number; their numbers over all are offset.
    current: Vec<Option<ProcessState>>,
    /// Processes that ran on when their session ended. Another collector may have taken over.
    suspended: Vec<ProcessState>,
    offset: u32,
    done: Totals,
}

impl<S: Sink> Model<S> {
    pub fn new(sink: S) -> Model<S> {
        Model {
            sink,
            sessions: Vec::new(),
            current: Vec::new(),
            suspended: Vec::new(),
            offset: 0,
            done: Totals::default(),
        }
    }

    pub fn sink(&self) -> &S {
        &self.sink
    }

    pub fn consume(&mut self, batch: &Batch) {
        match batch {
            Batch::SessionBegin(begin) => {
                self.close_session();
                let last_seen_ns = begin.monotonic_ns;
                self.sessions.push(Session {
                    begin: begin.clone(),
                    excerpt: None,
                    wall_ns: None,
                    last_seen_ns,
                });
            }
            Batch::Excerpt(excerpt) => {
                if let Some(session) = self.sessions.last_mut() {
                    session.excerpt = Some(excerpt.clone());
                }
            }
            Batch::ProcessBegin(begin) => self.process_begin(begin),
            Batch::Definitions { process, records } => {
                self.with(*process, |state, sink| state.define(records, sink));
            }
            Batch::Cells { process, ring, cells } => {
                self.with(*process, |state, sink| state.cells(*ring, cells, sink));
            }
            Batch::Counters(counters) => {
                self.with(counters.process, |state, sink| state.set_counters(counters, sink));
            }
            Batch::ProcessEnd { process, end: end @ ProcessEnd::Running, monotonic_ns } => {
                self.with(*process, |state, _| state.end_as(*end, *monotonic_ns));
            }
            Batch::ProcessEnd { process, end, monotonic_ns } => {
                self.with(*process, |state, sink| state.end(Some((*end, *monotonic_ns)), sink));
            }
            Batch::SessionEnd { wall_ns } => {
                if let Some(session) = self.sessions.last_mut() {
                    session.wall_ns = Some(*wall_ns);
                }
            }
        }
    }

    /// The processes of the session at hand, as they are now.
    pub(crate) fn running(&self) -> impl Iterator<Item = Running<'_>> {
        self.current.iter().flatten().map(ProcessState::running)
    }

    /// Tells the sink that this moment has come, for each process that runs.
    pub fn time_passes(&mut self, now_ns: u64) {
        for process in self.current.iter().flatten().filter(|process| process.runs_on()) {
            process.time_passes(now_ns, &mut self.sink);
        }
    }

    fn process_begin(&mut self, begin: &ProcessBegin) {
        let index = begin.process as usize;
        if index >= PROCESSES_MAX || self.current.get(index).is_some_and(Option::is_some) {
            self.lose(Loss::UnknownProcess, 1);
            return;
        }
        if self.current.len() <= index {
            self.current.resize_with(index + 1, || None);
        }
        let suspended = self.suspended.iter().position(|state| state.is(begin));
        let mut state = match suspended {
            Some(at) => self.suspended.swap_remove(at),
            None => ProcessState::new(self.offset.saturating_add(begin.process), begin.clone()),
        };
        match (suspended, self.sessions.last()) {
            (Some(_), _) => state.resume(),
            (None, session) => {
                let session = session.map(|session| &session.begin);
                state.introduce(session.unwrap_or(&SessionBegin::default()), &mut self.sink);
            }
        }
        if let Some(place) = self.current.get_mut(index) {
            *place = Some(state);
        }
    }

    fn with(&mut self, process: u32, act: impl FnOnce(&mut ProcessState, &mut S)) {
        match self.current.get_mut(process as usize) {
            Some(Some(state)) => act(state, &mut self.sink),
            _ => self.lose(Loss::UnknownProcess, 1),
        }
    }

    fn lose(&mut self, loss: Loss, count: u64) {
        let total = self.done.losses.entry(loss.name()).or_default();
        *total = total.saturating_add(count);
    }

    /// The session at hand has no more batches, whether it said so or was cut off.
    fn close_session(&mut self) {
        self.offset = self.offset.saturating_add(u32::try_from(self.current.len()).unwrap_or(u32::MAX));
        for state in std::mem::take(&mut self.current).into_iter().flatten() {
            if let Some(session) = self.sessions.last_mut() {
                session.last_seen_ns = session.last_seen_ns.max(state.last_seen_ns);
            }
            if state.runs_on() {
                self.suspended.push(state);
            } else {
                self.close_process(state);
            }
        }
    }

    fn close_process(&mut self, mut state: ProcessState) {
        state.end(None, &mut self.sink);
        let (process, losses) = state.into_totals();
        for (loss, count) in losses {
            self.lose(loss, count);
        }
        for counter in Counter::ALL.into_iter().filter(|counter| counter.is_loss()) {
            let value = process.counters.values.get(counter as usize).copied().unwrap_or(0);
            if value > 0 {
                let total = self.done.losses.entry(counter.name()).or_default();
                *total = total.saturating_add(value);
            }
        }
        self.done.counts.add(&process.counts);
        self.done.processes.push(process);
    }

    /// The end of everything: what was counted, and the sink back.
    pub fn finish(mut self) -> (Totals, S) {
        self.close_session();
        for state in std::mem::take(&mut self.suspended) {
            self.close_process(state);
        }
        self.done.processes.sort_by_key(|process| process.number);
        self.done.sessions = self.sessions;
        (self.done, self.sink)
    }
}
