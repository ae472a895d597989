//! What processes and threads are called, told apart where they share a name.

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::flame::frames::{Frame, FrameKind};
use crate::model::definitions::Definitions;
use crate::model::{Process, Totals};
use crate::names::{process_name, short_command};

/// Labels of the processes and threads that have a part in a flamegraph.
#[derive(Debug)]
pub struct Labels<'a> {
    processes: FxHashMap<u32, Labelled<'a>>,
    /// How many processes share a label.
    process_uses: FxHashMap<String, u32>,
    /// By process and name, the threads that share it, in order of first appearance.
    thread_uses: FxHashMap<(u32, String), Vec<u32>>,
    /// By process, the threads that nobody named, likewise.
    unnamed: FxHashMap<u32, Vec<u32>>,
}

/// What a thread is called before it is told apart from others.
enum ThreadName {
    Main,
    Own(String),
    Unnamed,
}

#[derive(Debug)]
struct Labelled<'a> {
    process: &'a Process,
    command: String,
    /// As it calls itself.
    own_pid: u32,
    /// What its main thread is or was called, which threads are too that nobody named.
    inherited: Vec<String>,
}

impl<'a> Labels<'a> {
    /// For the (process, thread definition) pairs that will be asked for.
    pub fn new(totals: &'a Totals, users: impl Iterator<Item = (u32, u32)>) -> Labels<'a> {
        let labelled = |process: &'a Process| {
            let info = process.definitions.process().unwrap_or_default();
            let command = match process_name(&info) {
                empty if empty.is_empty() => format!("process {}", process.begin.pid),
                command => command,
            };
            // In a namespace of its own a process has another number than the kernel says.
            let own_pid = if info.pid == 0 { process.begin.pid } else { info.pid };
            let threads = process.definitions.threads().filter(|(_, thread)| thread.tid == own_pid);
            let names = threads
                .flat_map(|(id, thread)| [thread.name.to_owned(), process.definitions.text(id).to_owned()]);
            // By its title it has another name than its threads got from it.
            let program = short_command(&info.command).split(' ').next().unwrap_or_default().to_owned();
            let inherited = names.chain([program]).collect();
            (process.number, Labelled { process, command, own_pid, inherited })
        };
        let mut labels = Labels {
            processes: totals.named().map(labelled).collect(),
            process_uses: FxHashMap::default(),
            thread_uses: FxHashMap::default(),
            unnamed: FxHashMap::default(),
        };
        // Threads are defined as they appear, so their ids are in that order.
        let users: BTreeSet<(u32, u32)> = users.collect();
        let (mut last, mut seen) = (None, FxHashSet::default());
        for (process, thread) in users {
            if last.replace(process) != Some(process) {
                *labels.process_uses.entry(labels.command(process).to_owned()).or_default() += 1;
            }
            let Some((tid, name)) = labels.thread_name(process, thread) else { continue };
            let own = match &name {
                ThreadName::Main => continue,
                ThreadName::Own(name) => Some(name.clone()),
                ThreadName::Unnamed => None,
            };
            if !seen.insert((process, own.clone(), tid)) {
                continue;
            }
            match own {
                Some(name) => labels.thread_uses.entry((process, name)).or_default().push(tid),
                None => labels.unnamed.entry(process).or_default().push(tid),
            }
        }
        labels
    }

    pub fn definitions(&self, process: u32) -> Option<&'a Definitions> {
        self.processes.get(&process).map(|known| &known.process.definitions)
    }

    pub fn process(&self, process: u32) -> Frame {
        let known = self.processes.get(&process);
        if let Some(several) = known.and_then(|known| known.process.ended_name()) {
            return Frame::new(FrameKind::Process, &several.to_string());
        }
        let label = self.command(process);
        let shared = self.process_uses.get(label).is_some_and(|uses| *uses > 1);
        match known {
            Some(known) if shared => {
                // Ranks are the same in the next run, process ids are not.
                let which = match known.process.definitions.process().and_then(|info| info.rank) {
                    Some(rank) => format!("rank {rank}"),
                    None => known.process.begin.pid.to_string(),
                };
                Frame::new(FrameKind::Process, &format!("{label} [{which}]"))
            }
            _ => Frame::new(FrameKind::Process, label),
        }
    }

    pub fn rank(&self, process: u32) -> Frame {
        let known = self.definitions(process).and_then(Definitions::process);
        let text = match known.and_then(|info| info.rank) {
            Some(rank) => format!("rank {rank}"),
            None => "(no rank)".to_owned(),
        };
        Frame::new(FrameKind::Rank, &text)
    }

    /// Threads are numbered and not called by the system's ids, so that runs can be compared.
    pub fn thread(&self, process: u32, thread: u32) -> Frame {
        let place = |tids: Option<&Vec<u32>>, tid| {
            tids.and_then(|tids| tids.iter().position(|known| *known == tid)).unwrap_or(0)
        };
        let text = match self.thread_name(process, thread) {
            None => "(no thread known)".to_owned(),
            Some((_, ThreadName::Main)) => "main".to_owned(),
            // The main thread is the first, whether it has a part in this or not.
            Some((tid, ThreadName::Unnamed)) => {
                format!("thread {}", place(self.unnamed.get(&process), tid) + 2)
            }
            Some((tid, ThreadName::Own(name))) => match self.thread_uses.get(&(process, name.clone())) {
                tids @ Some(many) if many.len() > 1 => format!("{name} [{}]", place(tids, tid) + 1),
                _ => name,
            },
        };
        Frame::new(FrameKind::Thread, &text)
    }

    /// Whether somebody gave the thread a name, the main one aside.
    pub fn has_own_name(&self, process: u32, thread: u32) -> bool {
        matches!(self.thread_name(process, thread), Some((_, ThreadName::Own(_))))
    }

    /// The thread's id and name. Threads that nobody named bear their program's name.
    fn thread_name(&self, process: u32, thread: u32) -> Option<(u32, ThreadName)> {
        let known = self.processes.get(&process)?;
        let thread = known.process.definitions.thread(thread)?;
        // The kernel keeps the first 15 bytes of a program's name.
        let is_of =
            |name: &String| name == thread.name || thread.name.len() == 15 && name.starts_with(thread.name);
        let inherited = thread.name.is_empty() || known.inherited.iter().any(is_of);
        let name = match thread.tid {
            tid if tid == known.own_pid => ThreadName::Main,
            _ if inherited => ThreadName::Unnamed,
            _ => ThreadName::Own(thread.name.to_owned()),
        };
        Some((thread.tid, name))
    }

    fn command(&self, process: u32) -> &str {
        self.processes.get(&process).map_or("(unknown process)", |known| &known.command)
    }
}
