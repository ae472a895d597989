//! What is known of one process's names.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::seen;
use super::system::System;
use crate::batch::Definition;
use crate::command_line;

/// Threads of a process that are looked at again at its end: the newest, as the oldest are the likeliest
/// to have ended.
pub const THREADS_MAX: usize = 512;
/// What a thread may be younger than the moment before which it was defined: a tick, and what the clocks
/// of two processors are apart.
const SLACK_NS: u64 = 20_000_000;

#[derive(Debug)]
pub struct Subject {
    pub process: u32,
    pid: u32,
    /// When it began, by which it is told from another of its number; `None` if it was gone at once.
    pub began: Option<u64>,
    /// Whether it is in a namespace of its own.
    is_inside: bool,
    /// The newest last.
    threads: VecDeque<TrackedThread>,
    redacted: bool,
    /// The command line that was recorded last, once it said one.
    title: Option<Vec<u8>>,
}

#[derive(Debug)]
struct TrackedThread {
    /// How it calls itself.
    tid: u32,
    definition: u32,
    before_ns: u64,
    began: Option<u64>,
    /// What was recorded last.
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

    /// What it said its command line is, or nothing but the program of it.
    pub fn said(&mut self, command: &[u8], redacted: bool) {
        self.redacted = redacted;
        self.title = Some(trimmed(command));
    }

    pub fn thread(&mut self, tid: u32, definition: u32, name: Vec<u8>, before_ns: u64) {
        // Another thread of that number has ended.
        self.threads.retain(|thread| thread.tid != tid);
        self.threads.push_back(TrackedThread { tid, definition, before_ns, began: None, name });
        if self.threads.len() > THREADS_MAX {
            self.threads.pop_front();
        }
    }

    /// Looks at the thread that was defined last: many are renamed right after their beginning. In a
    /// namespace that would need a look at all threads, and is left to [`Subject::look`].
    pub fn look_at_newest(&mut self, system: &System, now_ns: u64) -> Option<(u64, Vec<Definition>)> {
        let thread = self.threads.back_mut().filter(|_| !self.is_inside)?;
        let record = thread.look(thread.tid, self.pid, system, now_ns)?;
        Some((self.same(system)?, vec![record]))
    }

    /// Looks at the title and at the threads. Returns when the process began and what is new, or `None` if
    /// the process is not there, or is another one by now.
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
        // Between the first question and the last one the number may have become another process's.
        Some((self.same(system)?, records))
    }

    /// When the process began, if its number is still its own.
    fn same(&self, system: &System) -> Option<u64> {
        self.began.filter(|_| system.began(self.pid) == self.began)
    }

    fn look_at_title(&mut self, system: &System, now_ns: u64) -> Option<Definition> {
        // Whether the title may be recorded is known once the process has said its command line.
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
    /// Its name, where it is another one than was recorded last. `number` is how it is called here.
    fn look(&mut self, number: u32, pid: u32, system: &System, now_ns: u64) -> Option<Definition> {
        let found = system.thread(pid, number)?;
        if !self.is(found.began, system) || found.name == self.name {
            return None;
        }
        self.name.clone_from(&found.name);
        Some(seen(self.definition, now_ns, found.name))
    }

    /// Whether the thread that began then is the one that was defined.
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

/// Without what a program that overwrote its arguments left of them.
fn trimmed(text: &[u8]) -> Vec<u8> {
    let end = text.iter().rposition(|byte| *byte != 0 && *byte != b' ').map_or(0, |last| last + 1);
    text.get(..end).unwrap_or_default().to_vec()
}

fn program_of(title: &[u8]) -> Vec<u8> {
    let arguments: Vec<String> =
        title.split(|byte| *byte == 0).map(|part| String::from_utf8_lossy(part).into_owned()).collect();
    command_line::redacted(&arguments).join("\0").into_bytes()
}
