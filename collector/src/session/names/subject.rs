//! The names of one process, as they were recorded last.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::seen;
use super::system::System;
use crate::batch::Definition;
use crate::command_line;

/// The most threads of a process that are looked at again at its end: the newest, as the oldest have most
/// likely ended.
pub const THREADS_MAX: usize = 512;
/// How much later than its definition a thread may appear to have begun: a tick, and the difference between
/// the clocks of two processors.
const SLACK_NS: u64 = 20_000_000;

#[derive(Debug)]
pub struct Subject {
    pub process: u32,
    pid: u32,
    /// When the process began: distinguishes it from another one with the same id. `None` if it had already
    /// ended.
    pub began: Option<u64>,
    /// Whether the process is in a namespace of its own.
    is_inside: bool,
    /// The newest last.
    threads: VecDeque<TrackedThread>,
    redacted: bool,
    /// The command line or title that was recorded last; `None` before the process defined its command line.
    title: Option<Vec<u8>>,
}

#[derive(Debug)]
struct TrackedThread {
    /// The id in the process's own namespace.
    tid: u32,
    definition: u32,
    before_ns: u64,
    began: Option<u64>,
    /// The name that was recorded last.
    name: Vec<u8>,
}

impl Subject {
    pub fn new(process: u32, pid: u32, own_pid: u32, system: &System) -> Subject {
        Subject {
            process,
            pid,
            began: system.began(pid),
            is_inside: system.inner_pid(pid) == Some(own_pid),
            threads: VecDeque::new(),
            redacted: false,
            title: None,
        }
    }

    /// Notes the command line that the process defined; redacted, it is the program alone.
    pub fn defined_command(&mut self, command: &[u8], redacted: bool) {
        self.redacted = redacted;
        self.title = Some(trimmed(command));
    }

    pub fn thread(&mut self, tid: u32, definition: u32, name: Vec<u8>, before_ns: u64) {
        // An earlier thread with this id has ended.
        self.threads.retain(|thread| thread.tid != tid);
        self.threads.push_back(TrackedThread { tid, definition, before_ns, began: None, name });
        if self.threads.len() > THREADS_MAX {
            self.threads.pop_front();
        }
    }

    /// Looks at the thread that was defined last: many are renamed right after they begin. In a namespace
    /// this would need a look at all threads, and is left to [`Subject::look`].
    pub fn look_at_newest(&mut self, system: &System, now_ns: u64) -> Option<(u64, Vec<Definition>)> {
        let thread = self.threads.back_mut().filter(|_| !self.is_inside)?;
        let record = thread.look(thread.tid, self.pid, system, now_ns)?;
        Some((self.same(system)?, vec![record]))
    }

    /// Looks at the title and at the threads. Returns when the process began and what has changed, or `None`
    /// if the process is gone, or another one has its id.
    pub fn look(&mut self, system: &System, now_ns: u64) -> Option<(u64, Vec<Definition>)> {
        self.same(system)?;
        let mut records = Vec::from_iter(self.look_at_title(system, now_ns));
        let outer: FxHashMap<u32, u32> = match self.is_inside {
            true => system.threads(self.pid).into_iter().collect(),
            false => FxHashMap::default(),
        };
        for thread in &mut self.threads {
            let number = if self.is_inside { outer.get(&thread.tid).copied() } else { Some(thread.tid) };
            records.extend(number.and_then(|number| thread.look(number, self.pid, system, now_ns)));
        }
        // Another process may have got the id since the check above.
        Some((self.same(system)?, records))
    }

    /// When the process began, if the id is still its own.
    fn same(&self, system: &System) -> Option<u64> {
        self.began.filter(|_| system.began(self.pid) == self.began)
    }

    fn look_at_title(&mut self, system: &System, now_ns: u64) -> Option<Definition> {
        // Before the process has defined its command line, it is unknown whether titles are redacted.
        let recorded = self.title.as_ref()?;
        let command = system.command(self.pid)?;
        let title = trimmed(&command_line::masked_bytes(&trimmed(&command)));
        let title = if self.redacted { program_of(&title) } else { title };
        if title.is_empty() || title == *recorded {
            return None;
        }
        self.title = Some(title.clone());
        Some(seen(0, now_ns, title))
    }
}

impl TrackedThread {
    /// The thread's name, if it has changed. `number` is its id in this namespace.
    fn look(&mut self, number: u32, pid: u32, system: &System, now_ns: u64) -> Option<Definition> {
        let found = system.thread(pid, number)?;
        if !self.is(found.began, system) || found.name == self.name {
            return None;
        }
        self.name.clone_from(&found.name);
        Some(seen(self.definition, now_ns, found.name))
    }

    /// Whether a thread that began at `began` is the one that was defined.
    fn is(&mut self, began: u64, system: &System) -> bool {
        match self.began {
            Some(known) => known == began,
            None if system.began_ns(began) <= self.before_ns.saturating_add(SLACK_NS) => {
                self.began = Some(began);
                true
            }
            None => false,
        }
    }
}

/// Removes the padding that a program leaves when it overwrites its arguments.
fn trimmed(text: &[u8]) -> Vec<u8> {
    let end = text.iter().rposition(|byte| *byte != 0 && *byte != b' ').map_or(0, |last| last + 1);
    text.get(..end).unwrap_or_default().to_vec()
}

fn program_of(title: &[u8]) -> Vec<u8> {
    let arguments: Vec<String> =
        title.split(|byte| *byte == 0).map(|part| String::from_utf8_lossy(part).into_owned()).collect();
    command_line::redacted(&arguments).join("\0").into_bytes()
}
