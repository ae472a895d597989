//! Names of processes and of their threads, before names that several share get numbers.

use rustc_hash::FxHashMap;

use crate::model::definitions::Definitions;
use crate::model::{Process, Totals};
use crate::names::{process_name, short_command};

/// The processes of an analysis by their numbers.
#[derive(Debug)]
pub struct ProcessNames<'a>(FxHashMap<u32, Named<'a>>);

#[derive(Debug)]
struct Named<'a> {
    process: &'a Process,
    command: String,
    /// The process id that the process itself sees.
    own_pid: u32,
    /// Names that the main thread has had. A thread that nobody named inherits one of them.
    inherited: Vec<String>,
}

/// A thread's name before numbers are added.
pub(super) enum ThreadName {
    Main,
    Own(String),
    Unnamed,
}

impl<'a> ProcessNames<'a> {
    pub fn new(totals: &'a Totals) -> ProcessNames<'a> {
        let named = |process: &'a Process| {
            let info = process.definitions.process().unwrap_or_default();
            let command = match process_name(&info) {
                empty if empty.is_empty() => format!("process {}", process.begin.pid),
                command => command,
            };
            // In a PID namespace of its own, a process sees another id than the session's socket reported.
            let own_pid = if info.pid == 0 { process.begin.pid } else { info.pid };
            let threads = process.definitions.threads().filter(|(_, thread)| thread.tid == own_pid);
            let names = threads
                .flat_map(|(id, thread)| [thread.name.to_owned(), process.definitions.text(id).to_owned()]);
            // Threads inherit the program's name, also where the process shows a title instead.
            let program = short_command(&info.command).split(' ').next().unwrap_or_default().to_owned();
            let inherited = names.chain([program]).collect();
            (process.number, Named { process, command, own_pid, inherited })
        };
        ProcessNames(totals.processes.iter().map(named).collect())
    }

    pub fn process(&self, number: u32) -> Option<&'a Process> {
        self.0.get(&number).map(|known| known.process)
    }

    pub fn definitions(&self, number: u32) -> Option<&'a Definitions> {
        self.process(number).map(|process| &process.definitions)
    }

    /// The process's title or command. Other processes may have the same. Evicted processes are unknown here.
    pub fn command(&self, number: u32) -> &str {
        self.0.get(&number).map_or("(other processes)", |known| &known.command)
    }

    pub fn rank(&self, number: u32) -> String {
        match self.definitions(number).and_then(Definitions::process).and_then(|info| info.rank) {
            Some(rank) => format!("rank {rank}"),
            None => "(no rank)".to_owned(),
        }
    }

    /// The thread's id and name. A thread that nobody named has its program's name, which is no name of its
    /// own.
    pub(super) fn thread(&self, process: u32, thread: u32) -> Option<(u32, ThreadName)> {
        let known = self.0.get(&process)?;
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
}
