//! A session that goes on while a test asks it things: `gputrace run` with a program that waits.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::harness::folder::Folder;
use crate::harness::process::{Ended, finish};
use crate::harness::tool::gputrace;

/// Far more than anything here takes.
const LIMIT: Duration = Duration::from_secs(100);

/// Waits until something holds, and fails if it never does.
#[track_caller]
pub fn eventually<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(Instant::now() < deadline, "never: {what}");
        sleep(Duration::from_millis(5));
    }
}

/// A process that talks and waits; it and its group are killed if the test fails before its end.
pub struct Session {
    pub process: Child,
    input: Option<ChildStdin>,
    said: BufReader<ChildStdout>,
}

impl Session {
    pub fn start(command: &mut Command) -> Session {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut process = command.spawn().unwrap();
        let said = BufReader::new(process.stdout.take().unwrap());
        Session { input: process.stdin.take(), said, process }
    }

    /// `gputrace run --simulate -o FOLDER/out OPTIONS -- PROGRAM ARGUMENTS`.
    pub fn run(folder: &Folder, options: &[&str], program: impl AsRef<OsStr>, arguments: &[&str]) -> Session {
        let mut command = gputrace();
        command.args(["run", "--simulate", "-o"]).arg(folder.join("out")).args(options);
        Session::start(command.arg("--").arg(program).args(arguments))
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The program that `gputrace run` started.
    #[track_caller]
    pub fn program(&self) -> u32 {
        let children = format!("/proc/{0}/task/{0}/children", self.pid());
        let first = |text: String| text.split_whitespace().next()?.parse().ok();
        eventually("a child", || fs::read_to_string(&children).ok().and_then(first))
    }

    /// The next line on its stdout.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub fn send(&self, signal: i32) {
        // SAFETY: plain numbers; the process is this test's and not reaped yet.
        assert_eq!(unsafe { libc::kill(self.pid().cast_signed(), signal) }, 0);
    }

    /// Writes to the program's stdin.
    pub fn write(&mut self, text: &str) {
        self.input.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Closes the program's stdin, which ends it.
    pub fn release(&mut self) {
        drop(self.input.take());
    }

    /// Ends it, and returns its status and its stderr.
    #[track_caller]
    pub fn end(mut self) -> (ExitStatus, String) {
        self.release();
        let status = eventually("its end", || self.process.try_wait().unwrap());
        let mut text = String::new();
        self.process.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        (status, text)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.process.try_wait().is_ok_and(|status| status.is_none()) {
            // SAFETY: the group was made for this process; a negative number names the group.
            unsafe { libc::kill(-self.pid().cast_signed(), libc::SIGKILL) };
            let _ = self.process.wait();
        }
    }
}

/// `gputrace ctl PID …`.
pub fn ctl(pid: u32, words: &[&str]) -> Ended {
    finish(gputrace().arg("ctl").arg(pid.to_string()).args(words))
}

/// The dumps in a folder, oldest first.
pub fn dumps(folder: &std::path::Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("dump-"));
    let mut dumps: Vec<_> = named.map(|entry| entry.path()).collect();
    dumps.sort();
    dumps
}
