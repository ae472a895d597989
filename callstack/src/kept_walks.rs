//! What threads keep of their last walks. A thread takes one of a session's at its first stack and gives it back when
//! it ends; a thread that finds none free goes without, and its walks take longer.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};

use gputrace_producer::memory::{self, Zeroed};
use gputrace_producer::thread::Slot;

use crate::python::last_walk::LastWalk;
use crate::stack_slot::{CALLBACKS, StackSlot};

/// Threads that launch at the same time. 8 KiB each, touched where used.
const THREADS_MAX: usize = 64;

pub struct KeptWalks {
    is_taken: AtomicU32,
    python: UnsafeCell<LastWalk>,
}

// SAFETY: what is in the cell is touched by the thread that took it.
unsafe impl Sync for KeptWalks {}
// SAFETY: all of it is numbers.
unsafe impl Zeroed for KeptWalks {}

/// Those of a session.
pub fn new() -> Option<&'static [KeptWalks]> {
    memory::map(THREADS_MAX)
}

impl KeptWalks {
    /// The calling thread's, whose slot that is.
    #[inline(always)]
    pub fn of_this_thread<'s>(all: &'static [KeptWalks], slot: &'s Slot) -> Option<&'s KeptWalks> {
        let state = StackSlot::of(slot);
        state.walks.get().or_else(|| if state.has_no_walks.get() { None } else { take(all, slot) })
    }

    /// The Python frames of the thread's last walk.
    ///
    /// # Safety
    ///
    /// The caller is the thread that took this, inside the guard of a hook, and has no other such reference.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn python(&self) -> &mut LastWalk {
        // SAFETY: the caller's guarantee.
        unsafe { &mut *self.python.get() }
    }

    pub fn give_back(&self) {
        // SYNC: pairs with the Acquire in `take`: the next thread's writes come after this one's.
        self.is_taken.store(0, Ordering::Release);
    }
}

#[cold]
#[inline(never)]
fn take(all: &'static [KeptWalks], slot: &Slot) -> Option<&'static KeptWalks> {
    let state = StackSlot::of(slot);
    let free = all.iter().find(|walks| {
        walks.is_taken.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    });
    state.walks.set(free);
    state.has_no_walks.set(free.is_none());
    if free.is_some() {
        slot.set_callbacks(&CALLBACKS);
    }
    free
}
