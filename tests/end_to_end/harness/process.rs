//! Runs a command to its end and returns what it said; one that hangs is killed and fails.

use std::io::{ErrorKind, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::schema;

/// Far more than any of them takes, on a machine that does other things too.
const LIMIT: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
    }

    /// Fails, with all that was said, unless it ended with that code.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Ended {
        assert_eq!(
            self.code(),
            Some(code),
            "signal {:?}\n--- stdout\n{}\n--- stderr\n{}",
            self.signal(),
            self.stdout,
            self.stderr
        );
        self
    }
}

/// Starts it. A program that was just written may still be open for writing in a child of another
/// test's, between its fork and its exec.
#[track_caller]
fn spawn(command: &mut Command) -> Child {
    let deadline = Instant::now() + LIMIT;
    loop {
        match command.spawn() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(2));
            }
            started => return started.unwrap_or_else(|error| panic!("{command:?}: {error}")),
        }
    }
}

/// Runs to the end of the process *and* of its output: whoever keeps the pipe open is waited for. A report
/// that it prints must be as the published schema has it.
#[track_caller]
pub fn finish(command: &mut Command) -> Ended {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = spawn(command);
    let read = |mut from: Box<dyn Read + Send>| {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = from.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let stdout = read(Box::new(child.stdout.take().unwrap()));
    let stderr = read(Box::new(child.stderr.take().unwrap()));
    let deadline = Instant::now() + LIMIT;
    let mut hung = false;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap()
            && stdout.is_finished()
            && stderr.is_finished()
        {
            break status;
        }
        if Instant::now() > deadline {
            hung = true;
            // SAFETY: the group was made for this child; a negative number names the group.
            unsafe { libc::kill(-child.id().cast_signed(), libc::SIGKILL) };
            break child.wait().unwrap();
        }
        thread::sleep(Duration::from_millis(2));
    };
    let ended = Ended { status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() };
    assert!(!hung, "did not end within {LIMIT:?}: {command:?}\n{}\n{}", ended.stdout, ended.stderr);
    schema::check(&ended.stdout);
    ended
}
