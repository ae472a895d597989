//! Ends as the traced program ended, so that whoever waits for us sees what it would have seen.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// The program's own code; does not return if a signal killed the program.
pub fn end_as(status: ExitStatus) -> u8 {
    if let Some(signal) = status.signal() {
        die_of(signal);
        // Only reached if that signal cannot kill us after all; the shell's convention, then.
        return 128u8.wrapping_add(signal.unsigned_abs() as u8);
    }
    status.code().unwrap_or(0) as u8
}

fn die_of(signal: i32) {
    // SAFETY: all of these take plain numbers or plain data that lives through the call; the
    // default action of a fatal signal ends the process, which is the purpose.
    unsafe {
        // The program dumped its core, if any was wanted; ours would only replace it.
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
        let limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &raw const limit);
        libc::signal(signal, libc::SIG_DFL);
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
        libc::raise(signal);
    }
}
