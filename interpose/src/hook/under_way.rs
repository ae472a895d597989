//! Calls under way whose work makes device records, counted while CUPTI does not call back at them yet.
//!
//! A session that begins paused has CUPTI call back at launches only once it goes on: the callbacks cost a
//! launch some 0.4 µs. But a thread that is inside a call as that call's callback goes on gets the call's
//! correlation id for all its later calls too (seen with CUPTI 13.0). So until then such calls are counted
//! ([`HookState::counts_under_way`](gputrace_producer::hook_state::HookState::counts_under_way)), and the
//! callbacks go on at a moment without any. A call that comes in that moment waits. Launches are counted in
//! every pause.

use core::sync::atomic::{AtomicU32, Ordering};

use gputrace_producer::{clock, system};

use crate::symbols::entry::Entry;

/// The number of calls under way; the top bit is set while they may not begin.
static CALLS: AtomicU32 = AtomicU32::new(0);
const CLOSED: u32 = 1 << 31;
/// The longest wait of a call. The callbacks take a few milliseconds.
const WAIT_MOST_NS: u64 = 1_000_000_000;
const WAIT_STEP_NS: u64 = 20_000;

/// Called before the session's first call. A forked child has none of its parent's calls.
pub fn begin_session() {
    CALLS.store(0, Ordering::Relaxed);
}

/// To be called before a launch.
#[inline(always)]
pub fn begins() {
    // SYNC: Acquire: the call comes after callbacks that were enabled before (Release of `Closed`).
    if CALLS.fetch_add(1, Ordering::Acquire) & CLOSED != 0 {
        wait();
    }
}

/// The same before any call; false if its work makes no device records.
#[cold]
#[inline(never)]
pub fn begins_if_recorded(entry: &Entry) -> bool {
    let is_recorded = entry.makes_records();
    if is_recorded {
        begins();
    }
    is_recorded
}

/// To be called once it has returned.
#[inline(always)]
pub fn ends() {
    // SYNC: Release: callbacks that are enabled from now on come after the call.
    CALLS.fetch_sub(1, Ordering::Release);
}

#[cold]
#[inline(never)]
fn wait() {
    let deadline_ns = clock::monotonic_ns() + WAIT_MOST_NS;
    loop {
        ends();
        while CALLS.load(Ordering::Relaxed) & CLOSED != 0 && clock::monotonic_ns() < deadline_ns {
            system::yield_now();
        }
        let found = CALLS.fetch_add(1, Ordering::Acquire);
        if found & CLOSED == 0 || clock::monotonic_ns() >= deadline_ns {
            return;
        }
    }
}

/// No such call is under way, and none begins, for as long as this lives.
pub struct Closed(());

/// Waits for calls under way to return, for so long at most; `None` if one has not. One thread at a time may
/// call this.
pub fn close(patience_ns: u64) -> Option<Closed> {
    let deadline_ns = clock::monotonic_ns() + patience_ns;
    CALLS.fetch_or(CLOSED, Ordering::AcqRel);
    let closed = Closed(());
    // SYNC: pairs with the Release of `ends`.
    while CALLS.load(Ordering::Acquire) != CLOSED {
        if clock::monotonic_ns() >= deadline_ns {
            return None;
        }
        system::sleep_ns(WAIT_STEP_NS);
    }
    Some(closed)
}

impl Drop for Closed {
    fn drop(&mut self) {
        CALLS.fetch_and(!CLOSED, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    /// The count is the process's, so one test covers all cases in order.
    #[test]
    fn calls_and_the_moment_without_them_exclude_each_other() {
        begins();
        assert!(close(1_000_000).is_none(), "a call is under way");
        ends();
        assert!(close(0).is_some(), "and the gate is open again after either");
        let (is_closed, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        begins();
                        assert!(!is_closed.load(Ordering::SeqCst));
                        std::hint::spin_loop();
                        ends();
                    }
                });
            }
            for _ in 0..200 {
                let closed = close(WAIT_MOST_NS).unwrap();
                is_closed.store(true, Ordering::SeqCst);
                thread::yield_now();
                is_closed.store(false, Ordering::SeqCst);
                drop(closed);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(CALLS.load(Ordering::Relaxed), 0);
    }
}
