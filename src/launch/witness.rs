//! Two processes that do nothing but tell which signals reach them: one that stands in our process group, and one that stands
//! outside, in a session of its own.
//!
//! Nothing in a signal says whether it was sent to a process or to its whole group. What was sent to the
//! group reaches the first, too; what was sent to each process, both. What was sent to all of our session or terminal
//! does not reach the second: a program that left the session has not got it either. Each is a child of ours that the program can
//! neither wait for nor outlive: it ends with the thread that made it, which the kernel sees to. It holds one
//! descriptor, the pipe it tells us through. What reached us and a witness, but not the program, would be lost, so each is
//! found by no name that is ours alone: it has the command's words, a name of its own, and the loader for an
//! executable, which runs ours for it.

use std::ffi::{CStr, CString, OsStr, c_char};
use std::mem::zeroed;
use std::ptr::{null, null_mut};

use libc::{c_int, c_uint, pid_t};

use crate::launch::heard::{By, Heard};
use crate::launch::inherited;

/// As `pkill` and `ps -o comm` know it.
const NAME: &CStr = c"signal-witness";
/// In place of our own name and options before the command.
const TITLE: &CStr = c"(signals)";
/// Asks our executable to be a witness, in our group or in a session of its own; the descriptor and our number follow.
const ROLES: [(&CStr, By); 2] = [(c"signals-witness", By::Witness), (c"signals-outsider", By::Outsider)];
/// Where every x86-64 program of the C library has it.
const LOADER: &CStr = c"/lib64/ld-linux-x86-64.so.2";

#[derive(Debug)]
pub struct Witness {
    pid: pid_t,
}

impl Witness {
    /// Makes it, from a thread with all signals blocked. It tells through the descriptor `told`, of a pipe
    /// that does not block, as [`By::Witness`] or [`By::Outsider`]. The last `words` of our arguments are the
    /// command.
    pub fn start(by: By, told: c_int, words: usize) -> Option<Witness> {
        let (role, _) = ROLES.into_iter().find(|(_, role)| *role == by)?;
        let us = std::process::id();
        let own = [format!("/proc/{us}/exe"), told.to_string(), us.to_string()].map(CString::new);
        let [Ok(executable), Ok(descriptor), Ok(maker)] = own else { return None };
        let words = inherited::command(words)?;
        let before = [TITLE, &executable, role, &descriptor, &maker].map(CStr::as_ptr);
        let arguments: Vec<_> = before.into_iter().chain(words.iter().copied()).chain([null()]).collect();
        // SAFETY: fork takes nothing. The child makes async-signal-safe calls only, on memory of its own, and
        // does not return.
        unsafe {
            match libc::fork() {
                0 => become_one(us.cast_signed(), by, told, &arguments),
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

/// # Safety
/// In a process that was just forked, with all signals blocked; the arguments are strings and a null.
unsafe fn become_one(us: pid_t, by: By, told: c_int, arguments: &[*const c_char]) -> ! {
    // SAFETY: async-signal-safe calls on plain numbers and on what the caller answers for.
    unsafe {
        // One that could outlive us is none. Mask, group and this outlast the exec.
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 || libc::getppid() != us {
            libc::_exit(0);
        }
        if by == By::Outsider && libc::setsid() < 0 {
            libc::_exit(0);
        }
        close_all_but(told);
        libc::fcntl(told, libc::F_SETFD, 0);
        let nothing = null::<c_char>();
        libc::execve(LOADER.as_ptr(), arguments.as_ptr(), &raw const nothing);
        libc::_exit(0);
    }
}

/// In the process that [`Witness::start`] makes: is the witness, and does not return. Elsewhere nothing.
pub fn live_if_asked() {
    let arguments: Vec<_> = std::env::args_os().take(4).collect();
    let [_, role, told, us] = arguments.as_slice() else { return };
    let number = |text: &OsStr| text.to_str()?.parse::<c_int>().ok();
    let (Some(told), Some(us)) = (number(told), number(us)) else { return };
    let known = ROLES.into_iter().find(|(known, _)| known.to_bytes() == role.as_encoded_bytes());
    let Some((_, by)) = known else { return };
    // SAFETY: getppid takes nothing.
    if unsafe { libc::getppid() } != us {
        return;
    }
    // SAFETY: the only thread of a process that is for this alone, which its maker started with all signals blocked.
    unsafe { live(us, by, told) }
}

/// The witness's life: waits for signals, and tells of those that may be the group's.
///
/// # Safety
/// In a process of its own, of one thread, with all signals blocked.
unsafe fn live(us: pid_t, by: By, told: c_int) -> ! {
    // SAFETY: calls on plain numbers and on zeroed plain data that they fill. Only this thread is in this process.
    unsafe {
        // The runtime opened what was closed of the first three.
        close_all_but(told);
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
        if let Some(title) = inherited::title_before(3, TITLE.to_bytes_with_nul()) {
            title.replace_before_command(TITLE.to_bytes());
        }
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
            let by = if is_question { By::Answer } else { by };
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
