//! The pipeline's end: feeds batches to the processes that they belong to.

use std::collections::BTreeMap;

use crate::batch::{Batch, Counters, ProcessBegin, ProcessEnd, SeriesFile, SeriesMark, SessionBegin};
use crate::model::counts::Counts;
use crate::model::ended::Ended;
use crate::model::loss::Loss;
use crate::model::process::{ProcessState, Repetition};
use crate::model::process_totals::FIRST_NUMBER;
use crate::model::running::Running;
use crate::model::sink::Sink;
use crate::model::totals::{Series, Session, Totals};

/// Processes of one session at a time.
const RUNNING_MAX: usize = 1 << 16;

/// Consumes the stream of one or several sessions, one after the other.
///
/// Of a process that has ended nothing is left but what the report tells of it ([`Ended`]): a session may go on for
/// months.
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
    ended: Ended,
    /// Of the file at hand, if that is one of a series.
    repetition: Repetition,
    /// Sums of the processes that ended before [`Model::forget_ended`].
    forgotten: EndedSums,
}

/// Sums of the processes that have ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndedSums {
    pub processes: usize,
    pub counts: Counts,
    pub counters: Counters,
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
            ended: Ended::default(),
            repetition: Repetition::None,
            forgotten: EndedSums::default(),
        }
    }

    /// One that keeps so few processes that have ended.
    #[cfg(test)]
    pub(crate) fn keeping(sink: S, processes_max: usize) -> Model<S> {
        Model { ended: Ended::with_room(processes_max, usize::MAX), ..Model::new(sink) }
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
                self.ended.settle(&mut self.sink);
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

    /// What those come to that have.
    pub(crate) fn ended(&self) -> EndedSums {
        let (mut all, sums) = (self.forgotten.clone(), self.ended.sums());
        all.processes += sums.processes;
        all.counts.add(sums.counts);
        all.counters.add(sums.counters);
        all
    }

    /// Drops all that is kept of processes that have ended, but for their sums.
    pub(crate) fn forget_ended(&mut self) {
        self.forgotten = self.ended();
        self.ended = Ended::default();
    }

    /// Tells the sink that this moment has come, for each process that runs.
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
        // They are numbered one after the other, and in a session's part some are missing.
        let full = self.current.len() >= RUNNING_MAX || self.begun == FIRST_NUMBER;
        if u64::from(number) < self.next_number || full {
            self.ended.lose(Loss::UnknownProcess, 1);
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
            None => self.ended.lose(Loss::UnknownProcess, 1),
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

    fn close_process(&mut self, state: ProcessState) {
        let runs_on = state.runs_on();
        let (process, losses) = state.finish(&mut self.sink);
        if runs_on {
            self.ended.add_running(process, losses);
        } else {
            self.ended.add(process, losses);
        }
        self.ended.settle(&mut self.sink);
    }

    /// The end of everything: what was counted, and the sink back.
    pub fn finish(mut self) -> (Totals, S) {
        self.close_session();
        for state in std::mem::take(&mut self.suspended) {
            self.close_process(state);
        }
        let totals = self.ended.into_totals(&mut self.sink);
        let unrecorded =
            self.sessions.iter().flat_map(|session| session.unrecorded.iter().cloned()).collect();
        (Totals { sessions: self.sessions, unrecorded, ..totals }, self.sink)
    }
}
