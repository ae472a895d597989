//! What is known of one process's names.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::seen;
use super::system::System;
use crate::batch::Definition;
use crate::command_line;

/// Threads of a process that are looked at; the oldest go, which are the likeliest to have ended.
pub const THREADS_MAX: usize = 1 << 14;
/// What a thread may be younger than the moment before which it was defined: a tick, and what the clocks
/// of two processors are apart.
const SLACK_NS: u64 = 20_000_000;
/// A process whose names change again and again has them told a share of its life apart, so that what
/// they take in the stream does not grow with its age.
const PACE: u64 = 64;

#[derive(Debug)]
pub struct Subject {
    pub process: u32,
    pub pid: u32,
    own_pid: u32,
    /// When it began, once it was looked at.
    began: Option<u64>,
    /// Whether it is in a namespace of its own; `None` before the first look.
    is_inside: Option<bool>,
    /// How threads are called here, by how they call themselves, where that differs.
    outer: FxHashMap<u32, u32>,
    /// By how it calls itself.
    threads: FxHashMap<u32, Thread>,
    /// Whose turn it is, the first next.
    turns: VecDeque<u32>,
    redacted: bool,
    /// The command line that was told last, once it said one.
    title: Option<Vec<u8>>,
    since_ns: u64,
    told_ns: u64,
}

#[derive(Debug)]
struct Thread {
    definition: u32,
    before_ns: u64,
    began: Option<u64>,
    /// What was told last.
    name: Vec<u8>,
}

impl Subject {
    pub fn new(process: u32, pid: u32, own_pid: u32, now_ns: u64) -> Subject {
        Subject {
            process,
            pid,
            own_pid,
            began: None,
            is_inside: None,
            outer: FxHashMap::default(),
            threads: FxHashMap::default(),
            turns: VecDeque::new(),
            redacted: false,
            title: None,
            since_ns: now_ns,
            told_ns: 0,
        }
    }

    /// What it said its command line is, or nothing but the program of it.
    pub fn said(&mut self, command: &[u8], redacted: bool) {
        self.redacted = redacted;
        self.title = Some(trimmed(command));
    }

    pub fn thread(&mut self, tid: u32, definition: u32, name: Vec<u8>, before_ns: u64) {
        // Another thread of that number has ended, and what it was called here is not this one.
        self.outer.remove(&tid);
        if self.threads.insert(tid, Thread { definition, before_ns, began: None, name }).is_none() {
            self.turns.push_back(tid);
        }
        while self.threads.len() > THREADS_MAX
            && let Some(oldest) = self.turns.pop_front()
        {
            self.threads.remove(&oldest);
        }
    }

    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// How many threads it has in mind.
    #[cfg(test)]
    pub fn size(&self) -> usize {
        self.threads.len().max(self.turns.len()).max(self.outer.len())
    }

    /// Whether something new may be told now.
    fn may_tell(&self, now_ns: u64) -> bool {
        let age_ns = now_ns.saturating_sub(self.since_ns);
        self.told_ns == 0 || now_ns.saturating_sub(self.told_ns) >= age_ns / PACE
    }

    /// Looks at the title and at some threads: as many as `budget` files allow. Returns when the process
    /// began and what is new, or `None` if the process is not there, or is another one by now.
    pub fn look(
        &mut self,
        system: &System,
        budget: &mut usize,
        last: bool,
        now_ns: u64,
    ) -> Option<(u64, Vec<Definition>)> {
        let mut read = || *budget = budget.saturating_sub(1);
        read();
        let began = system.began(self.pid)?;
        if *self.began.get_or_insert(began) != began {
            return None;
        }
        if !last && !self.may_tell(now_ns) {
            return Some((began, Vec::new()));
        }
        let mut records = Vec::new();
        read();
        records.extend(self.look_at_title(system, now_ns));
        if *self.is_inside.get_or_insert_with(|| system.inner_pid(self.pid) == Some(self.own_pid)) {
            self.find_outer(system, budget);
        }
        for _ in 0..self.turns.len() {
            if *budget == 0 {
                break;
            }
            *budget -= 1;
            let Some(tid) = self.turns.pop_front() else { break };
            let outer = if self.is_inside == Some(true) { self.outer.get(&tid).copied() } else { Some(tid) };
            let Some(thread) = self.threads.get_mut(&tid) else { continue };
            match outer.and_then(|outer| system.thread(self.pid, outer)) {
                Some(found) if thread.is(found.began, system) => {
                    if found.name != thread.name {
                        thread.name.clone_from(&found.name);
                        records.push(seen(thread.definition, now_ns, found.name));
                    }
                    self.turns.push_back(tid);
                }
                // It ended, and its number may be another thread's.
                _ => {
                    self.threads.remove(&tid);
                    self.outer.remove(&tid);
                }
            }
        }
        // Between the first question and the last one the number may have become another process's.
        if system.began(self.pid) != Some(began) {
            return None;
        }
        if !records.is_empty() {
            self.told_ns = now_ns;
        }
        Some((began, records))
    }

    fn look_at_title(&mut self, system: &System, now_ns: u64) -> Option<Definition> {
        // What may be told of it is known only once it said so.
        let told = self.title.as_ref()?;
        let command = system.command(self.pid)?;
        let title = trimmed(&command_line::masked_bytes(&trimmed(&command)));
        let title = if self.redacted { program_of(&title) } else { title };
        if title.is_empty() || title == *told {
            return None;
        }
        self.title = Some(title.clone());
        Some(seen(0, now_ns, title))
    }

    /// Learns how threads are called here that are not known by now.
    fn find_outer(&mut self, system: &System, budget: &mut usize) {
        if self.turns.iter().all(|tid| self.outer.contains_key(tid)) {
            return;
        }
        let found = system.threads(self.pid);
        *budget = budget.saturating_sub(found.len());
        self.outer.clear();
        self.outer.extend(found);
    }
}

impl Thread {
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
