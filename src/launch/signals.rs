//! Signals while the traced program runs.
//!
//! The terminal sends SIGINT and SIGQUIT to the whole foreground group, the program included: it
//! decides, we only must not die of them. SIGTERM and SIGHUP reach us alone, as far as we know,
//! so they are passed on. The program itself starts with the dispositions that we were given.
//! SIGUSR2 is none of our business, unless a flight recorder waits for it.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, Ordering};

use libc::c_int;

use crate::launch::inherited;

/// The program's process id; 0 while there is none (not yet started, or already gone).
static PROGRAM: AtomicI32 = AtomicI32::new(0);
/// A signal that came before the program was there, to be passed on as soon as it is.
static EARLY: AtomicI32 = AtomicI32::new(0);

const OUTLIVED: [c_int; 2] = [libc::SIGINT, libc::SIGQUIT];
const PASSED_ON: [c_int; 2] = [libc::SIGTERM, libc::SIGHUP];

/// The signal that a flight recorder writes on.
const DUMPS: c_int = libc::SIGUSR2;
/// Where it is told; -1 while nobody listens.
static DUMP_TOLD: AtomicI32 = AtomicI32::new(-1);

/// What was in force before [`take_over`], to be given to the program and restored at the end.
#[derive(Clone, Copy)]
pub struct Before {
    actions: [(c_int, libc::sigaction); 5],
    dumps: libc::sigaction,
    mask: libc::sigset_t,
}

extern "C" fn outlive(_signal: c_int) {}

extern "C" fn pass_on(signal: c_int) {
    // Only async-signal-safe calls here: kill is one, and errno is put back.
    let program = PROGRAM.load(Ordering::Relaxed);
    if program == 0 {
        EARLY.store(signal, Ordering::Relaxed);
        return;
    }
    // SAFETY: __errno_location is this thread's errno; kill takes plain numbers. The program is
    // not reaped while its id is in PROGRAM, so the id is no other process's.
    unsafe {
        let errno = *libc::__errno_location();
        libc::kill(program, signal);
        *libc::__errno_location() = errno;
    }
}

/// Sets the handlers. A signal that we were started with ignored stays ignored: under nohup,
/// and in the background of a shell without job control, nobody wants it.
pub fn take_over() -> Before {
    // SAFETY: zeroed sigaction and sigset_t are valid values, filled by the calls below; the
    // handlers are functions for the life of the process.
    unsafe {
        let mut before = Before { actions: [(0, zeroed()); 5], dumps: zeroed(), mask: zeroed() };
        libc::sigaction(DUMPS, std::ptr::null(), &raw mut before.dumps);
        libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &raw mut before.mask);
        let watched = OUTLIVED.into_iter().chain(PASSED_ON).chain([libc::SIGCHLD]);
        for (slot, signal) in before.actions.iter_mut().zip(watched) {
            slot.0 = signal;
            libc::sigaction(signal, std::ptr::null(), &raw mut slot.1);
            if signal == libc::SIGCHLD {
                // Were it ignored, the kernel would reap the program and keep its code.
                libc::signal(signal, libc::SIG_DFL);
            } else if slot.1.sa_sigaction != libc::SIG_IGN {
                let mut action: libc::sigaction = zeroed();
                let handler: extern "C" fn(c_int) =
                    if PASSED_ON.contains(&signal) { pass_on } else { outlive };
                action.sa_sigaction = handler as usize;
                action.sa_flags = libc::SA_RESTART;
                libc::sigaction(signal, &raw const action, null_mut());
            }
        }
        before
    }
}

impl Before {
    /// Puts back what [`take_over`] changed. Async-signal-safe: runs in the forked child as well.
    pub fn restore(&self) {
        // SAFETY: the actions and the mask are those that the kernel gave in `take_over`.
        unsafe {
            for (signal, action) in &self.actions {
                libc::sigaction(*signal, action, null_mut());
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.mask, null_mut());
        }
    }

    /// As [`restore`](Self::restore), with SIGPIPE as this program found it.
    pub fn restore_for_program(&self) {
        self.restore();
        // SAFETY: signal takes plain numbers; the action is the one that the kernel gave.
        unsafe {
            libc::signal(libc::SIGPIPE, inherited::sigpipe());
            libc::sigaction(DUMPS, &raw const self.dumps, null_mut());
        }
    }
}

extern "C" fn tell_dump(_signal: c_int) {
    // Only async-signal-safe calls here: write is one, and errno is put back.
    let told = DUMP_TOLD.load(Ordering::Relaxed);
    let one = 1u64.to_ne_bytes();
    // SAFETY: __errno_location is this thread's errno; the eight bytes live through the call, which
    // goes to an event counter that does not block.
    unsafe {
        let errno = *libc::__errno_location();
        libc::write(told, one.as_ptr().cast(), one.len());
        *libc::__errno_location() = errno;
    }
}

/// From now on, and until this process ends, SIGUSR2 makes the returned descriptor readable,
/// whatever it was set to: who asks for a flight recorder asks for its signal. Once a process.
pub fn watch_dumps() -> io::Result<OwnedFd> {
    // SAFETY: zeroed sigaction and sigset_t are valid values; the handler is a function for the
    // life of the process, and writes to a descriptor that is never closed: it owns a copy.
    unsafe {
        let told = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
        if told < 0 {
            return Err(io::Error::last_os_error());
        }
        let told = OwnedFd::from_raw_fd(told);
        let copy = libc::fcntl(told.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0);
        if copy < 0 {
            return Err(io::Error::last_os_error());
        }
        DUMP_TOLD.store(copy, Ordering::Relaxed);
        let mut action: libc::sigaction = zeroed();
        let handler: extern "C" fn(c_int) = tell_dump;
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(DUMPS, &raw const action, null_mut());
        let mut set: libc::sigset_t = zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, DUMPS);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, null_mut());
        Ok(told)
    }
}

/// From now on signals are passed on to this process.
pub fn program_started(pid: c_int) {
    PROGRAM.store(pid, Ordering::Relaxed);
    let early = EARLY.swap(0, Ordering::Relaxed);
    if early != 0 {
        // SAFETY: kill takes plain numbers; the program was just started and is not reaped.
        unsafe { libc::kill(pid, early) };
    }
}

/// From now on its id may become another's.
pub fn program_ended() {
    PROGRAM.store(0, Ordering::Relaxed);
}
