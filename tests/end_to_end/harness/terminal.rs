//! Runs a command on a terminal of its own.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::ptr::null;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use crate::harness::session::eventually;

/// Runs the command with stdout and stderr on a new terminal; returns what the terminal was sent.
#[track_caller]
pub fn finish_on_terminal(command: &mut Command, columns: u16) -> (ExitStatus, String) {
    let (ours, theirs) = terminal(50, columns);
    command.stdin(Stdio::null());
    command.stdout(theirs.try_clone().unwrap()).stderr(theirs);
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    // The command keeps copies of the terminal's end until it is given others.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let reader = thread::spawn(move || {
        let mut sent = Vec::new();
        // Ends with EIO when the last process has closed the terminal.
        let _ = File::from(ours).read_to_end(&mut sent);
        String::from_utf8_lossy(&sent).replace("\r\n", "\n")
    });
    let status = child.wait().unwrap();
    (status, reader.join().unwrap())
}

/// A new terminal of that size: our end and the program's.
#[track_caller]
fn terminal(rows: u16, columns: u16) -> (OwnedFd, OwnedFd) {
    let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let (mut ours, mut theirs) = (-1, -1);
    // SAFETY: openpty writes two descriptors and reads one winsize, all of them locals; the null
    // pointers stand for a name and settings that are not wanted.
    let made = unsafe {
        libc::openpty(&raw mut ours, &raw mut theirs, std::ptr::null_mut(), null(), &raw const size)
    };
    assert_eq!(made, 0, "openpty: {}", std::io::Error::last_os_error());
    // SAFETY: openpty made both descriptors for us.
    unsafe { (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) }
}

/// A program that has a terminal for itself, of 40 rows and 120 columns unless a test wants another size, and
pub struct OnTerminal {
    pub child: Child,
    keys: File,
    /// The program's end, kept open so that its settings can be read when the program has gone.
    theirs: OwnedFd,
    sent: Arc<Mutex<Vec<u8>>>,
    _reader: JoinHandle<()>,
}

impl OnTerminal {
    #[track_caller]
    pub fn start(command: &mut Command) -> OnTerminal {
        OnTerminal::start_of_size(command, 40, 120)
    }

    #[track_caller]
    pub fn start_of_size(command: &mut Command, rows: u16, columns: u16) -> OnTerminal {
        let (ours, theirs) = terminal(rows, columns);
        for attach in [Command::stdin, Command::stdout, Command::stderr] {
            attach(command, theirs.try_clone().unwrap());
        }
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let sent = Arc::new(Mutex::new(Vec::new()));
        let (mut screen, to) = (File::from(ours.try_clone().unwrap()), Arc::clone(&sent));
        let reader = thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut some) {
                to.lock().unwrap().extend_from_slice(&some[..count]);
            }
        });
        OnTerminal { child, keys: File::from(ours), theirs, sent, _reader: reader }
    }

    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Changes the size, without a signal: the terminal is not the program's controlling one.
    #[track_caller]
    pub fn resize(&self, rows: u16, columns: u16) {
        let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: ioctl reads one winsize, which outlives the call.
        let set = unsafe { libc::ioctl(self.theirs.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    }

    /// Everything that the terminal was sent.
    pub fn sent(&self) -> String {
        String::from_utf8_lossy(&self.sent.lock().unwrap()).into_owned()
    }

    #[track_caller]
    pub fn waits_for(&self, text: &str) {
        eventually(text, || self.sent().contains(text).then_some(()));
    }

    /// Whether the terminal edits lines and echoes, as before a program takes it.
    pub fn is_restored(&self) -> bool {
        // SAFETY: a termios of zeroes is a valid one.
        let mut settings: libc::termios = unsafe { std::mem::zeroed() };
        // SAFETY: tcgetattr writes one termios, which outlives the call.
        assert_eq!(unsafe { libc::tcgetattr(self.theirs.as_raw_fd(), &raw mut settings) }, 0);
        settings.c_lflag & (libc::ICANON | libc::ECHO) == libc::ICANON | libc::ECHO
    }
}

impl Drop for OnTerminal {
    /// Ends a program that a failed test left.
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A program on a terminal of 200 rows and 400 columns that nobody reads.
pub struct UnreadTerminal {
    pub child: Child,
    keys: File,
    theirs: OwnedFd,
}

impl UnreadTerminal {
    #[track_caller]
    pub fn start(command: &mut Command) -> UnreadTerminal {
        let (ours, theirs) = terminal(200, 400);
        for attach in [Command::stdin, Command::stdout, Command::stderr] {
            attach(command, theirs.try_clone().unwrap());
        }
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        UnreadTerminal { child, keys: File::from(ours), theirs }
    }

    /// Presses that key until the terminal takes nothing more.
    #[track_caller]
    pub fn fill_by(&mut self, key: &str) {
        eventually("a full terminal", || {
            self.keys.write_all(key.as_bytes()).unwrap();
            let mut theirs = libc::pollfd { fd: self.theirs.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
            // SAFETY: a live pollfd, and one of them.
            (unsafe { libc::poll(&raw mut theirs, 1, 0) } == 0).then_some(())
        });
    }
}
