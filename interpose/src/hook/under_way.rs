//! Calls under way whose work makes device records, counted while CUPTI does not call back at them yet.
//!
//! In a session that begins paused the callbacks go on later
//! ([`launch_callbacks`](crate::cupti::launch_callbacks)), at a moment without such a call. One that comes in
//! that moment waits. Launches of the short way are counted in every pause, all other calls only until the
//! session first goes on
//! ([`HookState::counts_under_way`](gputrace_producer::hook_state::HookState::counts_under_way)).

use core::sync::atomic::{AtomicU32, Ordering};

use gputrace_producer::{clock, system};

use crate::symbols::entry::Entry;

/// Calls of one sort.
pub struct Calls {
    /// How many are under way; the top bit is set while none may begin.
    count: AtomicU32,
}

/// Launches of kernels. They return soon.
pub static LAUNCHES: Calls = Calls::new();
/// Copies, fills and launches of graphs. A copy may wait for the device.
pub static OTHERS: Calls = Calls::new();

const CLOSED: u32 = 1 << 31;
/// The longest wait of a call: longer than anybody closes on purpose.
const WAIT_MOST_NS: u64 = 1_000_000_000;
const WAIT_STEP_NS: u64 = 20_000;

/// Called before the session's first call. A forked child has none of its parent's calls.
pub fn begin_session() {
    LAUNCHES.count.store(0, Ordering::Relaxed);
    OTHERS.count.store(0, Ordering::Relaxed);
}

/// To be called before any call; `None` if its work makes no records.
#[cold]
#[inline(never)]
pub fn begins(entry: &Entry) -> Option<Counted> {
    let calls = if entry.launches_kernels() { &LAUNCHES } else { &OTHERS };
    entry.makes_records().then(|| calls.begins())
}

/// A call is under way for as long as this lives, also where its thread ends within it. One that is left by
/// `longjmp` stays counted.
pub struct Counted(&'static Calls);

impl Drop for Counted {
    #[inline(always)]
    fn drop(&mut self) {
        // SYNC: Release: callbacks that are enabled from now on come after the call.
        self.0.count.fetch_sub(1, Ordering::Release);
    }
}

impl Calls {
    const fn new() -> Calls {
        Calls { count: AtomicU32::new(0) }
    }

    /// To be called before one of them.
    #[inline(always)]
    pub fn begins(&'static self) -> Counted {
        // SYNC: Acquire: the call comes after callbacks that were enabled before (Release of `Closed`).
        if self.count.fetch_add(1, Ordering::Acquire) & CLOSED != 0 {
            self.wait();
        }
        Counted(self)
    }

    #[cold]
    #[inline(never)]
    fn wait(&'static self) {
        let deadline_ns = clock::monotonic_ns() + WAIT_MOST_NS;
        loop {
            drop(Counted(self));
            while self.count.load(Ordering::Relaxed) & CLOSED != 0 && clock::monotonic_ns() < deadline_ns {
                system::yield_now();
            }
            let found = self.count.fetch_add(1, Ordering::Acquire);
            if found & CLOSED == 0 {
                return;
            }
            if clock::monotonic_ns() >= deadline_ns {
                // Who closed was left by `longjmp`. Others' calls need not wait too.
                self.count.fetch_and(!CLOSED, Ordering::Release);
                return;
            }
        }
    }

    /// Keeps them from beginning, and waits for those under way to return, for so long at most. One thread at
    /// a time may call this.
    pub fn close(&'static self, patience_ns: u64) -> Closed {
        let deadline_ns = clock::monotonic_ns() + patience_ns;
        self.count.fetch_or(CLOSED, Ordering::AcqRel);
        // SYNC: pairs with the Release of `Counted`.
        while self.count.load(Ordering::Acquire) != CLOSED {
            if clock::monotonic_ns() >= deadline_ns {
                return Closed { calls: self, is_quiet: false };
            }
            system::sleep_ns(WAIT_STEP_NS);
        }
        Closed { calls: self, is_quiet: true }
    }
}

/// While it lives, no such call begins, and none is under way if [`Closed::is_quiet`].
pub struct Closed {
    calls: &'static Calls,
    pub is_quiet: bool,
}

impl Drop for Closed {
    fn drop(&mut self) {
        self.calls.count.fetch_and(!CLOSED, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    #[test]
    fn calls_and_the_moment_without_them_exclude_each_other() {
        static CALLS: Calls = Calls::new();
        let call = CALLS.begins();
        assert!(!CALLS.close(1_000_000).is_quiet, "a call is under way");
        drop(call);
        assert!(CALLS.close(0).is_quiet, "and calls may begin again after either");
        let [is_closed, is_over, had_begun] = [const { AtomicBool::new(false) }; 3];
        let mut were_quiet = 0;
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        let _call = CALLS.begins();
                        if is_closed.load(Ordering::SeqCst) {
                            had_begun.store(true, Ordering::Relaxed);
                        }
                        std::hint::spin_loop();
                    }
                });
            }
            for _ in 0..200 {
                let closed = CALLS.close(WAIT_MOST_NS);
                were_quiet += u32::from(closed.is_quiet);
                is_closed.store(true, Ordering::SeqCst);
                thread::yield_now();
                is_closed.store(false, Ordering::SeqCst);
                drop(closed);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!((were_quiet, had_begun.into_inner()), (200, false));
        assert_eq!(CALLS.count.load(Ordering::Relaxed), 0);
        core::mem::forget(CALLS.close(0));
        drop(CALLS.begins());
        assert_eq!(CALLS.count.load(Ordering::Relaxed), 0, "a call opens what its owner has left");
    }

    #[test]
    fn calls_are_counted_by_what_they_do() {
        let of =
            |symbol| begins(crate::api::by_symbol(symbol).unwrap()).map(|counted| counted.0 as *const Calls);
        assert_eq!(of(b"cuLaunchKernel"), Some(&raw const LAUNCHES));
        assert_eq!(of(b"cuMemcpyDtoH_v2"), Some(&raw const OTHERS));
        assert_eq!(of(b"cuGraphLaunch"), Some(&raw const OTHERS));
        assert_eq!(of(b"cuStreamSynchronize"), None);
    }
}
