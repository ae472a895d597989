//! One word that every entry looks at first.
//!
//! An ordinary call of an initialised, untraced process reads it once and goes
//! on; everything unusual is a bit here.

use std::sync::atomic::{AtomicU32, Ordering};

/// `cuInit` has succeeded.
pub const INITIALISED: u32 = 1;
/// This process is a child that was forked after `cuInit`: nothing works here.
pub const FORKED: u32 = 2;
/// `GPUTRACE_SIM_FAIL` names at least one function.
pub const FAILURES: u32 = 4;
/// CUPTI wants to be called on some function.
pub const CALLBACKS: u32 = 8;
/// CUPTI wants records of some kind.
pub const ACTIVITY: u32 = 16;
/// A kernel faulted, or will.
pub const FAULTED: u32 = 32;

static STATUS: AtomicU32 = AtomicU32::new(0);

/// The bits as they are now. Relaxed: each bit guards data with its own synchronisation.
#[inline]
pub fn read() -> u32 {
    STATUS.load(Ordering::Relaxed)
}

/// Sets or clears bits.
pub fn set(bits: u32, on: bool) {
    if on {
        STATUS.fetch_or(bits, Ordering::Relaxed);
    } else {
        STATUS.fetch_and(!bits, Ordering::Relaxed);
    }
}

extern "C" fn in_forked_child() {
    set(FORKED, true);
}

/// Makes children that are forked from now on know it: the lock may be held and the worker is gone there.
pub fn watch_for_fork() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler only stores to an atomic, which is allowed after fork.
        unsafe { libc::pthread_atfork(None, None, Some(in_forked_child)) };
    });
}
