//! A process that stands in our process group and does nothing but tell which signals reach it.
//!
//! Nothing in a signal says whether it was sent to a process or to its whole group. What was sent to the
//! group reaches this process, too. It is a child of ours that the program can neither wait for nor
//! outlive: it ends with the thread that made it, which the kernel sees to. It holds one descriptor, the
//! pipe it tells us through, and takes names that whoever sends signals by name finds only where it finds
//! the program as well: what reached us and the witness, but not the program, would be lost.

use std::ffi::CStr;
use std::mem::zeroed;
use std::ptr::null_mut;

use libc::{c_int, c_uint, pid_t};

use crate::launch::heard::{By, Heard};
use crate::launch::inherited::{self, Title};

/// As `pkill` and `ps -o comm` know it.
const NAME: &CStr = c"signal-witness";
/// In place of our own name and options before the command.
const INSTEAD_OF_US: &[u8] = b"(signals)";

#[derive(Debug)]
pub struct Witness {
    pid: pid_t,
}

impl Witness {
    /// Makes it, from a thread with all signals blocked. It tells through the descriptor `told`, of a pipe
    /// that does not block. The last `words` of our arguments are the command.
    pub fn start(told: c_int, words: usize) -> Option<Witness> {
        let title = inherited::title(words)?;
        // SAFETY: getpid and fork take nothing. The child makes async-signal-safe calls only, on memory of
        // its own, and does not return.
        unsafe {
            let us = libc::getpid();
            match libc::fork() {
                0 => live(us, told, title),
                pid if pid > 0 => Some(Witness { pid }),
                _ => None,
            }
        }
    }

    /// Has it tell [`By::Answer`] with this number, after all that reached it until now. Where that cannot be asked, false.
    pub fn ask(&self, number: usize) -> bool {
        // SAFETY: plain numbers, and a zeroed siginfo that waitid fills. The process is our child and not reaped.
        unsafe {
            let mut info: libc::siginfo_t = zeroed();
            let options = libc::WEXITED | libc::WNOWAIT | libc::WNOHANG;
            if libc::waitid(libc::P_PID, self.pid.cast_unsigned(), &raw mut info, options) != 0
                || info.si_pid() != 0
            {
                return false;
            }
            // What stopped the group stopped it as well; we run again.
            libc::kill(self.pid, libc::SIGCONT);
            let value = libc::sigval { sival_ptr: number as *mut _ };
            libc::sigqueue(self.pid, question(), value) == 0
        }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        // SAFETY: plain numbers; the process is our child, not reaped until here, and dies of this at once.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            while libc::waitpid(self.pid, null_mut(), 0) < 0 && *libc::__errno_location() == libc::EINTR {}
        }
    }
}

/// The signal that asks. The highest: of what is pending the kernel gives the lower ones first.
fn question() -> c_int {
    libc::SIGRTMAX()
}

/// The witness's life: waits for signals, and tells of those that may be the group's.
///
/// # Safety
/// In a process that was just forked, with all signals blocked.
unsafe fn live(us: pid_t, told: c_int, title: Title) -> ! {
    // SAFETY: async-signal-safe calls on plain numbers and on zeroed plain data that they fill. Only this
    // thread is in this process.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != us {
            libc::_exit(0);
        }
        close_all_but(told);
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
        title.replace_before_command(INSTEAD_OF_US);
        let mut all: libc::sigset_t = zeroed();
        libc::sigfillset(&raw mut all);
        loop {
            let mut info: libc::siginfo_t = zeroed();
            let signal = libc::sigwaitinfo(&raw const all, &raw mut info);
            if signal < 0 {
                if *libc::__errno_location() == libc::EINTR {
                    continue;
                }
                libc::_exit(0);
            }
            let heard = Heard::new(signal, &info);
            let is_question = signal == question() && heard.carries_value() && heard.sender == us;
            let by = if is_question { By::Answer } else { By::Witness };
            if is_question || heard.may_be_the_groups() {
                let message = heard.message(by);
                let rc = libc::write(told, message.as_ptr().cast(), message.len());
                if rc < 0 && *libc::__errno_location() == libc::EPIPE {
                    libc::_exit(0);
                }
            }
        }
    }
}

/// What others wait for the end of must not stay open here.
///
/// # Safety
/// In a process whose descriptors nobody else uses.
unsafe fn close_all_but(kept: c_int) {
    let close_range = |first: c_uint, last: c_uint| {
        // SAFETY: plain numbers; descriptors of this process, which uses none of them.
        let rc = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        rc == 0
    };
    let place = kept.cast_unsigned();
    if (place == 0 || close_range(0, place - 1)) && close_range(place + 1, c_uint::MAX) {
        return;
    }
    // Before Linux 5.9.
    // SAFETY: a zeroed rlimit that getrlimit fills; otherwise as above.
    unsafe {
        let mut limit: libc::rlimit = zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        for descriptor in (0..limit.rlim_cur.min(1 << 20) as c_int).filter(|descriptor| *descriptor != kept) {
            libc::close(descriptor);
        }
    }
}
