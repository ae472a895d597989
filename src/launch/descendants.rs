//! Watches the command's descendants by /proc: which run as another user, and which were started without the
//! variables that would have them traced.
//!
//! Reads /proc and nothing else: no process is stopped, asked or adopted. A process that lives for less than
//! the time between two scans may be missed. One whose parent ended before a scan saw it is known by the
//! session's variable in its environment, where that may be read. The command itself is never missed: it is
//! looked at before it is reaped.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::launch::private_folder::own_id;

/// Between two scans in the command's first [`START`], when containers change their user, and later.
const FIRST_INTERVAL: Duration = Duration::from_millis(20);
const INTERVAL: Duration = Duration::from_millis(100);
const START: Duration = Duration::from_secs(2);
/// Scans take at most this part of one processor. With 100 processes on the machine the first one took 2 ms,
/// since it reads about each of them, and the later ones 0.2 to 0.5 ms.
const COST_MOST: u32 = 100;
/// For the thread, where memory is limited.
const STACK_BYTES: usize = 256 << 10;
/// Processes that are named of each kind; more are counted.
const NAMED_MAX: usize = 1000;
/// A tracer that the command starts, behind a change of user as our hint says, has a session of its own.
const NESTED: &str = "gputrace";
/// Of a process's environment: enough for the largest that a kernel takes by default (a quarter of the
/// stack).
const ENVIRONMENT_BYTES_MAX: u64 = 2 << 20;

/// What was seen until now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// By process id.
    pub other_users: BTreeMap<u32, OtherUser>,
    /// Beyond those that are named.
    pub more_other_users: u64,
    /// Names, by process id, of those that were started without our variables.
    pub without_variables: BTreeMap<u32, String>,
}

/// A process that the session is closed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherUser {
    pub uid: u32,
    pub name: String,
}

/// The thread that scans, until [`Watch::finish`].
#[derive(Debug)]
pub struct Watch {
    scanner: Arc<Mutex<Scanner>>,
    end: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Watches this process and those that come of it. `variable`, with its value, is what the command was
    /// given. Where there can be no thread, there is one scan, at the end.
    pub fn start(command: u32, variable: Vec<u8>) -> Watch {
        let scanner = Arc::new(Mutex::new(Scanner::new(command, variable)));
        let end = Arc::new((Mutex::new(false), Condvar::new()));
        let (theirs, theirs_end) = (Arc::clone(&scanner), Arc::clone(&end));
        let builder = Builder::new().name("gputrace-watch".into()).stack_size(STACK_BYTES);
        let thread = builder.spawn(move || scan_until(&theirs, &theirs_end)).ok();
        Watch { scanner, end, thread }
    }

    /// Scans once more and ends. The command must not be reaped yet.
    pub fn finish(mut self) -> Seen {
        *lock(&self.end.0) = true;
        self.end.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let mut scanner = lock(&self.scanner);
        scanner.scan();
        std::mem::take(&mut scanner.seen)
    }
}

/// Nothing is left half changed that the next scan would not find again.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn scan_until(scanner: &Mutex<Scanner>, end: &(Mutex<bool>, Condvar)) {
    // Signals are for the threads that pass them on.
    std::mem::forget(crate::launch::signals::hold());
    let start = Instant::now();
    lock(scanner).scan();
    loop {
        let begin = processor_time();
        lock(scanner).scan();
        let interval = if start.elapsed() < START { FIRST_INTERVAL } else { INTERVAL };
        let wait = interval.max(processor_time().saturating_sub(begin) * COST_MOST);
        let (has_ended, _) = end
            .1
            .wait_timeout_while(lock(&end.0), wait, |has_ended| !*has_ended)
            .unwrap_or_else(PoisonError::into_inner);
        if *has_ended {
            return;
        }
    }
}

/// What this thread has used of a processor.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a live timespec, which clock_gettime fills.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[derive(Debug)]
struct Scanner {
    own: u32,
    variable: Vec<u8>,
    /// The command and its descendants that run, with the name that each had at the last scan.
    known: BTreeMap<u32, String>,
    /// Other processes that were there at the last scan: read once each.
    strangers: BTreeSet<u32>,
    seen: Seen,
}

impl Scanner {
    fn new(command: u32, variable: Vec<u8>) -> Scanner {
        Scanner {
            own: own_id(),
            variable,
            known: BTreeMap::from([(command, String::new())]),
            strangers: BTreeSet::new(),
            seen: Seen::default(),
        }
    }

    fn scan(&mut self) {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let present: BTreeSet<u32> =
            entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        // A listing that is made while processes come and go may lack one that is there.
        self.known
            .retain(|pid, _| present.contains(pid) || fs::exists(format!("/proc/{pid}")).unwrap_or(true));
        self.strangers.retain(|pid| present.contains(pid));
        let new = present.iter().filter(|pid| !self.known.contains_key(pid) && !self.strangers.contains(pid));
        let mut new: BTreeMap<u32, u32> = new.filter_map(|pid| Some((*pid, parent(*pid)?))).collect();
        // A parent may come after its child: process ids start again from the lowest.
        loop {
            // A nested tracer's processes are its own. The parent's name is read after the child was found: a
            // tracer has its name before it starts a process.
            let found: Vec<u32> = new
                .iter()
                .filter(|(_, parent)| self.known.contains_key(parent) && !is_nested(**parent))
                .map(|(pid, _)| *pid)
                .collect();
            for pid in &found {
                new.remove(pid);
                self.known.insert(*pid, String::new());
            }
            if found.is_empty() {
                break;
            }
        }
        // An orphan's parent is gone, and its environment has what the command was given. A nested
        // tracer's child has it too until its exec, and the tracer's name: the name is read first.
        new.retain(|pid, _| {
            let is_orphan_of_ours =
                !self.variable.is_empty() && !is_nested(*pid) && environment_has(*pid, &self.variable);
            if is_orphan_of_ours {
                self.known.insert(*pid, String::new());
            }
            !is_orphan_of_ours
        });
        // One whose parent began after that parent's number was passed is read again at the next scan.
        self.strangers.extend(new.iter().filter(|(_, parent)| present.contains(parent)).map(|(pid, _)| pid));
        let pids: Vec<u32> = self.known.keys().copied().collect();
        for pid in pids {
            self.look_at(pid);
        }
    }

    fn look_at(&mut self, pid: u32) {
        let Some(name) = read(pid, "comm").map(|name| name.trim_end().to_owned()) else { return };
        let Ok(about) = fs::metadata(format!("/proc/{pid}")) else { return };
        if name == NESTED {
            self.known.remove(&pid);
            self.strangers.insert(pid);
            self.seen.other_users.remove(&pid);
            return;
        }
        if about.uid() != self.own {
            let is_other = read(pid, "status").is_some_and(|status| is_other_user(&status, self.own));
            if is_other
                && (self.seen.other_users.contains_key(&pid) || self.seen.other_users.len() < NAMED_MAX)
            {
                self.seen.other_users.insert(pid, OtherUser { uid: about.uid(), name });
            } else if is_other && self.known.get(&pid) != Some(&name) {
                self.seen.more_other_users += 1;
                self.known.insert(pid, name);
            }
            return;
        }
        if self.known.get(&pid) != Some(&name) {
            if self.lacks_the_variable(pid) && self.seen.without_variables.len() < NAMED_MAX {
                self.seen.without_variables.insert(pid, name.clone());
            }
            self.known.insert(pid, name);
        }
    }

    /// Whether the program that the process runs was started without the variable. A process that ended has
    /// no environment any more, and one of another user's cannot be asked.
    fn lacks_the_variable(&self, pid: u32) -> bool {
        match environment(pid) {
            Some(environment) if environment.is_empty() => !is_zombie(pid) && !self.variable.is_empty(),
            Some(environment) => !has(&environment, &self.variable),
            None => false,
        }
    }
}

/// The environment that the process's program was started with; `None` where it may not be read.
fn environment(pid: u32) -> Option<Vec<u8>> {
    let mut environment = Vec::new();
    let file = fs::File::open(format!("/proc/{pid}/environ")).ok()?;
    file.take(ENVIRONMENT_BYTES_MAX).read_to_end(&mut environment).ok()?;
    Some(environment)
}

fn environment_has(pid: u32, variable: &[u8]) -> bool {
    environment(pid).is_some_and(|environment| has(&environment, variable))
}

fn has(environment: &[u8], variable: &[u8]) -> bool {
    environment.split(|byte| *byte == 0).any(|entry| entry == variable)
}

fn read(pid: u32, name: &str) -> Option<String> {
    fs::read(format!("/proc/{pid}/{name}")).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// The fields of /proc/PID/stat from the state on. What is before them is the name, in which anything may be.
fn fields(stat: &str) -> impl Iterator<Item = &str> {
    stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_ascii_whitespace()
}

fn parent(pid: u32) -> Option<u32> {
    fields(&read(pid, "stat")?).nth(1)?.parse().ok()
}

/// Whether the process is a tracer of its own, or its child that has not made its exec yet.
fn is_nested(pid: u32) -> bool {
    read(pid, "comm").is_some_and(|name| name.trim_end() == NESTED)
}

fn is_zombie(pid: u32) -> bool {
    read(pid, "stat").is_none_or(|stat| fields(&stat).next() == Some("Z"))
}

/// Whether a process with this /proc/PID/status changed its user. A setuid program of our user's has not:
/// only its file's owner was added to what it is. The loader ignores LD_PRELOAD there, and most such programs
/// only help.
fn is_other_user(status: &str, own: u32) -> bool {
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let ids: Vec<u32> = ids.unwrap_or("").split_whitespace().filter_map(|id| id.parse().ok()).collect();
    let [real, effective, saved, ..] = ids.as_slice() else { return false };
    *effective != own && !(*real == own && saved == effective)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::private_folder::SessionFolder;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::fs::symlink;
    use std::process::{Command, Stdio};

    #[test]
    fn process_that_changed_its_user_is_distinguished_from_a_setuid_program() {
        let status = |ids: &str| format!("Name:\tx\nUid:\t{ids}\nGid:\t0\t0\t0\t0\n");
        for (ids, own, is_other) in [
            ("0\t0\t0\t0", 0, false),
            ("65534\t65534\t65534\t65534", 0, true),
            // seteuid alone, to be taken back later.
            ("0\t65534\t0\t65534", 0, true),
            // A setuid program of root's, as its user starts it, and once it is root throughout (sudo).
            ("1000\t0\t0\t0", 1000, false),
            ("0\t0\t0\t0", 1000, true),
        ] {
            assert_eq!(is_other_user(&status(ids), own), is_other, "{ids} of {own}");
        }
        assert!(!is_other_user("", 0));
    }

    #[test]
    fn names_with_anything_in_them_do_not_shift_the_fields() {
        let parts: Vec<_> = fields("12 (a) b) S 34 12").collect();
        assert_eq!(parts, ["S", "34", "12"]);
    }

    /// The command becomes a tracer of its own, and has a child, between two scans: on a busy machine, that
    /// took less than the time between them.
    #[test]
    fn children_of_a_tracer_are_its_own_even_when_both_are_new() {
        let folder = SessionFolder::create().unwrap();
        let tracer = folder.path().join(NESTED);
        symlink("/bin/sh", &tracer).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo; read line; exec \"$0\" -c 'sleep 60 & echo; read line; kill $!'"]);
        let mut child = command.arg(&tracer).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        lines.next().unwrap().unwrap();
        let mut scanner = Scanner::new(child.id(), b"MARK=tracer".to_vec());
        scanner.scan();
        assert_eq!(scanner.known, BTreeMap::from([(child.id(), "sh".to_owned())]));
        writeln!(stdin).unwrap();
        lines.next().unwrap().unwrap();
        // The child of the tracer has made its exec.
        let deadline = Instant::now() + Duration::from_secs(60);
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        let is_sleep = || {
            let children = fs::read_to_string(&children).unwrap();
            children.trim().parse().is_ok_and(|pid| read(pid, "comm").as_deref() == Some("sleep\n"))
        };
        while !is_sleep() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(is_sleep());
        scanner.seen = Seen::default();
        scanner.scan();
        writeln!(stdin).unwrap();
        child.wait().unwrap();
        assert_eq!(scanner.known, BTreeMap::new());
        assert_eq!(scanner.seen, Seen::default());
    }

    #[test]
    fn descendants_are_found_and_others_are_not() {
        let mut child = Command::new("sh")
            .args(["-c", "env -i sleep 60 & read line; kill $!"])
            .env("MARK", "1")
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut scanner = Scanner::new(child.id(), b"MARK=1".to_vec());
        let deadline = Instant::now() + Duration::from_secs(60);
        while scanner.seen.without_variables.is_empty() && Instant::now() < deadline {
            scanner.scan();
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(scanner.known.len(), 2, "{:?}", scanner.known);
        assert!(scanner.strangers.contains(&std::process::id()));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(scanner.seen.without_variables.into_values().collect::<Vec<_>>(), ["sleep"]);
        assert_eq!(scanner.seen.other_users, BTreeMap::new());
    }
}
