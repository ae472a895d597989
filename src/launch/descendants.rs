//! Watches the command's descendants through /proc. It finds those that run as another user, and those that
//! were started without the environment variables that make a process traced.
//!
//! It only reads /proc and does nothing to the processes. It may miss a process that lives for less than the
//! time between two scans. If a process's parent ended before a scan saw the process, it is recognised by the
//! session's variable in its environment, where we may read that. The command itself is never missed, since
//! the last scan comes before the command is reaped.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::launch::private_folder::own_id;

/// The time between two scans during the command's first [`START`]. It is short, since containers change
/// their user then.
const FIRST_INTERVAL: Duration = Duration::from_millis(20);
/// The time between two scans after that.
const INTERVAL: Duration = Duration::from_millis(100);
const START: Duration = Duration::from_secs(2);
/// After a scan, the thread waits at least this many times the scan's processor time: scans take at most 1 %
/// of one processor. With 100 processes on the machine the first scan took 2 ms, since it reads files of each
/// process, and later scans 0.2 to 0.5 ms.
const COST_MOST: u32 = 100;
/// The stack of the scanning thread: small, since memory may be limited.
const STACK_BYTES: usize = 256 << 10;
/// How many processes of each kind are kept by name. Further ones of other users are only counted.
const NAMED_MAX: usize = 1000;
/// The name of a tracer that the command starts. It has a session of its own, so its processes are not ours.
/// Our hint for processes of another user proposes to start one.
const NESTED: &str = "gputrace";
/// How much of a process's environment is read. The largest that a kernel takes by default fits: a quarter of
/// the stack limit.
const ENVIRONMENT_BYTES_MAX: u64 = 2 << 20;

/// What the scans have found until now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// By process id.
    pub other_users: BTreeMap<u32, OtherUser>,
    /// How many more there are than those in `other_users`.
    pub more_other_users: u64,
    /// The names, by process id, of the processes that were started without our variables.
    pub without_variables: BTreeMap<u32, String>,
}

/// A process of another user: it cannot use the session, which is open to its own user only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherUser {
    pub uid: u32,
    pub name: String,
}

/// The running watch: its thread scans until [`Watch::finish`].
#[derive(Debug)]
pub struct Watch {
    scanner: Arc<Mutex<Scanner>>,
    end: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Watches the process `command` and its descendants. `variable` is `NAME=VALUE` as we put it into the
    /// command's environment. If the thread cannot be started, there is only the scan at the end.
    pub fn start(command: u32, variable: Vec<u8>) -> Watch {
        let scanner = Arc::new(Mutex::new(Scanner::new(command, variable)));
        let end = Arc::new((Mutex::new(false), Condvar::new()));
        let (theirs, theirs_end) = (Arc::clone(&scanner), Arc::clone(&end));
        let builder = Builder::new().name("gputrace-watch".into()).stack_size(STACK_BYTES);
        let thread = builder.spawn(move || scan_until(&theirs, &theirs_end)).ok();
        Watch { scanner, end, thread }
    }

    /// Ends the thread, and scans once more. The caller must not have reaped the command yet, or the scan
    /// would not see it.
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

/// Locks the mutex also after a panic under it: the next scan corrects whatever the panic left half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn scan_until(scanner: &Mutex<Scanner>, end: &(Mutex<bool>, Condvar)) {
    // Blocks all signals in this thread for good, so that the threads that pass signals on get them.
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

/// The processor time that this thread has used.
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
    /// Processes that earlier scans found not to belong to the command. Remembered, so that each is read
    /// once.
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
        // While processes come and go, the listing may lack one that still exists: check that one by its
        // path.
        self.known
            .retain(|pid, _| present.contains(pid) || fs::exists(format!("/proc/{pid}")).unwrap_or(true));
        self.strangers.retain(|pid| present.contains(pid));
        let new = present.iter().filter(|pid| !self.known.contains_key(pid) && !self.strangers.contains(pid));
        let mut new: BTreeMap<u32, u32> = new.filter_map(|pid| Some((*pid, parent(*pid)?))).collect();
        // A child may have a lower id than its parent, since ids start again from the lowest. So this repeats
        // until no more descendants are found.
        loop {
            // Processes of a nested tracer belong to its session, not to ours. The parent's name is read
            // after the child was found: a tracer has its name before it starts a process, so none is
            // mistaken.
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
        // An orphan's parent is gone, but its environment has the variable that we gave the command. Until
        // its exec, a nested tracer's child has that variable too, but also the tracer's name. So the name is
        // read first: the child may exec between the two reads.
        new.retain(|pid, _| {
            let is_orphan_of_ours =
                !self.variable.is_empty() && !is_nested(*pid) && environment_has(*pid, &self.variable);
            if is_orphan_of_ours {
                self.known.insert(*pid, String::new());
            }
            !is_orphan_of_ours
        });
        // If the listing lacks a process's parent, the parent may have started after the listing passed its
        // number. Such a process is not counted as a stranger yet: the next scan reads it again.
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

    /// Whether the program that the process runs was started without the variable. False if we cannot know: a
    /// process that ended has no environment any more, and that of another user's process may not be read.
    fn lacks_the_variable(&self, pid: u32) -> bool {
        let has_command_before = has_command(pid);
        match environment(pid) {
            // An environment is empty also in the midst of an exec, and as the process ends; but then the
            // command line is empty too. So it is believed only if there was a command line before and after.
            Some(environment) if environment.is_empty() => {
                has_command_before && has_command(pid) && !self.variable.is_empty()
            }
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

fn has_command(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|command| !command.is_empty())
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

/// The fields of /proc/PID/stat from the state on. They begin after the last parenthesis, since the name
/// before them may have any characters.
fn fields(stat: &str) -> impl Iterator<Item = &str> {
    stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_ascii_whitespace()
}

fn parent(pid: u32) -> Option<u32> {
    fields(&read(pid, "stat")?).nth(1)?.parse().ok()
}

/// Whether the process is a nested tracer, or a child of one that has not called exec yet.
fn is_nested(pid: u32) -> bool {
    read(pid, "comm").is_some_and(|name| name.trim_end() == NESTED)
}

/// Whether a process with this /proc/PID/status changed its user. A setuid program that our user starts does
/// not count: its real user is still ours, and only its effective and saved user are the file's owner. We do
/// not report such programs, since the loader ignores LD_PRELOAD in them and most are only small helpers.
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
            // Only seteuid was called, which the process may undo later.
            ("0\t65534\t0\t65534", 0, true),
            // A setuid program of root, first as its user starts it, then after it made itself root in all
            // ids (as sudo does).
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

    /// Between two scans, the command becomes a nested tracer and starts a child. This happened on a busy
    /// machine.
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
        // Wait until the tracer's child has called exec.
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
