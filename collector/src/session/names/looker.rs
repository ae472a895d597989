//! The thread that reads /proc on request.

use std::path::PathBuf;

use crossbeam_channel::{Receiver, Sender};

use super::subject::Subject;
use super::system::System;
use super::{Ask, Found};
use crate::stream::clock::monotonic_ns;

/// The most processes whose names are looked up; further ones keep the names that they defined.
const SUBJECTS_MAX: usize = 4096;

#[derive(Debug)]
pub struct Looker {
    system: System,
    subjects: Vec<Subject>,
}

impl Looker {
    pub fn new(folder: PathBuf) -> Looker {
        Looker { system: System::new(folder), subjects: Vec::new() }
    }

    /// Answers requests until their sender is dropped.
    pub fn run(mut self, asks: &Receiver<Ask>, finds: &Sender<Found>) {
        for ask in asks {
            if let Some(found) = self.answer(ask) {
                // If the queue is full or closed, the drain thread is ending or far behind.
                let _ = finds.try_send(found);
            }
        }
    }

    fn answer(&mut self, ask: Ask) -> Option<Found> {
        let (process, last) = (ask.process(), matches!(ask, Ask::Last { .. }));
        let known = self.subjects.iter().position(|subject| subject.process == process);
        let system = &self.system;
        let found = match (ask, known.and_then(|index| self.subjects.get_mut(index))) {
            (Ask::Begin { process, pid, own_pid }, None) => {
                let subject = Subject::new(process, pid, own_pid, system);
                let began = subject.began?;
                if self.subjects.len() < SUBJECTS_MAX {
                    self.subjects.push(subject);
                }
                Some((began, Vec::new()))
            }
            (Ask::Command { command, redacted, .. }, Some(subject)) => {
                subject.defined_command(&command, redacted);
                None
            }
            (Ask::Thread { thread, tid, name, before_ns, .. }, Some(subject)) => {
                subject.thread(tid, thread, name, before_ns);
                subject.look_at_newest(system, monotonic_ns())
            }
            (Ask::Last { .. }, Some(subject)) => subject.look(system, monotonic_ns()),
            (Ask::End { .. }, Some(_)) => {
                known.map(|index| self.subjects.swap_remove(index));
                None
            }
            _ => None,
        };
        // A last look is always answered: the drain thread waits for it.
        let (began, records) = found.or_else(|| last.then(|| (0, Vec::new())))?;
        Some(Found { process, began, records, last })
    }
}
