//! The thread that looks: at every process once a second, at no more files than a bound allows.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use super::subject::Subject;
use super::system::System;
use super::{Ask, Found};
use crate::session::clock::monotonic_ns;

/// Between looks at a process.
const EVERY: Duration = Duration::from_secs(1);
/// Files that are read in one round over all processes, and of one of them: about 8 µs each, so half a
/// hundredth of a processor at most, whatever programs do. Threads beyond have their turn in the next.
const FILES_A_ROUND: usize = 512;
const FILES_A_PROCESS: usize = 64;
/// The last look at a process is in so many parts at most, and each is told by itself: whoever waits for it
/// does not wait long.
const PARTS_AT_THE_END: usize = 8;
/// Processes of which names are known.
const SUBJECTS_MAX: usize = 4096;

#[derive(Debug)]
pub struct Looker {
    system: System,
    /// The one whose turn it is first.
    subjects: Vec<Subject>,
    looked: Option<Instant>,
}

/// Which look it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Look {
    Ordinary,
    /// A part of the last one, more of which follow.
    BeforeLast,
    Last,
}

impl Looker {
    pub fn new(folder: PathBuf) -> Looker {
        Looker { system: System::new(folder), subjects: Vec::new(), looked: None }
    }

    /// Until nobody asks any more.
    pub fn run(mut self, asks: &Receiver<Ask>, finds: &Sender<Found>) {
        loop {
            let rest = match self.looked {
                _ if self.subjects.is_empty() => None,
                Some(looked) => Some(EVERY.saturating_sub(looked.elapsed())),
                None => Some(Duration::ZERO),
            };
            let ask = match rest {
                None => asks.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(rest) => asks.recv_timeout(rest),
            };
            match ask {
                Ok(ask) => self.hear(ask, finds),
                Err(RecvTimeoutError::Timeout) => {
                    self.looked = Some(Instant::now());
                    self.round(finds);
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn hear(&mut self, ask: Ask, finds: &Sender<Found>) {
        match ask {
            Ask::Begin { process, pid, own_pid } => {
                if self.subjects.len() < SUBJECTS_MAX {
                    self.subjects.push(Subject::new(process, pid, own_pid, monotonic_ns()));
                    // Which process it is can be learned while it is surely there.
                    self.look(self.subjects.len() - 1, &mut { 2 }, Look::Ordinary, finds);
                }
            }
            Ask::Said { process, command, redacted } => {
                self.with(process, |subject| subject.said(&command, redacted));
            }
            Ask::Thread { process, thread, tid, name, before_ns } => {
                self.with(process, |subject| subject.thread(tid, thread, name, before_ns));
            }
            Ask::Last { process } => {
                let found = self.subjects.iter().position(|subject| subject.process == process);
                match found {
                    Some(index) => self.look_last(index, finds),
                    // Whoever waits is answered.
                    None => _ = finds.try_send(Found { process, began: 0, records: Vec::new(), last: true }),
                }
            }
            Ask::End { process } => self.subjects.retain(|subject| subject.process != process),
        }
    }

    fn with(&mut self, process: u32, act: impl FnOnce(&mut Subject)) {
        if let Some(subject) = self.subjects.iter_mut().find(|subject| subject.process == process) {
            act(subject);
        }
    }

    /// Looks at as many processes as the bound allows; the others are first next time.
    fn round(&mut self, finds: &Sender<Found>) {
        let mut files = FILES_A_ROUND;
        let mut done = 0;
        while done < self.subjects.len() && files > 0 {
            let mut budget = files.min(FILES_A_PROCESS);
            let given = budget;
            self.look(done, &mut budget, Look::Ordinary, finds);
            files -= (given - budget).max(1);
            done += 1;
        }
        let first = done.checked_rem(self.subjects.len()).unwrap_or(0);
        self.subjects.rotate_left(first);
    }

    fn look_last(&mut self, index: usize, finds: &Sender<Found>) {
        let threads = self.subjects.get(index).map_or(0, Subject::threads);
        let parts = (1 + threads / FILES_A_PROCESS).min(PARTS_AT_THE_END);
        for part in 1..=parts {
            let look = if part == parts { Look::Last } else { Look::BeforeLast };
            // What is read beside the threads.
            self.look(index, &mut { FILES_A_PROCESS + 2 }, look, finds);
        }
    }

    fn look(&mut self, index: usize, budget: &mut usize, look: Look, finds: &Sender<Found>) {
        let Some(subject) = self.subjects.get_mut(index) else { return };
        let found = subject.look(&self.system, budget, look != Look::Ordinary, monotonic_ns());
        let (process, last) = (subject.process, look == Look::Last);
        let found = match found {
            Some((began, records)) => Found { process, began, records, last },
            None if last => Found { process, began: 0, records: Vec::new(), last },
            None => return,
        };
        // A drain thread that does not take them is at its end, or in trouble of its own.
        let _ = finds.try_send(found);
    }
}
