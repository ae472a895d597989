//! Names of the processes and threads that one output shows, numbered where they share a name.

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::label::processes::{ProcessNames, ThreadName};

/// Names of the processes and threads that appear in one output.
#[derive(Debug)]
pub struct ThreadNames<'l, 'a> {
    processes: &'l ProcessNames<'a>,
    /// By command, how many processes have it.
    process_uses: FxHashMap<&'l str, u32>,
    /// By process and name, the ids of the threads that have it, in order of first appearance.
    thread_uses: FxHashMap<(u32, String), Vec<u32>>,
    /// By process, the ids of the threads without a name, in order of first appearance.
    unnamed: FxHashMap<u32, Vec<u32>>,
}

impl<'l, 'a> ThreadNames<'l, 'a> {
    /// `shown` has the (process, thread definition) pairs that the output shows.
    pub fn new(
        processes: &'l ProcessNames<'a>,
        shown: impl Iterator<Item = (u32, u32)>,
    ) -> ThreadNames<'l, 'a> {
        let mut names = ThreadNames {
            processes,
            process_uses: FxHashMap::default(),
            thread_uses: FxHashMap::default(),
            unnamed: FxHashMap::default(),
        };
        // Definition ids are given in order of first appearance.
        let shown: BTreeSet<(u32, u32)> = shown.collect();
        let (mut last, mut seen) = (None, FxHashSet::default());
        for (process, thread) in shown {
            if last.replace(process) != Some(process) {
                *names.process_uses.entry(processes.command(process)).or_default() += 1;
            }
            let Some((tid, name)) = processes.thread(process, thread) else { continue };
            let own = match name {
                ThreadName::Main => continue,
                ThreadName::Own(name) => Some(name),
                ThreadName::Unnamed => None,
            };
            if !seen.insert((process, own.clone(), tid)) {
                continue;
            }
            match own {
                Some(name) => names.thread_uses.entry((process, name)).or_default().push(tid),
                None => names.unnamed.entry(process).or_default().push(tid),
            }
        }
        names
    }

    pub fn process(&self, number: u32) -> String {
        let known = self.processes.process(number);
        let command = self.processes.command(number);
        let shared = self.process_uses.get(command).is_some_and(|uses| *uses > 1);
        match known.filter(|_| shared) {
            // Prefer the rank: it is the same in the next run, a process id is not.
            Some(process) => match process.definitions.process().and_then(|info| info.rank) {
                Some(_) => format!("{command} [{}]", self.processes.rank(number)),
                None => format!("{command} [{}]", process.begin.pid),
            },
            None => command.to_owned(),
        }
    }

    /// Uses numbers instead of the system's thread ids, so that two runs can be compared.
    pub fn thread(&self, process: u32, thread: u32) -> String {
        let position = |tids: Option<&Vec<u32>>, tid| {
            tids.and_then(|tids| tids.iter().position(|known| *known == tid)).unwrap_or(0)
        };
        match self.processes.thread(process, thread) {
            None => "(no thread known)".to_owned(),
            Some((_, ThreadName::Main)) => "main".to_owned(),
            // The main thread is number 1, even if the output does not show it.
            Some((tid, ThreadName::Unnamed)) => {
                format!("thread {}", position(self.unnamed.get(&process), tid) + 2)
            }
            Some((tid, ThreadName::Own(name))) => match self.thread_uses.get(&(process, name.clone())) {
                tids @ Some(many) if many.len() > 1 => format!("{name} [{}]", position(tids, tid) + 1),
                _ => name,
            },
        }
    }

    /// Whether the program gave the thread a name. False for the main thread.
    pub fn has_own_name(&self, process: u32, thread: u32) -> bool {
        matches!(self.processes.thread(process, thread), Some((_, ThreadName::Own(_))))
    }
}
