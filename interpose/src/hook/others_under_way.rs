//! Copies, fills and launches of graphs under way, counted while CUPTI has no subscriber yet.
//!
//! The same as [`under_way`](super::under_way) for launches of kernels, and for the same reason. These calls
//! are rarer, so that one count by locked instructions serves all threads.

use core::sync::atomic::{AtomicU32, Ordering};

use gputrace_producer::{clock, system};

/// How many are under way; the top bit is set while none may begin.
static COUNT: AtomicU32 = AtomicU32::new(0);
const CLOSED: u32 = 1 << 31;
/// The longest wait of a call: longer than anybody closes on purpose.
const WAIT_MOST_NS: u64 = 1_000_000_000;
const WAIT_STEP_NS: u64 = 20_000;

/// Called before the first call of a session that begins paused. A forked child has none of its parent's
/// calls.
pub fn begin_session() {
    COUNT.store(0, Ordering::Relaxed);
}

/// A call is under way for as long as this lives, also where its thread ends within it. One that is left by
/// `longjmp` stays counted.
pub struct CountedCall(());

/// To be called before such a call.
pub fn begins() -> CountedCall {
    let call = CountedCall(());
    // SYNC: Acquire: the call comes after callbacks that were enabled before (Release of `OthersClosed`).
    if COUNT.fetch_add(1, Ordering::Acquire) & CLOSED != 0 {
        call.wait();
    }
    call
}

impl CountedCall {
    fn wait(&self) {
        let deadline_ns = clock::monotonic_ns() + WAIT_MOST_NS;
        loop {
            remove();
            while COUNT.load(Ordering::Relaxed) & CLOSED != 0 && clock::monotonic_ns() < deadline_ns {
                system::sleep_ns(WAIT_STEP_NS);
            }
            if COUNT.fetch_add(1, Ordering::Acquire) & CLOSED == 0 {
                return;
            }
            if clock::monotonic_ns() >= deadline_ns {
                // The thread that closed has left by `longjmp`. Others' calls need not wait too.
                COUNT.fetch_and(!CLOSED, Ordering::Release);
                return;
            }
        }
    }
}

/// SYNC: Release: callbacks that are enabled from now on come after the call.
fn remove() {
    COUNT.fetch_sub(1, Ordering::Release);
}

impl Drop for CountedCall {
    fn drop(&mut self) {
        remove();
    }
}

/// While it lives, new calls wait, a second at most. None was under way as it closed if
/// [`OthersClosed::is_quiet`].
pub struct OthersClosed {
    pub is_quiet: bool,
}

/// Keeps calls from beginning, and waits for those under way to return, for so long at most. One thread at a
/// time may call this.
pub fn close(patience_ns: u64) -> OthersClosed {
    let deadline_ns = clock::monotonic_ns() + patience_ns;
    COUNT.fetch_or(CLOSED, Ordering::AcqRel);
    // SYNC: Acquire pairs with the Release of `remove`.
    while COUNT.load(Ordering::Acquire) != CLOSED {
        if clock::monotonic_ns() >= deadline_ns {
            return OthersClosed { is_quiet: false };
        }
        system::sleep_ns(WAIT_STEP_NS);
    }
    OthersClosed { is_quiet: true }
}

impl Drop for OthersClosed {
    fn drop(&mut self) {
        COUNT.fetch_and(!CLOSED, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicBool;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    /// The count is the process's, so one test covers all cases in order.
    #[test]
    fn calls_and_the_moment_without_them_exclude_each_other() {
        begin_session();
        let call = begins();
        assert!(!close(1_000_000).is_quiet, "a call is under way");
        drop(call);
        assert!(close(0).is_quiet, "and calls may begin again after either");
        let [is_exclusive, is_over, had_begun] = [const { AtomicBool::new(false) }; 3];
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        let _call = begins();
                        if is_exclusive.load(Ordering::SeqCst) {
                            had_begun.store(true, Ordering::Relaxed);
                        }
                    }
                });
            }
            for _ in 0..200 {
                let closed = close(WAIT_MOST_NS);
                assert!(closed.is_quiet);
                is_exclusive.store(true, Ordering::SeqCst);
                thread::yield_now();
                is_exclusive.store(false, Ordering::SeqCst);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert!(!had_begun.into_inner());
        core::mem::forget(close(0));
        let begin = Instant::now();
        drop(begins());
        assert!(begin.elapsed() >= Duration::from_nanos(WAIT_MOST_NS), "a second at most");
        assert_eq!(COUNT.load(Ordering::Relaxed), 0, "a call opens what its owner has left");
    }
}
