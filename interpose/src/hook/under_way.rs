//! Launches of kernels under way, counted while CUPTI does not call back at them yet.
//!
//! In a session that begins paused the callbacks go on later
//! ([`launch_callbacks`](crate::cupti::launch_callbacks)), at a moment without a launch. A launch that comes
//! in that moment waits. From then on none is counted
//! ([`HookState::counts_under_way`](gputrace_producer::hook_state::HookState::counts_under_way)).

use core::sync::atomic::{AtomicU32, Ordering};

use gputrace_producer::{clock, fork, system};

use crate::symbols::entry::Entry;

/// The number of launches under way; the top bit is set while none may begin.
#[inline(always)]
fn launches() -> &'static AtomicU32 {
    &fork::of_process().vendor_launches.0
}
const CLOSED: u32 = 1 << 31;
/// The longest wait of a launch: longer than anybody closes on purpose.
const WAIT_MOST_NS: u64 = 1_000_000_000;
const WAIT_STEP_NS: u64 = 20_000;

/// Called before the session's first call. A forked child has none of its parent's launches.
pub fn begin_session() {
    launches().store(0, Ordering::Relaxed);
}

/// A launch is under way for as long as this lives, also where its thread ends within it. One that is left by
/// `longjmp` stays counted.
pub struct CountedLaunch(());

/// To be called before a launch.
#[inline(always)]
pub fn begins() -> CountedLaunch {
    // SYNC: Acquire: the launch comes after callbacks that were enabled before (Release of `Closed`).
    if launches().fetch_add(1, Ordering::Acquire) & CLOSED != 0 {
        wait();
    }
    CountedLaunch(())
}

/// The same before any call; `None` if it launches no kernel.
#[cold]
#[inline(never)]
pub fn begins_if_launch(entry: &Entry) -> Option<CountedLaunch> {
    entry.launches_kernels().then(begins)
}

impl Drop for CountedLaunch {
    #[inline(always)]
    fn drop(&mut self) {
        // SYNC: Release: callbacks that are enabled from now on come after the launch.
        launches().fetch_sub(1, Ordering::Release);
    }
}

#[cold]
#[inline(never)]
fn wait() {
    let deadline_ns = clock::monotonic_ns() + WAIT_MOST_NS;
    loop {
        drop(CountedLaunch(()));
        while launches().load(Ordering::Relaxed) & CLOSED != 0 && clock::monotonic_ns() < deadline_ns {
            system::yield_now();
        }
        let found = launches().fetch_add(1, Ordering::Acquire);
        if found & CLOSED == 0 {
            return;
        }
        if clock::monotonic_ns() >= deadline_ns {
            // The thread that closed has left by `longjmp`. Others' launches need not wait too.
            launches().fetch_and(!CLOSED, Ordering::Release);
            return;
        }
    }
}

/// While it lives, new launches wait, a second at most. None was under way as it closed if
/// [`Closed::is_quiet`].
pub struct Closed {
    pub is_quiet: bool,
}

/// Keeps launches from beginning, and waits for those under way to return, for so long at most. One thread at
/// a time may call this.
pub fn close(patience_ns: u64) -> Closed {
    let deadline_ns = clock::monotonic_ns() + patience_ns;
    launches().fetch_or(CLOSED, Ordering::AcqRel);
    // SYNC: pairs with the Release of `CountedLaunch`.
    while launches().load(Ordering::Acquire) != CLOSED {
        if clock::monotonic_ns() >= deadline_ns {
            return Closed { is_quiet: false };
        }
        system::sleep_ns(WAIT_STEP_NS);
    }
    Closed { is_quiet: true }
}

impl Drop for Closed {
    fn drop(&mut self) {
        launches().fetch_and(!CLOSED, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    /// The count is the process's, so one test covers all cases in order.
    #[test]
    fn launches_and_the_moment_without_them_exclude_each_other() {
        let launch = begins();
        assert!(!close(1_000_000).is_quiet, "a launch is under way");
        drop(launch);
        assert!(close(0).is_quiet, "and launches may begin again after either");
        let [is_closed, is_over, had_begun] = [const { AtomicBool::new(false) }; 3];
        let mut were_quiet = 0;
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        let _launch = begins();
                        if is_closed.load(Ordering::SeqCst) {
                            had_begun.store(true, Ordering::Relaxed);
                        }
                        std::hint::spin_loop();
                    }
                });
            }
            for _ in 0..200 {
                let closed = close(WAIT_MOST_NS);
                were_quiet += u32::from(closed.is_quiet);
                is_closed.store(true, Ordering::SeqCst);
                thread::yield_now();
                is_closed.store(false, Ordering::SeqCst);
                drop(closed);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!((were_quiet, had_begun.into_inner()), (200, false));
        assert_eq!(launches().load(Ordering::Relaxed), 0);
        core::mem::forget(close(0));
        drop(begins());
        assert_eq!(launches().load(Ordering::Relaxed), 0, "a launch opens what its owner has left");
    }
}
