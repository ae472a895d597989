//! Names that change while programs run: of threads, and the titles of processes.
//!
//! A program defines its threads' names and its command line once. Later changes are not reported, so the
//! recorder reads /proc twice: for a thread when it was defined, and for the whole process when it says
//! good-bye or the session ends. What it finds goes into the stream as definitions, so that live outputs and
//! those of a file are the same. A thread of its own reads /proc: a read can block for as long as the process
//! holds a lock, and the drain thread must never wait for a program.
//!
//! | file | noun |
//! |---|---|
//! | `mod` | the drain thread's side |
//! | `looker` | the thread that reads /proc |
//! | `subject` | what is known of one process |
//! | `system` | the contents of /proc |

mod looker;
mod subject;
mod system;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use gputrace_wire::definition::{self, kind};
use rustc_hash::FxHashMap;

use crate::batch::Definition;
use looker::Looker;
use system::COMMAND_MAX;

pub use system::command_line;

/// Capacities of the queues to and from the looker. Requests beyond them are dropped.
const ASKED_MAX: usize = 1 << 16;
const SEEN_MAX: usize = 1 << 10;
/// The most bytes of a thread's name that are kept: the kernel keeps 15.
const NAME_MAX: usize = 64;
/// How long the drain thread waits for the last look at a process that says good-bye, and for how long it
/// does not wait again after a timeout.
const LAST_LOOK: Duration = Duration::from_millis(20);
const NO_PATIENCE: Duration = Duration::from_secs(2);

/// A request to the looker.
#[derive(Debug)]
enum Ask {
    /// A process joined. `own_pid` is its id in its own namespace.
    Begin { process: u32, pid: u32, own_pid: u32 },
    /// The process defined its command line.
    Command { process: u32, command: Vec<u8>, redacted: bool },
    /// A thread was defined, before this time on CLOCK_BOOTTIME.
    Thread { process: u32, thread: u32, tid: u32, name: Vec<u8>, before_ns: u64 },
    /// The process says good-bye, or the session ends: a last look.
    Last { process: u32 },
    /// The process has ended. The looker forgets it.
    End { process: u32 },
}

/// Changed names of one process.
#[derive(Debug)]
struct Found {
    process: u32,
    /// When the process began: distinguishes it from another one with the same id.
    began: u64,
    records: Vec<Definition>,
    last: bool,
}

/// The drain thread's side.
pub(super) struct Names {
    asks: Sender<Ask>,
    found: Receiver<Found>,
    /// By process, when it began, once it was alive at a look.
    began: FxHashMap<u32, Option<u64>>,
    timed_out_at: Option<Instant>,
    /// Processes with dropped requests, and whether that was reported.
    unasked: FxHashMap<u32, bool>,
}

impl Ask {
    fn process(&self) -> u32 {
        match self {
            Ask::Begin { process, .. }
            | Ask::Command { process, .. }
            | Ask::Thread { process, .. }
            | Ask::Last { process }
            | Ask::End { process } => *process,
        }
    }
}

impl Names {
    /// Starts the looker; `None` if the thread cannot be started: names stay as they were defined.
    pub fn start() -> Option<Names> {
        Names::start_in(PathBuf::from("/proc"))
    }

    fn start_in(folder: PathBuf) -> Option<Names> {
        let (asks, asked) = bounded(ASKED_MAX);
        let (finds, found) = bounded(SEEN_MAX);
        let builder = std::thread::Builder::new().name("gputrace-names".to_owned());
        // The thread is not joined: it may be blocked in /proc. It ends once `asks` is dropped.
        builder.spawn(move || Looker::new(folder).run(&asked, &finds)).ok()?;
        Some(Names::with(asks, found))
    }

    fn with(asks: Sender<Ask>, found: Receiver<Found>) -> Names {
        Names { asks, found, began: FxHashMap::default(), timed_out_at: None, unasked: FxHashMap::default() }
    }

    /// A process joined. `pid` is its id in this namespace, or 0.
    pub fn begin(&mut self, process: u32, pid: u32, own_pid: u32) {
        if pid != 0 {
            self.began.insert(process, None);
            self.ask(Ask::Begin { process, pid, own_pid });
        }
    }

    /// Definitions of a process were read.
    pub fn defined(&mut self, process: u32, records: &[Definition]) {
        if !self.began.contains_key(&process) {
            return;
        }
        let text =
            |record: &Definition, most: usize| record.text.get(..most).unwrap_or(&record.text).to_vec();
        for record in records {
            let small = |index| u32::try_from(record.field(index)).unwrap_or(0);
            match record.kind {
                kind::PROCESS => {
                    let redacted = record.field(definition::process::REDACTED) == 1;
                    self.ask(Ask::Command { process, command: text(record, COMMAND_MAX), redacted });
                }
                kind::THREAD if record.field(definition::thread::ROLE) == definition::role::PROGRAM => {
                    let (tid, name) = (small(definition::thread::TID), text(record, NAME_MAX));
                    let before_ns = system::boot_time_ns();
                    self.ask(Ask::Thread { process, thread: record.id, tid, name, before_ns });
                }
                _ => {}
            }
        }
    }

    /// Takes what was found since the last call, for processes that are alive, and for those that are known
    /// to be the same as when they were alive.
    pub fn take(&mut self, is_alive: impl Fn(u32) -> bool) -> Vec<(u32, Vec<Definition>)> {
        let mut taken = Vec::new();
        for (process, was_said) in &mut self.unasked {
            if !std::mem::replace(was_said, true) {
                taken.push((*process, vec![unasked()]));
            }
        }
        while let Ok(found) = self.found.try_recv() {
            taken.extend(self.believed(found, &is_alive));
        }
        taken
    }

    /// Looks at a process that says good-bye, and waits for the result for at most [`LAST_LOOK`].
    pub fn last(&mut self, process: u32, is_alive: impl Fn(u32) -> bool) -> Vec<(u32, Vec<Definition>)> {
        if !self.began.contains_key(&process) || !self.ask(Ask::Last { process }) {
            return Vec::new();
        }
        let mut taken = Vec::new();
        if self.timed_out_at.is_some_and(|since| since.elapsed() < NO_PATIENCE) {
            return taken;
        }
        let deadline = Instant::now() + LAST_LOOK;
        loop {
            match self.found.recv_deadline(deadline) {
                Ok(found) => {
                    let is_it = found.last && found.process == process;
                    taken.extend(self.believed(found, &is_alive));
                    if is_it {
                        self.timed_out_at = None;
                        return taken;
                    }
                }
                Err(_) => {
                    self.timed_out_at = Some(Instant::now());
                    return taken;
                }
            }
        }
    }

    /// The process has ended.
    pub fn end(&mut self, process: u32) {
        self.unasked.remove(&process);
        if self.began.remove(&process).is_none() {
            return;
        }
        self.ask(Ask::End { process });
    }

    /// Another process may have the id by the time of the look. What was found is accepted if the process is
    /// still alive, or began when the process began that was alive earlier.
    fn believed(&mut self, found: Found, is_alive: impl Fn(u32) -> bool) -> Option<(u32, Vec<Definition>)> {
        let began = self.began.get_mut(&found.process)?;
        if began.is_none() && is_alive(found.process) {
            *began = Some(found.began);
        }
        (*began == Some(found.began)).then_some((found.process, found.records))
    }

    /// Sends a request. False if the looker is stuck or has ended.
    fn ask(&mut self, ask: Ask) -> bool {
        let (process, loses_names) = (ask.process(), !matches!(ask, Ask::Last { .. } | Ask::End { .. }));
        let is_heard = self.asks.try_send(ask).is_ok();
        if !is_heard && loses_names {
            self.unasked.entry(process).or_insert(false);
        }
        is_heard
    }
}

/// A notice that names of a process may be out of date.
fn unasked() -> Definition {
    let text = b"later names of threads may be missing: there are too many threads to look at them all";
    Definition { kind: kind::NOTICE, id: 0, fields: vec![1, 0], text: text.to_vec() }
}

/// The definition of a changed name.
fn seen(thread: u32, at_ns: u64, text: Vec<u8>) -> Definition {
    Definition { kind: kind::SEEN, id: 0, fields: vec![thread.into(), at_ns], text }
}

#[cfg(test)]
mod tests;
