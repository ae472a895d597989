//! Signals while the traced program runs.
//!
//! Whoever started `run` takes it for the program, so a signal that a process sends to `run` is passed on
//! once. A signal that the terminal sends goes to the whole foreground group, and is passed on only where
//! the program is not in that group. A signal that the program itself sends is not passed on: it may have
//! signalled its own group, and must not hit itself a second time. A signal does not show whether its sender
//! signalled `run` alone or the whole group, so a signal that is sent to both reaches the program twice.
//!
//! The program starts with the dispositions that `run` was given. SIGUSR2 is passed on like any other,
//! unless a flight recorder waits for it. Once the program is gone, the first signal that would end us ends
//! our wait for a back end only, so that what was recorded is written and the exit code stays the program's;
//! the second ends us.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use libc::{c_int, c_void, pid_t, siginfo_t};

use crate::launch::inherited;

/// The program's process id; 0 while there is none (not yet started, or already gone).
static PROGRAM: AtomicI32 = AtomicI32::new(0);
/// How many handlers are sending a signal to the program at this moment.
static SENDING: AtomicU32 = AtomicU32::new(0);
/// Signals that came before the program was there, to be passed on as soon as it is: bit n - 1 is
/// signal n.
static EARLY: AtomicU64 = AtomicU64::new(0);

/// Whether a signal asked this process to end while only its outputs were left to write.
static END_WANTED: AtomicBool = AtomicBool::new(false);

/// What is done before this process ends by its own abort.
static BEFORE_ABORT: OnceLock<extern "C" fn()> = OnceLock::new();

/// One more than the highest signal of Linux.
const SIGNALS: usize = 65;
/// What the kernel sends to the terminal's whole foreground group. SIGHUP is not always one of them: see
/// [`has_reached_the_program`].
const TERMINAL: [c_int; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGWINCH, libc::SIGHUP];
/// What ends us again once there is no program to end.
const END_US_AFTERWARDS: [c_int; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];

/// The signal that a flight recorder writes on.
const DUMPS: c_int = libc::SIGUSR2;
/// The event counter that the signal's handler adds to; -1 while there is none.
static DUMP_EVENT: AtomicI32 = AtomicI32::new(-1);

/// What was in force before [`take_over`], to be given to the program and restored at the end.
#[derive(Clone, Copy)]
pub struct Before {
    /// By number; `None` for those that are not touched.
    actions: [Option<libc::sigaction>; SIGNALS],
    mask: libc::sigset_t,
}

/// Whether a signal that reaches us is meant for the program. Not so: what the kernel sends for a
/// fault of this process, what stops and continues (a shell sends it to the group, and must see us
/// stop), broken pipes and files that are too large, which are ours, and the two that libc uses.
pub fn is_for_the_program(signal: c_int) -> bool {
    use libc::{
        SIGBUS, SIGCHLD, SIGCONT, SIGFPE, SIGILL, SIGKILL, SIGPIPE, SIGSEGV, SIGSTOP, SIGTSTP, SIGTTIN,
        SIGTTOU, SIGXFSZ,
    };
    let ours = [
        SIGBUS, SIGCHLD, SIGCONT, SIGFPE, SIGILL, SIGKILL, SIGPIPE, SIGSEGV, SIGSTOP, SIGTSTP, SIGTTIN,
        SIGTTOU, SIGXFSZ,
    ];
    !ours.contains(&signal) && !(32..libc::SIGRTMIN()).contains(&signal)
}

/// A signal as it is passed on.
#[derive(Clone, Copy)]
struct Received {
    signal: c_int,
    /// What `sigqueue` sent with it.
    value: Option<usize>,
}

extern "C" fn pass_on(signal: c_int, info: *mut siginfo_t, _context: *mut c_void) {
    // Only async-signal-safe calls here: getpid, getpgrp, kill and sigqueue are, getpgid and getsid are
    // plain system calls, and errno is put back.
    // SAFETY: `info` is what the kernel gives a handler with SA_SIGINFO; __errno_location is this
    // thread's errno.
    unsafe {
        let errno = *libc::__errno_location();
        let code = (*info).si_code;
        // By another process id namespace's process the sender is 0, as in `docker stop`: passed on.
        let sender = (code <= 0).then(|| (*info).si_pid());
        let value = (code == libc::SI_QUEUE).then(|| (*info).si_value().sival_ptr as usize);
        // What this process raises itself, by abort() for one, is its own, and so is its processor time.
        let is_ours = sender == Some(libc::getpid()) || sender.is_none() && signal == libc::SIGXCPU;
        if is_ours && signal == libc::SIGABRT {
            // abort() raises the signal again once this handler returns.
            if let Some(before) = BEFORE_ABORT.get() {
                before();
            }
        } else if !is_ours {
            let program = PROGRAM.load(Ordering::SeqCst);
            if program == 0 {
                pass_on_early(signal);
            } else if !has_reached_the_program(signal, sender, program) {
                send(Received { signal, value });
            }
        }
        *libc::__errno_location() = errno;
    }
}

/// Whether the program has got the signal already, or sent it. `sender` is `None` for the kernel.
/// Async-signal-safe.
fn has_reached_the_program(signal: c_int, sender: Option<pid_t>, program: pid_t) -> bool {
    if let Some(sender) = sender {
        return sender == program;
    }
    // SAFETY: plain numbers. The program was not reaped when its id was read; an id that has become another
    // process's since then only answers for a program that is gone.
    unsafe {
        // A terminal that hangs up signals its session's first process alone.
        let is_for_us_alone = signal == libc::SIGHUP && libc::getsid(0) == libc::getpid();
        TERMINAL.contains(&signal) && !is_for_us_alone && libc::getpgid(program) == libc::getpgrp()
    }
}

/// Passes the signal on as soon as there is a program. Async-signal-safe.
fn pass_on_early(signal: c_int) {
    let bit = 1 << (signal - 1);
    EARLY.fetch_or(bit, Ordering::SeqCst);
    // The program may have come in between, and its start looked before the line above.
    if PROGRAM.load(Ordering::SeqCst) != 0 && EARLY.fetch_and(!bit, Ordering::SeqCst) & bit != 0 {
        send(Received { signal, value: None });
    }
}

/// Sends it to the program, if there is one. Async-signal-safe.
fn send(received: Received) {
    SENDING.fetch_add(1, Ordering::SeqCst);
    let program = PROGRAM.load(Ordering::SeqCst);
    if program != 0 {
        // SAFETY: both take plain numbers. The program is not reaped while its id is in PROGRAM or while
        // SENDING says that somebody had it from there, so the id is no other process's.
        unsafe {
            if let Some(value) = received.value {
                libc::sigqueue(program, received.signal, libc::sigval { sival_ptr: value as *mut c_void });
            } else {
                libc::kill(program, received.signal);
            }
        }
    }
    SENDING.fetch_sub(1, Ordering::SeqCst);
}

/// All signals of this thread, held back until this is dropped.
pub struct Held {
    before: libc::sigset_t,
}

/// Without this, a signal between the program's fork and its own dispositions would run our handler in the
/// program, and be lost.
pub fn hold() -> Held {
    // SAFETY: zeroed sigset_t are valid values, filled by the calls.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (zeroed(), zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        Held { before }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: the mask is the one that the kernel gave.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, null_mut()) };
    }
}

/// Sets the handlers. A signal that we were started with ignored is passed on as well: the program
/// starts with it ignored too, but may have changed that.
pub fn take_over() -> Before {
    // SAFETY: zeroed sigaction and sigset_t are valid values, filled by the calls below; the
    // handler is a function for the life of the process.
    unsafe {
        let mut before = Before { actions: [None; SIGNALS], mask: zeroed() };
        let mut heard: libc::sigset_t = zeroed();
        libc::sigemptyset(&raw mut heard);
        for signal in 1..=libc::SIGRTMAX() {
            if !is_for_the_program(signal) && signal != libc::SIGCHLD {
                continue;
            }
            let mut action: libc::sigaction = zeroed();
            libc::sigaction(signal, null(), &raw mut action);
            before.actions[signal as usize] = Some(action);
            // Were SIGCHLD ignored, the kernel would reap the program and keep its code.
            action = zeroed();
            if signal != libc::SIGCHLD {
                let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = pass_on;
                action.sa_sigaction = handler as usize;
                action.sa_flags = libc::SA_RESTART | libc::SA_SIGINFO;
                libc::sigaddset(&raw mut heard, signal);
            }
            libc::sigaction(signal, &raw const action, null_mut());
        }
        // Blocked in us they would reach nobody.
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const heard, &raw mut before.mask);
        before
    }
}

impl Before {
    /// The program is gone and its trace is whole: the first of each signal that ends a process sets
    /// [`is_end_wanted`], the second ends us. Signals that we were started with ignored stay ignored.
    pub fn hear_the_end(&self) {
        for signal in END_US_AFTERWARDS {
            let was_default =
                self.actions[signal as usize].is_some_and(|action| action.sa_sigaction == libc::SIG_DFL);
            if !was_default {
                self.restore_one(signal);
                continue;
            }
            take_end(signal);
        }
        self.restore_one(libc::SIGCHLD);
    }

    /// Puts back what [`take_over`] changed. Async-signal-safe.
    pub fn restore_all(&self) {
        for signal in 1..SIGNALS {
            self.restore_one(signal as c_int);
        }
        // SAFETY: the mask is the one that the kernel gave.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.mask, null_mut()) };
    }

    /// The same with SIGPIPE and SIGXFSZ as this program found them. Async-signal-safe: runs in the forked
    /// child.
    pub fn restore_for_program(&self) {
        self.restore_all();
        restore_inherited();
    }

    fn restore_one(&self, signal: c_int) {
        if let Some(action) = &self.actions[signal as usize] {
            // SAFETY: the action is the one that the kernel gave in `take_over`.
            unsafe { libc::sigaction(signal, action, null_mut()) };
        }
    }
}

/// Puts back what Rust's runtime and `main` changed. Async-signal-safe.
pub fn restore_inherited() {
    // SAFETY: signal takes plain numbers.
    unsafe {
        libc::signal(libc::SIGPIPE, inherited::sigpipe());
        libc::signal(libc::SIGXFSZ, inherited::sigxfsz());
    }
}

extern "C" fn want_end(_signal: c_int) {
    END_WANTED.store(true, Ordering::Relaxed);
}

/// The next such signal sets [`is_end_wanted`], the one after it ends us.
fn take_end(signal: c_int) {
    // SAFETY: a zeroed sigaction is a valid value; the handler lives as long as the process.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        let handler: extern "C" fn(c_int) = want_end;
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_RESTART | libc::SA_RESETHAND;
        libc::sigaction(signal, &raw const action, null_mut());
    }
}

/// Calls `act`, which must be async-signal-safe, before this process ends by its own abort.
pub fn before_own_abort(act: extern "C" fn()) {
    // Once is enough: a process shows one screen.
    let _ = BEFORE_ABORT.set(act);
}

/// For a command without a program: signals that end a process set [`is_end_wanted`]. What this process was
/// started with ignored stays ignored.
pub fn hear_the_end() {
    for signal in END_US_AFTERWARDS {
        // SAFETY: a zeroed sigaction is a valid value, filled by the call.
        let is_default = unsafe {
            let mut action: libc::sigaction = zeroed();
            libc::sigaction(signal, null(), &raw mut action) == 0 && action.sa_sigaction == libc::SIG_DFL
        };
        if is_default {
            take_end(signal);
        }
    }
}

/// Whether a signal asked for the end since [`Before::hear_the_end`].
pub fn is_end_wanted() -> bool {
    END_WANTED.load(Ordering::Relaxed)
}

/// Sleeps for that time, or until a signal comes. A signal just before it sleeps is seen after that time
/// only.
pub fn sleep(limit: Duration) {
    let limit_ms = c_int::try_from(limit.as_millis()).unwrap_or(c_int::MAX);
    // SAFETY: no descriptors, so poll reads no memory of ours.
    unsafe { libc::poll(null_mut(), 0, limit_ms) };
}

/// From now on a file that may not grow is an error where it is written, and not our end.
pub fn outlive_file_limits() {
    // SAFETY: signal takes plain numbers.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

extern "C" fn request_dump(_signal: c_int) {
    // Only async-signal-safe calls here: write is one, and errno is put back.
    let event = DUMP_EVENT.load(Ordering::Relaxed);
    let one = 1u64.to_ne_bytes();
    // SAFETY: __errno_location is this thread's errno; the eight bytes live through the call, which
    // goes to an event counter that does not block.
    unsafe {
        let errno = *libc::__errno_location();
        libc::write(event, one.as_ptr().cast(), one.len());
        *libc::__errno_location() = errno;
    }
}

/// From now on, and until this process ends, SIGUSR2 makes the returned descriptor readable,
/// whatever it was set to: who asks for a flight recorder asks for its signal. Once a process.
pub fn watch_dumps() -> io::Result<OwnedFd> {
    // SAFETY: zeroed sigaction and sigset_t are valid values; the handler is a function for the
    // life of the process, and writes to a descriptor that is never closed: it owns a copy.
    unsafe {
        let event = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
        if event < 0 {
            return Err(io::Error::last_os_error());
        }
        let event = OwnedFd::from_raw_fd(event);
        let copy = libc::fcntl(event.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0);
        if copy < 0 {
            return Err(io::Error::last_os_error());
        }
        DUMP_EVENT.store(copy, Ordering::Relaxed);
        let mut action: libc::sigaction = zeroed();
        let handler: extern "C" fn(c_int) = request_dump;
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(DUMPS, &raw const action, null_mut());
        let mut set: libc::sigset_t = zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, DUMPS);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, null_mut());
        Ok(event)
    }
}

/// From now on signals are passed on to this process.
pub fn program_started(pid: c_int) {
    PROGRAM.store(pid, Ordering::SeqCst);
    let early = EARLY.swap(0, Ordering::SeqCst);
    for signal in (1..SIGNALS as c_int).filter(|signal| early >> (signal - 1) & 1 != 0) {
        send(Received { signal, value: None });
    }
}

/// From now on its id may become another's.
pub fn program_ended() {
    PROGRAM.store(0, Ordering::SeqCst);
    while SENDING.load(Ordering::SeqCst) != 0 {
        std::thread::yield_now();
    }
}
