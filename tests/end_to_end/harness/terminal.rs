//! Runs a command on a terminal of its own, so many columns wide.

use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Command, ExitStatus, Stdio};
use std::ptr::null;
use std::thread;

/// Runs the command with stdout and stderr on a new terminal; returns what the terminal was sent.
#[track_caller]
pub fn finish_on_terminal(command: &mut Command, columns: u16) -> (ExitStatus, String) {
    let size = libc::winsize { ws_row: 50, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let (mut ours, mut theirs) = (-1, -1);
    // SAFETY: openpty writes two descriptors and reads one winsize, all of them locals; the null
    // pointers stand for a name and settings that are not wanted.
    let made = unsafe {
        libc::openpty(&raw mut ours, &raw mut theirs, std::ptr::null_mut(), null(), &raw const size)
    };
    assert_eq!(made, 0, "openpty: {}", std::io::Error::last_os_error());
    // SAFETY: openpty made both descriptors for us.
    let (ours, theirs) = unsafe { (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) };
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
