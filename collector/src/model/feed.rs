//! The pipeline's end: feeds batches to the processes that they belong to.

use std::collections::BTreeMap;

use crate::batch::{Batch, ProcessBegin, ProcessEnd, SessionBegin};
use crate::model::exited::{Exited, Sums};
use crate::model::loss::Loss;
use crate::model::process::ProcessState;
use crate::model::running::Running;
use crate::model::sink::Sink;
use crate::model::totals::{Session, Totals};

/// Processes of one session at a time.
const RUNNING_MAX: usize = 1 << 16;

/// Consumes the stream of one or several sessions, one after the other.
///
/// Of a process that has exited, only what the report shows is kept ([`Exited`]).
#[derive(Debug)]
pub struct Model<S> {
    sink: S,
    sessions: Vec<Session>,
    /// Processes of the session at hand that have not ended, by the number that it gives them.
    current: BTreeMap<u32, Box<ProcessState>>,
    /// The first number of the session at hand that no process had so far.
    next_number: u64,
    /// Processes that ran on when their session ended. Another collector may have taken over.
    suspended: Vec<ProcessState>,
    /// Processes that have begun, over all sessions: the number of the next one. A session's own numbers may be any,
    /// and must not push those of later ones.
    begun: u32,
    exited: Exited,
}

impl<S: Sink> Model<S> {
    pub fn new(sink: S) -> Model<S> {
        Model {
            sink,
            sessions: Vec::new(),
            current: BTreeMap::new(),
            next_number: 0,
            suspended: Vec::new(),
            begun: 0,
            exited: Exited::default(),
        }
    }

    /// One that keeps so few exited processes.
    #[cfg(test)]
    pub(crate) fn keeping(sink: S, processes_max: usize) -> Model<S> {
        Model { exited: Exited::bounded(processes_max, usize::MAX), ..Model::new(sink) }
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
                    size_limit: None,
                    wall_ns: None,
                    last_seen_ns,
                    unrecorded: Vec::new(),
                });
            }
            Batch::Excerpt(excerpt) => {
                if let Some(session) = self.sessions.last_mut() {
                    session.excerpt = Some(excerpt.clone());
                }
            }
            Batch::SizeLimit(limit) => {
                if let Some(session) = self.sessions.last_mut() {
                    session.size_limit = Some(*limit);
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
            Batch::ProcessEnd { process, end, monotonic_ns } => {
                self.with(*process, |state, _| state.end_as(*end, *monotonic_ns));
                if *end != ProcessEnd::Running
                    && let Some(state) = self.current.remove(process)
                {
                    self.saw(state.last_seen_ns);
                    self.close_process(*state);
                }
            }
            Batch::Unrecorded(lines) => {
                if let Some(session) = self.sessions.last_mut() {
                    session.unrecorded.clone_from(lines);
                }
            }
            Batch::SessionEnd { wall_ns } => {
                if let Some(session) = self.sessions.last_mut() {
                    session.wall_ns = Some(*wall_ns);
                }
            }
        }
    }

    /// The processes of the session at hand that have not ended, as they are now.
    pub(crate) fn running(&self) -> impl Iterator<Item = Running<'_>> {
        self.current.values().map(|state| state.running())
    }

    /// The totals of those that have ended.
    pub(crate) fn exited(&self) -> Sums<'_> {
        self.exited.sums()
    }

    /// Tells the sink that this moment has come, for each process that runs.
    pub fn time_passes(&mut self, now_ns: u64) {
        for process in self.current.values().filter(|process| process.runs_on()) {
            process.time_passes(now_ns, &mut self.sink);
        }
    }

    fn process_begin(&mut self, begin: &ProcessBegin) {
        let number = begin.process;
        // They are numbered one after the other, and in a session's part some are missing.
        let full = self.current.len() >= RUNNING_MAX || self.begun == u32::MAX;
        if u64::from(number) < self.next_number || full {
            self.exited.lose(Loss::UnknownProcess, 1);
            return;
        }
        self.next_number = u64::from(number) + 1;
        let suspended = self.suspended.iter().position(|state| state.is(begin));
        let mut state = match suspended {
            Some(at) => Box::new(self.suspended.swap_remove(at)),
            None => {
                self.begun += 1;
                Box::new(ProcessState::new(self.begun - 1, begin.clone()))
            }
        };
        match (suspended, self.sessions.last()) {
            (Some(_), _) => state.resume(),
            (None, session) => {
                let session = session.map(|session| &session.begin);
                state.introduce(session.unwrap_or(&SessionBegin::default()), &mut self.sink);
            }
        }
        self.current.insert(number, state);
    }

    fn with(&mut self, process: u32, act: impl FnOnce(&mut ProcessState, &mut S)) {
        match self.current.get_mut(&process) {
            Some(state) => act(state, &mut self.sink),
            None => self.exited.lose(Loss::UnknownProcess, 1),
        }
    }

    /// A process of the session at hand was there until then.
    fn saw(&mut self, last_seen_ns: u64) {
        if let Some(session) = self.sessions.last_mut() {
            session.last_seen_ns = session.last_seen_ns.max(last_seen_ns);
        }
    }

    /// The session at hand has no more batches, whether it said so or was cut off.
    fn close_session(&mut self) {
        self.next_number = 0;
        for state in std::mem::take(&mut self.current).into_values() {
            self.saw(state.last_seen_ns);
            if state.runs_on() {
                self.suspended.push(*state);
            } else {
                self.close_process(*state);
            }
        }
    }

    fn close_process(&mut self, state: ProcessState) {
        let runs_on = state.runs_on();
        let process = state.finish(&mut self.sink);
        if runs_on {
            self.exited.add_running(process);
        } else {
            self.exited.add(process);
        }
    }

    /// The end of everything: what was counted, and the sink back.
    pub fn finish(mut self) -> (Totals, S) {
        self.close_session();
        for state in std::mem::take(&mut self.suspended) {
            self.close_process(state);
        }
        let totals = self.exited.into_totals();
        let unrecorded =
            self.sessions.iter().flat_map(|session| session.unrecorded.iter().cloned()).collect();
        (Totals { sessions: self.sessions, unrecorded, ..totals }, self.sink)
    }
}
