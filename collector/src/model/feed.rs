//! The model: feeds batches to the processes that they belong to.

use std::collections::BTreeMap;

use crate::batch::{Batch, ProcessBegin, ProcessEnd, SeriesFile, SeriesMark, SessionBegin};
use crate::model::exited::{Exited, Sums};
use crate::model::loss::Loss;
use crate::model::process::{ProcessState, Repetition};
use crate::model::running_process::RunningProcess;
use crate::model::sink::Sink;
use crate::model::totals::{Series, Session, Totals};

/// The most running processes of a session.
const RUNNING_MAX: usize = 1 << 16;

/// Consumes the stream of one or several sessions, one after the other.
///
/// Of a process that has exited, only what the report shows is kept ([`Exited`]).
#[derive(Debug)]
pub struct Model<S> {
    sink: S,
    sessions: Vec<Session>,
    /// Running processes of the current session, by their number in it.
    current: BTreeMap<u32, Box<ProcessState>>,
    /// The first unused process number of the current session.
    next_number: u64,
    /// Processes that ran on when their session ended. Another collector may have taken over.
    suspended: Vec<ProcessState>,
    /// The number of processes over all sessions, and the next one's number. Numbers in a stream may be
    /// arbitrary, so these are not used.
    begun: u32,
    exited: Exited,
    /// How to treat repeated batches, if the current file is one of a series.
    repetition: Repetition,
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
            repetition: Repetition::None,
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
                    series: None,
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
            Batch::SeriesFile(file) => self.series_file(*file),
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
            Batch::DeviceSamples(samples) => self.sink.device_samples(samples),
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

    /// The running processes of the current session.
    pub(crate) fn running(&self) -> impl Iterator<Item = RunningProcess<'_>> {
        self.current.values().map(|state| state.running())
    }

    /// The totals of those that have ended.
    pub(crate) fn exited(&self) -> Sums<'_> {
        self.exited.sums()
    }

    /// Drops all that is kept of exited processes, except their sums.
    pub(crate) fn forget_exited(&mut self) {
        self.exited.forget();
    }

    /// Passes the current time to the sink, for each running process.
    pub fn time_passes(&mut self, now_ns: u64) {
        for process in self.current.values().filter(|process| process.runs_on()) {
            process.time_passes(now_ns, &mut self.sink);
        }
    }

    /// A file of a series goes on with the session of the file that was read before it.
    fn series_file(&mut self, file: SeriesFile) {
        if file.mark == SeriesMark::Begins {
            self.repetition = Repetition::Taken;
        }
        match (file.mark, self.sessions.as_mut_slice()) {
            // `read_traces` sorts the files of a series.
            (SeriesMark::Begins, [.., before, this]) if before.begin == this.begin => {
                let series = before.series.unwrap_or(Series::FIRST_FILE);
                let missing = file.number.saturating_sub(series.last.saturating_add(1));
                // A damaged file lacks this mark, and events: its processes are taken over.
                if series.goes_on && missing == 0 {
                    self.repetition = Repetition::Skipped;
                }
                let missing = series.missing.saturating_add(missing);
                before.series = Some(Series { last: file.number, missing, goes_on: false, ..series });
                before.wall_ns = None;
                self.sessions.pop();
            }
            (SeriesMark::Begins, [.., this]) => this.series = Some(Series::from(file)),
            (SeriesMark::GoesOn, [.., this]) => {
                this.series = Some(Series { goes_on: true, ..this.series.unwrap_or(Series::FIRST_FILE) });
            }
            (SeriesMark::Repeated, _) => {
                self.repetition = Repetition::None;
                self.current.values_mut().for_each(|state| state.repeat(Repetition::None));
            }
            _ => {}
        }
    }

    fn process_begin(&mut self, begin: &ProcessBegin) {
        let number = begin.process;
        // Numbers rise by one, or by more in a session's part.
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
        // One that is not known has nothing that could be skipped.
        let is_skipped = self.repetition == Repetition::Skipped && suspended.is_none();
        state.repeat(if is_skipped { Repetition::Taken } else { self.repetition });
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
            Some(state) if state.repetition() == Repetition::Skipped => {}
            Some(state) => act(state, &mut self.sink),
            None => self.exited.lose(Loss::UnknownProcess, 1),
        }
    }

    /// Notes that a process of the current session was seen at that time.
    fn saw(&mut self, last_seen_ns: u64) {
        if let Some(session) = self.sessions.last_mut() {
            session.last_seen_ns = session.last_seen_ns.max(last_seen_ns);
        }
    }

    /// Closes the current session, complete or cut off.
    fn close_session(&mut self) {
        self.next_number = 0;
        self.repetition = Repetition::None;
        for state in std::mem::take(&mut self.current).into_values() {
            self.saw(state.last_seen_ns);
            if state.runs_on() {
                self.suspended.push(*state);
            } else {
                self.close_process(*state);
            }
        }
    }

    /// Whether the stream has all of the current session so far.
    fn is_whole(&self) -> bool {
        let is_all = |series: &Series| series.first == 1 && series.missing == 0 && !series.goes_on;
        self.sessions.last().is_none_or(|session| {
            session.excerpt.is_none()
                && session.size_limit.is_none()
                && session.series.as_ref().is_none_or(is_all)
        })
    }

    fn close_process(&mut self, mut state: ProcessState) {
        let runs_on = state.runs_on();
        state.count_unwritten(self.is_whole());
        let process = state.finish(&mut self.sink);
        if runs_on {
            self.exited.add_running(process);
        } else {
            self.exited.add(process);
        }
    }

    /// Ends the stream. Returns the totals and the sink.
    pub fn finish(mut self) -> (Totals, S) {
        self.close_session();
        for state in std::mem::take(&mut self.suspended) {
            self.close_process(state);
        }
        self.sink.stream_ends();
        let totals = self.exited.into_totals();
        let unrecorded =
            self.sessions.iter().flat_map(|session| session.unrecorded.iter().cloned()).collect();
        (Totals { sessions: self.sessions, unrecorded, ..totals }, self.sink)
    }
}
