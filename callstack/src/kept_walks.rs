//! What threads keep of their last native walks. A thread takes one of a session's at its first stack and
//! gives it back when it ends. A thread that finds none free goes without, and its walks take longer.
//!
//! Programs launch from the same call sites in the same order over and over, and the stack cache knows which
//! stack probably comes next ([`crate::recent`]). So a thread keeps not one walk but several, by the stack
//! that was expected: the one before the launch is mostly of that very stack.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};

use gputrace_producer::memory::{self, Zeroed, prefetch_at};

use crate::native::last_walk::{FoundFrames, LastNativeWalk};

/// Threads that launch at the same time. 250 KiB each, touched where used.
const THREADS_MAX: usize = 32;
/// How many walks a thread keeps. A layer of a model launches some fifteen kernels.
const WALKS: usize = 32;

pub struct KeptWalks {
    is_taken: AtomicU32,
    native: UnsafeCell<[LastNativeWalk; WALKS]>,
    found_frames: UnsafeCell<FoundFrames>,
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
    let taken = all.iter().find(takes)?;
    // SAFETY: this thread has just taken it.
    unsafe { &mut *taken.found_frames.get() }.begin_turn();
    Some(taken)
}

impl KeptWalks {
    /// The frames of the last walk that was expected to be of that stack, and a buffer.
    ///
    /// # Safety
    ///
    /// The caller is the thread that took this, inside the guard of a hook, and has no other such reference.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn native(&self, expected: u32) -> Option<(&mut LastNativeWalk, &mut FoundFrames)> {
        // SAFETY: the caller's guarantee.
        let (walks, found) = unsafe { (&mut *self.native.get(), &mut *self.found_frames.get()) };
        Some((walks.get_mut(index(expected))?, found))
    }

    /// Prefetches where the walk begins.
    #[inline(always)]
    pub fn expect(&self, expected: u32) {
        let native: *const LastNativeWalk = self.native.get().cast();
        prefetch_at(native.wrapping_add(index(expected)).addr() as u64);
    }

    pub fn give_back(&self) {
        // SYNC: pairs with the Acquire in `take`.
        self.is_taken.store(0, Ordering::Release);
    }
}

#[inline(always)]
fn index(expected: u32) -> usize {
    (expected.wrapping_mul(0x9e37_79b9) >> 27) as usize
}

const _: () = assert!(WALKS == 1 << (32 - 27));
