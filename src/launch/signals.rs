//! Signals while the traced program runs.
//!
//! The terminal sends SIGINT and SIGQUIT to the whole foreground group, the program included: it
//! decides, we only must not die of them. SIGTERM and SIGHUP reach us alone, as far as we know,
//! so they are passed on. The program itself starts with the dispositions that we were given.

use std::mem::zeroed;
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

/// What was in force before [`take_over`], to be given to the program and restored at the end.
#[derive(Clone, Copy)]
pub struct Before {
    actions: [(c_int, libc::sigaction); 5],
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
        let mut before = Before { actions: [(0, zeroed()); 5], mask: zeroed() };
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
    /// Puts everything back as it was. Async-signal-safe: runs in the forked child as well.
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
        // SAFETY: signal takes plain numbers.
        unsafe { libc::signal(libc::SIGPIPE, inherited::sigpipe()) };
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
