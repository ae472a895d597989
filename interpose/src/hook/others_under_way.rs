//! Copies, fills and launches of graphs under way, counted while a session is paused from its begin and CUPTI
//! does not call back at launches yet.
//!
//! The same as [`under_way`](super::under_way) for launches of kernels, and for the same reason. These calls
//! are rarer, so that one count by locked instructions serves all threads.

use core::sync::atomic::{AtomicU32, Ordering};

use gputrace_producer::{clock, system};

use super::under_way;

/// How many are under way; the top bit is set while none may begin.
static COUNT: AtomicU32 = AtomicU32::new(0);
const CLOSED: u32 = 1 << 31;
/// How many have waited.
static WAITED: AtomicU32 = AtomicU32::new(0);

/// How long [`close`] waits at most before it makes new calls wait.
const WAIT_FREE_NS: u64 = 60_000_000;
/// How long after closing it waits for those under way, if no new call waits.
const WAIT_CLOSED_NS: u64 = 100_000_000;
/// The same, if a new call waits.
const OTHERS_WAIT_NS: u64 = 20_000_000;
const WAIT_STEP_NS: u64 = 20_000;

/// Called before the first call of a session that begins paused. Sets the count to 0: a forked child inherits
/// its parent's count, but not its calls.
pub fn begin_session() {
    COUNT.store(0, Ordering::Relaxed);
}

/// A call is counted for as long as this lives. If its thread ends by unwinding out of the call, this is
/// dropped, and the call is no longer counted. A call that is left by `longjmp` stays counted.
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
    #[cold]
    #[inline(never)]
    fn wait(&self) {
        WAITED.fetch_add(1, Ordering::Relaxed);
        under_way::wait_until_open(
            || COUNT.load(Ordering::Relaxed) & CLOSED != 0,
            |is_counted| {
                if is_counted {
                    COUNT.fetch_add(1, Ordering::Acquire);
                } else {
                    remove();
                }
            },
            || _ = COUNT.fetch_and(!CLOSED, Ordering::Release),
        );
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

/// While it lives, new calls wait, until one has waited for a second: that one lets all begin. If
/// [`OthersClosed::is_quiet`], every call that was under way had returned as this was made.
pub struct OthersClosed {
    pub is_quiet: bool,
}

/// Waits for a moment without a call, a bounded time; then makes new calls wait in any case, and waits, again
/// a bounded time, for those still under way. These times are short: a call under way may wait for the device
/// for long, and other threads' calls should not be held up much for it. One thread at a time may call this.
pub fn close() -> OthersClosed {
    let free_until_ns = clock::monotonic_ns() + WAIT_FREE_NS;
    while COUNT.load(Ordering::Relaxed) != 0 && clock::monotonic_ns() < free_until_ns {
        system::sleep_ns(WAIT_STEP_NS);
    }
    let waited = WAITED.load(Ordering::Relaxed);
    COUNT.fetch_or(CLOSED, Ordering::AcqRel);
    let closed_ns = clock::monotonic_ns();
    // SYNC: Acquire pairs with the Release of `remove`.
    while COUNT.load(Ordering::Acquire) != CLOSED {
        let does_one_wait = WAITED.load(Ordering::Relaxed) != waited;
        let patience_ns = if does_one_wait { OTHERS_WAIT_NS } else { WAIT_CLOSED_NS };
        if clock::monotonic_ns() - closed_ns >= patience_ns {
            return OthersClosed { is_quiet: false };
        }
        system::sleep_ns(WAIT_STEP_NS);
    }
    OthersClosed { is_quiet: true }
}

impl OthersClosed {
    /// Whether new calls are still made to wait: not if one has waited for a second.
    pub fn are_held(&self) -> bool {
        COUNT.load(Ordering::Relaxed) & CLOSED != 0
    }
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
        let begin = Instant::now();
        let closed = close();
        assert!(!closed.is_quiet && closed.are_held(), "a call is under way");
        assert!(begin.elapsed() >= Duration::from_nanos(WAIT_FREE_NS + WAIT_CLOSED_NS));
        drop((closed, call));
        assert!(close().is_quiet, "and calls may begin again after either");
        others_do_not_wait_for_one_that_does_not_return();
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
                let closed = close();
                is_exclusive.store(closed.is_quiet, Ordering::SeqCst);
                thread::yield_now();
                is_exclusive.store(false, Ordering::SeqCst);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert!(!had_begun.into_inner());
        core::mem::forget(close());
        let begin = Instant::now();
        drop(begins());
        assert!(begin.elapsed() >= Duration::from_secs(1), "a second at most");
        assert_eq!(COUNT.load(Ordering::Relaxed), 0, "a call opens what its owner has left");
    }

    /// The shortest of some waits: the machine may be busy.
    fn others_do_not_wait_for_one_that_does_not_return() {
        let call = begins();
        let wait = |_| {
            thread::scope(|scope| {
                let waits = scope.spawn(|| {
                    while COUNT.load(Ordering::Relaxed) & CLOSED == 0 {
                        thread::yield_now();
                    }
                    let begin = Instant::now();
                    drop(begins());
                    begin.elapsed()
                });
                assert!(!close().is_quiet);
                waits.join().unwrap()
            })
        };
        let shortest = (0..5).map(wait).min();
        assert!(shortest < Some(Duration::from_nanos(WAIT_CLOSED_NS)), "{shortest:?}");
        drop(call);
    }
}
