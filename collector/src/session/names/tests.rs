//! The looker, reading a folder in place of /proc.

use std::fs;
use std::path::{Path, PathBuf};

use super::subject::{Subject, THREADS_MAX};
use super::system::System;
use super::*;

const SECOND: u64 = 1_000_000_000;

/// A machine whose processes are files.
struct Machine {
    folder: PathBuf,
    system: System,
}

impl Machine {
    fn new(name: &str) -> Machine {
        let folder = std::env::temp_dir().join(format!("gputrace-names-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Machine { system: System::new(folder.clone()), folder }
    }

    fn write(&self, path: &str, text: &[u8]) {
        let path = self.folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Writes the `stat` of a process or thread that began `began` hundredths of a second after boot.
    fn stat(&self, at: &str, name: &str, began: u64) {
        let fields = format!("1 ({name}) S {} {began} 0 0\n", "0 ".repeat(18).trim_end());
        self.write(&format!("{at}/stat"), fields.as_bytes());
    }

    fn inside(&self, at: &str, numbers: &str) {
        self.write(&format!("{at}/status"), format!("Name:\tx\nNSpid:\t{numbers}\nThreads:\t1\n").as_bytes());
    }

    fn subject(&self, own_pid: u32) -> Subject {
        Subject::new(0, 40, own_pid, &self.system)
    }

    fn look(&self, subject: &mut Subject, now_ns: u64) -> Option<Vec<(u32, String)>> {
        let (_, records) = subject.look(&self.system, now_ns)?;
        Some(texts(&records))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn texts(records: &[Definition]) -> Vec<(u32, String)> {
    assert!(records.iter().all(|record| record.kind == kind::SEEN && record.id == 0));
    let text = |record: &Definition| String::from_utf8(record.text.clone()).unwrap();
    records.iter().map(|record| (record.field(0) as u32, text(record))).collect()
}

fn named(thread: u32, name: &str) -> (u32, String) {
    (thread, name.to_owned())
}

#[test]
fn changed_names_and_titles_are_recorded_once() {
    let machine = Machine::new("renamed");
    machine.stat("40", "main (x) y", 100);
    machine.stat("40/task/41", "pool", 200);
    machine.write("40/cmdline", b"./prog\0a\0");
    let mut subject = machine.subject(40);
    subject.defined_command(b"./prog\0a\0", false);
    subject.thread(41, 7, b"pool".to_vec(), 3 * SECOND);
    assert_eq!(machine.look(&mut subject, SECOND), Some(vec![]));
    machine.stat("40/task/41", "a) S 1 (b", 200);
    machine.write("40/cmdline", b"prog: step 3 --password hunter2\0\0\0  \0");
    let both = vec![named(0, "prog: step 3 --password [redacted]"), named(7, "a) S 1 (b")];
    assert_eq!(machine.look(&mut subject, 2 * SECOND), Some(both));
    assert_eq!(machine.look(&mut subject, 3 * SECOND), Some(vec![]));
    machine.stat("40/task/41", "again", 200);
    assert_eq!(machine.look(&mut subject, 4 * SECOND), Some(vec![named(7, "again")]));
}

#[test]
fn redacted_title_is_its_program_alone() {
    let machine = Machine::new("redacted");
    machine.stat("40", "prog", 100);
    machine.write("40/cmdline", b"prog: training /home/me/secret-model --user me\0");
    let mut subject = machine.subject(40);
    // Nothing is recorded before it is known whether titles are redacted.
    assert_eq!(machine.look(&mut subject, SECOND), Some(vec![]));
    subject.defined_command(b"/bin/prog\0[redacted]\0", true);
    assert_eq!(machine.look(&mut subject, 2 * SECOND), Some(vec![named(0, "prog:\0[redacted]")]));
    // A program without arguments has no mark, and is redacted all the same.
    let mut subject = machine.subject(40);
    subject.defined_command(b"prog:\0", true);
    assert_eq!(machine.look(&mut subject, SECOND), Some(vec![named(0, "prog:\0[redacted]")]));
}

#[test]
fn reused_thread_number_does_not_rename_the_first_thread() {
    let machine = Machine::new("thread-reused");
    machine.stat("40", "prog", 100);
    machine.stat("40/task/41", "pool", 200);
    let mut subject = machine.subject(40);
    subject.thread(41, 7, b"pool".to_vec(), 3 * SECOND);
    assert_eq!(machine.look(&mut subject, SECOND), Some(vec![]));
    machine.stat("40/task/41", "another", 900);
    assert_eq!(machine.look(&mut subject, 2 * SECOND), Some(vec![]));
    // The other thread is traced too, from its first call on.
    subject.thread(41, 8, b"another".to_vec(), 10 * SECOND);
    machine.stat("40/task/41", "renamed", 900);
    assert_eq!(machine.look(&mut subject, 3 * SECOND), Some(vec![named(8, "renamed")]));
    // This thread began after the definition, so it is not the one that was defined.
    subject.thread(42, 9, b"gone".to_vec(), 5 * SECOND);
    machine.stat("40/task/42", "young", 600);
    assert_eq!(machine.look(&mut subject, 4 * SECOND), Some(vec![]));
}

#[test]
fn reused_process_number_is_ignored() {
    let machine = Machine::new("process-reused");
    machine.stat("40", "prog", 100);
    machine.write("40/cmdline", b"prog\0");
    let mut subject = machine.subject(40);
    subject.defined_command(b"prog\0", false);
    assert_eq!(machine.look(&mut subject, SECOND), Some(vec![]));
    machine.stat("40", "other", 999);
    machine.write("40/cmdline", b"other\0");
    assert_eq!(machine.look(&mut subject, 2 * SECOND), None);
    fs::remove_dir_all(machine.folder.join("40")).unwrap();
    assert_eq!(machine.look(&mut subject, 3 * SECOND), None);
}

#[test]
fn threads_of_a_namespace_are_found_by_their_own_numbers() {
    let machine = Machine::new("namespace");
    machine.stat("40", "prog", 100);
    machine.inside("40", "40 1");
    for (outer, inner, name) in [("40", "1", "prog"), ("41", "2", "second")] {
        machine.stat(&format!("40/task/{outer}"), name, 200);
        machine.inside(&format!("40/task/{outer}"), &format!("{outer} {inner}"));
    }
    let mut subject = machine.subject(1);
    subject.thread(2, 7, b"prog".to_vec(), 3 * SECOND);
    assert_eq!(machine.look(&mut subject, SECOND), Some(vec![named(7, "second")]));
    // An id in its namespace is no id in this one.
    machine.stat("40/task/2", "not this one", 200);
    assert_eq!(machine.look(&mut subject, 2 * SECOND), Some(vec![]));
}

#[test]
fn threads_without_end_take_bounded_memory() {
    let machine = Machine::new("many");
    machine.stat("40", "prog", 100);
    let mut subject = machine.subject(40);
    for thread in 0..3 * THREADS_MAX as u32 {
        subject.thread(100 + thread, thread, b"prog".to_vec(), 3 * SECOND);
        machine.stat(&format!("40/task/{}", 100 + thread), "renamed", 200);
    }
    assert_eq!(machine.look(&mut subject, SECOND).unwrap().len(), THREADS_MAX, "the newest");
}

#[test]
fn unreadable_process_files_are_ignored() {
    let nothing = Machine::new("nothing");
    let mut subject = nothing.subject(40);
    subject.thread(41, 7, b"pool".to_vec(), SECOND);
    assert_eq!(nothing.look(&mut subject, SECOND), None);
    for text in [&b""[..], b"1 prog S", b"1 (x) S 0", b"\xff\xfe(\xff) S", b") ("] {
        nothing.write("40/stat", text);
        assert_eq!(nothing.look(&mut subject, SECOND), None);
    }
    assert!(Path::new(&nothing.folder).exists());
}

/// The looker thread, on this process.
#[test]
fn looker_is_believed_of_the_living_and_not_of_the_dead() {
    let mut names = Names::start().unwrap();
    let own = std::process::id();
    names.begin(3, own, own);
    let (rename, renamed) = bounded::<()>(0);
    let (done, wait) = bounded::<u32>(0);
    let thread = std::thread::spawn(move || {
        // SAFETY: gettid has no preconditions.
        done.send(unsafe { libc::gettid() }.cast_unsigned()).unwrap();
        renamed.recv().unwrap();
        // SAFETY: a C string of less than 16 bytes.
        unsafe { libc::prctl(libc::PR_SET_NAME, c"by itself".as_ptr()) };
        done.send(0).unwrap();
        renamed.recv().unwrap();
    });
    let tid = wait.recv().unwrap();
    names.defined(
        3,
        &[Definition { kind: kind::THREAD, id: 9, fields: vec![tid.into(), 0], text: Vec::new() }],
    );
    rename.send(()).unwrap();
    wait.recv().unwrap();
    // On a busy machine the first answer may be late.
    let mut found = Vec::new();
    while !found.contains(&named(9, "by itself")) {
        let seen = names.last(3, |_| true).into_iter().chain(names.take(|_| true));
        found.extend(seen.flat_map(|(process, records)| {
            assert_eq!(process, 3);
            texts(&records)
        }));
    }
    rename.send(()).unwrap();
    thread.join().unwrap();
    // What is found of a process that was never known to be alive is rejected.
    let mut names = Names::start().unwrap();
    names.begin(4, own, own);
    names.defined(4, &[Definition { kind: kind::PROCESS, id: 1, fields: vec![], text: b"not it".to_vec() }]);
    names.timed_out_at = None;
    assert!(names.last(4, |_| false).is_empty());
    assert!(names.last(5, |_| true).is_empty(), "no such process");
    names.end(4);
    assert!(names.take(|_| true).is_empty());
}

/// A looker that is blocked in /proc by a lock of the program.
#[test]
fn stuck_looker_is_reported_once_a_process() {
    let (asks, _asked) = bounded(3);
    let (_finds, found) = bounded(1);
    let mut names = Names::with(asks, found);
    names.begin(1, 101, 101);
    names.begin(2, 102, 102);
    let threads: Vec<Definition> = (0..10)
        .map(|id| Definition { kind: kind::THREAD, id, fields: vec![id.into(), 0], text: Vec::new() })
        .collect();
    names.defined(2, &threads);
    let [(process, records)] = &names.take(|_| true)[..] else { panic!("nobody says so") };
    assert_eq!((*process, records.len(), records[0].kind), (2, 1, kind::NOTICE));
    names.defined(2, &threads);
    assert!(names.take(|_| true).is_empty(), "it is reported once");
    assert!(names.last(1, |_| true).is_empty());
}
