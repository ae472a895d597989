//! Ends a session: at every form of exit, and at exec.
//!
//! `exit` and a return from `main` run our handler. It is registered after `cuInit`, so it runs before
//! the driver's. `_exit`, `_Exit`, `quick_exit` and the exec family run no handlers. They are interposed
//! by a few instructions that save every argument, flush, and jump to the original, so that no signature
//! (some are variadic) need be known. Every wait is bounded.
//!
//! An exec may fail, so the session does not end before it: device records are published and the exec is
//! announced. A successful exec closes the socket, and the collector then ends the process.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gputrace_producer::session::{self, Session};
use gputrace_producer::{collector_process, fork, memory, service, stderr, system, thread};
use gputrace_wire::definition::role;
use gputrace_wire::handshake::{HEAD_BYTES, TEXT_MAX, bye};

use crate::lifecycle::device_times::DEVICE_TIMES;
use crate::lifecycle::patience::Patience;
use crate::process::detour;

/// Whether the collector is our own child, so that this process prints its summary.
static BARE: AtomicBool = AtomicBool::new(false);
static REGISTERED: AtomicBool = AtomicBool::new(false);
/// The thread that is ending the session: process id in the upper half, thread id in the lower; 0 if none.
/// A forked child inherits its parent's value.
static ENDER: AtomicU64 = AtomicU64::new(0);

/// Registers the handlers that finish the session when the process ends.
pub fn register(bare: bool) {
    BARE.store(bare, Ordering::Relaxed);
    if REGISTERED.swap(true, Ordering::AcqRel) {
        return;
    }
    unsafe extern "C" {
        fn at_quick_exit(handler: extern "C" fn()) -> i32;
    }
    // SAFETY: the handlers have the right type and live as long as the process: the library is preloaded
    // and never unloaded.
    unsafe {
        libc::atexit(at_exit);
        at_quick_exit(at_exit);
    }
}

extern "C" fn at_exit() {
    finish();
}

/// Runs before an exit of any kind: publishes everything and says good-bye. In auto-collect, it also waits
/// for the outputs.
pub fn finish() {
    let Some(session) = session::current() else { return wait_for_the_ender() };
    // A vfork's child shares our memory and is about to exec or exit. The session is its parent's.
    if !session.is_ours() {
        return;
    }
    // Claimed before the session ends: a thread that finds the session ended can then find its ender.
    let (found, own) = (ENDER.load(Ordering::Acquire), this_thread());
    // A signal handler may have interrupted this same thread while it ends the session.
    let is_mine = found == own;
    let is_free = found >> 32 != own >> 32;
    let takes = || ENDER.compare_exchange(found, own, Ordering::AcqRel, Ordering::Acquire).is_ok();
    if !(is_mine || is_free && takes()) {
        return wait_for_the_ender();
    }
    // Another thread may have ended the session completely since it was loaded here.
    if session.end() {
        // This thread may be on a signal handler's stack.
        detour::run(|| end(session));
    }
    if !is_mine {
        // SYNC: pairs with the Acquire load in `wait_for_the_ender`.
        ENDER.store(0, Ordering::Release);
    }
}

fn end(session: &'static Session) {
    thread::with(|slot| {
        let inside = slot.enter();
        // Already inside: a signal handler ends the program in the middle of a call. The driver's locks that
        // the call holds stay held, and a wait for one of them never ends.
        let mut patience = if inside.is_some() { Patience::new() } else { Patience::brief() };
        let device_times = DEVICE_TIMES.get();
        // The service thread therefore flushes and reads the clocks. This thread may also be in the middle of
        // a driver call that is not hooked. The wait for the service thread is bounded.
        let asked = service::stop(device_times.finish, || patience.goes_on(record_progress(session)));
        if !asked && inside.is_some() {
            (device_times.finish)(session);
            slot.emit(session, &[session.anchor().to_cell()]);
        }
        // From here on every hook only calls its original.
        fork::set_generation(0);
        session.say_bye(bye::EXIT);
        if BARE.load(Ordering::Relaxed) {
            print_summary(session);
        }
        session.close();
    });
}

/// A number that changes while device records arrive.
fn record_progress(session: &Session) -> u64 {
    let ring = session.reserved_ring(role::DEVICE_RECORDS);
    ring.map_or(0, |(header, _)| header.head.load(Ordering::Relaxed))
}

/// The calling process and thread.
pub fn this_thread() -> u64 {
    u64::from(system::getpid().cast_unsigned()) << 32 | u64::from(system::gettid().cast_unsigned())
}

/// Waits while another thread ends the session. If this thread ended the process first, the rest of the
/// session's data would be lost.
fn wait_for_the_ender() {
    let ender = ENDER.load(Ordering::Acquire);
    if ender == 0 {
        return;
    }
    let own = this_thread();
    // A signal handler that interrupted the ending thread must not wait for it, nor a child for its parent.
    if ender >> 32 != own >> 32 || ender == own {
        return;
    }
    // No large stack is needed here, but cancellation must be held off: `_exit` is not a cancellation point.
    let _errno = stderr::KeepErrno::new();
    let _cancel = detour::KeepCancel::new();
    let mut patience = Patience::new();
    while ENDER.load(Ordering::Acquire) == ender && patience.goes_on(0) {
        system::sleep_ns(2_000_000);
    }
}

fn print_summary(session: &Session) {
    // The collector watches the process and has the shared memory. Only its answer cannot reach us.
    if session.socket().descriptor().is_none() {
        return stderr::line(&[
            b"the program closed the connection to the collector: outputs follow the program's end",
        ]);
    }
    // Mapped, not allocated: exit may run in a signal handler that interrupted malloc.
    let Some(buffer) = memory::map_bytes(HEAD_BYTES + TEXT_MAX) else {
        return stderr::line(&[b"no memory to wait for the collector: outputs follow the program's end"]);
    };
    // SAFETY: the mapping is that long, and ours alone.
    let packet = unsafe { core::slice::from_raw_parts_mut(buffer, HEAD_BYTES + TEXT_MAX) };
    let mut patience = Patience::new();
    match session.wait_for_done(|| patience.goes_on(collector_process::signs_of_life()), packet) {
        Some(summary) => stderr::raw(summary),
        None => stderr::line(&[
            b"the collector did not finish in time or is gone: run `gputrace report` on its trace file",
        ]),
    }
}

/// Runs before an exec of any kind.
pub fn before_exec() {
    if let Some(session) = session::current() {
        // A vfork's child shares our memory and is about to exec. The session is its parent's.
        if !session.is_ours() {
            return;
        }
        // The stack may be a signal handler's.
        detour::run(|| publish(session));
    }
    wait_for_the_ender();
}

/// Publishes the device records that exist, and announces the exec.
fn publish(session: &'static Session) {
    thread::with(|slot| {
        let inside = slot.enter();
        let mut patience = if inside.is_some() { Patience::new() } else { Patience::brief() };
        // The newest record of a buffer is published once it was complete at the previous turn, hence two
        // flushes. They are not forced: a forced flush would cut the records of running kernels, which go on
        // if the exec fails.
        for _ in 0..2 {
            let has_thread = service::flush(session, || patience.goes_on(record_progress(session)));
            if !has_thread && inside.is_some() {
                (DEVICE_TIMES.get().turn)(session);
            }
        }
        session.announce_exec();
    });
}
