//! What threads keep of their last walks. A thread takes one of a session's at its first stack and gives it
//! back when it ends. A thread that finds none free goes without, and its walks take longer.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};

use gputrace_producer::memory::{self, Zeroed, prefetch};

use crate::native::last_walk::LastNativeWalk;
use crate::python::last_walk::LastPythonWalk;

/// Threads that launch at the same time. 24 KiB each, touched where used.
const THREADS_MAX: usize = 64;

pub struct KeptWalks {
    is_taken: AtomicU32,
    python: UnsafeCell<LastPythonWalk>,
    native: UnsafeCell<LastNativeWalk>,
}

// SAFETY: what is in the cells is touched by the thread that took them.
unsafe impl Sync for KeptWalks {}
// SAFETY: all of it is numbers.
unsafe impl Zeroed for KeptWalks {}

/// Those of a session.
pub fn new() -> Option<&'static [KeptWalks]> {
    memory::map(THREADS_MAX)
}

/// Takes one that is free, for the calling thread.
pub fn take(all: &'static [KeptWalks]) -> Option<&'static KeptWalks> {
    // SYNC: pairs with the Release in `give_back`: this thread's writes come after those of the one before.
    let takes = |walks: &&KeptWalks| {
        walks.is_taken.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    };
    all.iter().find(takes)
}

impl KeptWalks {
    /// The Python frames of the thread's last walk.
    ///
    /// # Safety
    ///
    /// The caller is the thread that took this, inside the guard of a hook, and has no other such reference.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn python(&self) -> &mut LastPythonWalk {
        // SAFETY: the caller's guarantee.
        unsafe { &mut *self.python.get() }
    }

    /// The native frames of the thread's last walk.
    ///
    /// # Safety
    ///
    /// As for [`python`](KeptWalks::python).
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn native(&self) -> &mut LastNativeWalk {
        // SAFETY: the caller's guarantee.
        unsafe { &mut *self.native.get() }
    }

    /// Prefetches what a walk reads first.
    #[inline(always)]
    pub fn expect(&self) {
        prefetch(&self.python);
    }

    pub fn give_back(&self) {
        // SYNC: pairs with the Acquire in `take`.
        self.is_taken.store(0, Ordering::Release);
    }
}
