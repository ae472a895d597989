//! Frames: the readable names of processes, threads and calls.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::model::definitions::Definitions;
use crate::model::{Process, Totals};
use crate::names::fold_safe;

/// What a frame stands for; it decides the colour.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FrameKind {
    Process,
    Thread,
    /// A line of the program's own.
    Code,
    /// A line of a library.
    Library,
    /// What the program says it does.
    Range,
    /// A driver entry.
    Call,
    Kernel,
    Copy,
    Fill,
    Graph,
    Other,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Frame {
    /// One field of a folded line: no separator, no control character, not empty.
    pub text: Arc<str>,
    pub kind: FrameKind,
}

impl Frame {
    pub fn new(kind: FrameKind, text: &str) -> Frame {
        Frame { text: fold_safe(text).into(), kind }
    }
}

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
}

impl<'a> Labels<'a> {
    /// For the (process, thread definition) pairs that will be asked for.
    pub fn new(totals: &'a Totals, users: impl Iterator<Item = (u32, u32)>) -> Labels<'a> {
        let labelled = |process: &'a Process| {
            let command = process.definitions.process().map(|info| info.command).unwrap_or_default();
            let command = match short_command(&command) {
                empty if empty.is_empty() => format!("process {}", process.begin.pid),
                command => command,
            };
            (process.number, Labelled { process, command })
        };
        let mut labels = Labels {
            processes: totals.processes.iter().map(labelled).collect(),
            process_uses: FxHashMap::default(),
            thread_uses: FxHashMap::default(),
            unnamed: FxHashMap::default(),
        };
        // Threads are defined as they appear, so their ids are in that order.
        let users: BTreeSet<(u32, u32)> = users.collect();
        let mut last = None;
        for (process, thread) in users {
            if last.replace(process) != Some(process) {
                *labels.process_uses.entry(labels.command(process).to_owned()).or_default() += 1;
            }
            let Some((tid, name)) = labels.thread_name(process, thread) else { continue };
            let tids = match name {
                ThreadName::Main => continue,
                ThreadName::Own(name) => labels.thread_uses.entry((process, name)).or_default(),
                ThreadName::Unnamed => labels.unnamed.entry(process).or_default(),
            };
            if !tids.contains(&tid) {
                tids.push(tid);
            }
        }
        labels
    }

    pub fn definitions(&self, process: u32) -> Option<&'a Definitions> {
        self.processes.get(&process).map(|known| &known.process.definitions)
    }

    pub fn process(&self, process: u32) -> Frame {
        let label = self.command(process);
        let shared = self.process_uses.get(label).is_some_and(|uses| *uses > 1);
        match self.processes.get(&process) {
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

    /// The thread's id and name. Threads that nobody named bear their program's name.
    fn thread_name(&self, process: u32, thread: u32) -> Option<(u32, ThreadName)> {
        let known = self.processes.get(&process)?;
        let thread = known.process.definitions.thread(thread)?;
        let inherited = thread.name.is_empty() || known.command.split(' ').next() == Some(thread.name);
        let name = match thread.tid {
            tid if tid == known.process.begin.pid => ThreadName::Main,
            _ if inherited => ThreadName::Unnamed,
            _ => ThreadName::Own(thread.name.to_owned()),
        };
        Some((thread.tid, name))
    }

    fn command(&self, process: u32) -> &str {
        self.processes.get(&process).map_or("(unknown process)", |known| &known.command)
    }
}

/// `python train.py` of `/usr/bin/python -u /home/me/train.py --lr 3`: the program and, for an
/// interpreter, what it runs.
pub fn short_command(command: &[String]) -> String {
    const INTERPRETERS: [&str; 9] = ["python", "pypy", "bash", "dash", "sh", "perl", "ruby", "node", "julia"];
    let Some((program, arguments)) = command.split_first() else { return String::new() };
    let program = file_name(program);
    let plain = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    if !INTERPRETERS.contains(&plain) {
        return program.to_owned();
    }
    let mut rest = arguments.iter().map(String::as_str);
    while let Some(argument) = rest.next() {
        match argument {
            "-m" => return format!("{program} -m {}", rest.next().unwrap_or("")),
            "-c" | "-e" => return format!("{program} {argument}"),
            // Options that take the next argument along.
            "-W" | "-X" | "-Q" => _ = rest.next(),
            option if option.starts_with('-') => {}
            script => return format!("{program} {}", file_name(script)),
        }
    }
    program.to_owned()
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path)
}

/// The driver's entry without the marks of its ABI: `cuMemcpyHtoDAsync` of
/// `cuMemcpyHtoDAsync_v2_ptsz`.
pub fn entry_name(symbol: &str) -> &str {
    let symbol = symbol.strip_suffix("_ptsz").or(symbol.strip_suffix("_ptds")).unwrap_or(symbol);
    match symbol.rsplit_once("_v") {
        Some((entry, version)) if !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit()) => entry,
        _ => symbol,
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn commands_are_named_by_what_they_run() {
        for (command, short) in [
            ("/usr/bin/python3 -u /home/me/train.py --lr 3", "python3 train.py"),
            ("python -W ignore -m torch.distributed.run x.py", "python -m torch.distributed.run"),
            ("python3.12 -c pass", "python3.12 -c"),
            ("./build/saxpy 1000", "saxpy"),
            ("bash ./go.sh", "bash go.sh"),
            ("python", "python"),
            ("", ""),
        ] {
            let command: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
            assert_eq!(short_command(&command), short);
        }
    }

    #[test]
    fn entries_lose_the_marks_of_their_abi() {
        assert_eq!(entry_name("cuMemcpyHtoDAsync_v2_ptsz"), "cuMemcpyHtoDAsync");
        assert_eq!(entry_name("cuLaunchKernel_ptsz"), "cuLaunchKernel");
        assert_eq!(entry_name("cuLaunchKernel"), "cuLaunchKernel");
        assert_eq!(entry_name("odd_value"), "odd_value");
    }
}
