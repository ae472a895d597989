//! Launches of kernels under way, counted while CUPTI does not call back at them yet.
//!
//! In a session that begins paused the callbacks are turned on later
//! ([`launch_callbacks`](crate::cupti::launch_callbacks)), while no launch is under way. Launches that come
//! meanwhile wait. Afterwards launches are no longer counted here
//! ([`HookState::counts_under_way`](gputrace_producer::hook_state::HookState::counts_under_way)).
//!
//! Launches are frequent and closing is rare, so a launch does as little as can be: it stores to a cache line
//! of its own thread, and then reads whether it must wait. No locked instruction keeps the store before the
//! read, since the core would wait there until all its stores are done. (Threads beyond [`COUNTS_LEN`] share
//! a line, by locked instructions.) Instead [`close`] has all threads pass a barrier: after it, `close` sees
//! a thread's launch, or the thread sees that it must wait. Where there is no barrier to be had, `close`
//! sleeps for far longer than a store takes until it is seen.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, compiler_fence};

use gputrace_producer::thread::Slot;
use gputrace_producer::{clock, fork, system};

use super::others_under_way::{self, CountedCall};
use crate::symbols::entry::Entry;
use crate::table::cuda_slot::CudaSlot;

/// How many launches are under way: 1 or 0 of one thread, any number in [`SHARED`].
#[repr(align(64))]
struct Count(AtomicU32);

/// A process has few threads that launch. The first ones have a count each, and keep it; those that come
/// later share one, by locked instructions.
const COUNTS_LEN: usize = 32;
static COUNTS: [Count; COUNTS_LEN] = [const { Count(AtomicU32::new(0)) }; COUNTS_LEN];
static SHARED: Count = Count(AtomicU32::new(0));
/// How many threads have come.
static TAKEN: AtomicU32 = AtomicU32::new(0);

/// Whether no launch may begin.
#[inline(always)]
fn is_closed() -> &'static AtomicBool {
    &fork::of_process().vendor_closed
}

/// The longest wait of a launch: longer than anybody closes on purpose.
const WAIT_MOST_NS: u64 = 1_000_000_000;
const WAIT_STEP_NS: u64 = 20_000;
/// A store is seen by other cores within microseconds, and at the latest as its thread leaves its core.
const STORES_ARE_SEEN_NS: u64 = 10_000_000;

/// Called before the first call of a session that begins paused. Sets all counts to 0: a forked child
/// inherits its parent's counts, but not its launches.
pub fn begin_session() {
    TAKEN.store(0, Ordering::Relaxed);
    for count in COUNTS.iter().chain([&SHARED]) {
        count.0.store(0, Ordering::Relaxed);
    }
}

/// To be called before a launch of the session of this generation, where [`launch_begins_on_own`] was not
/// called or returned false. It may wait. A launch stays counted until [`launch_ended`]. If that is never
/// called (the launch was left by `longjmp`, or its thread ended in it and no [`CountedLaunch`] was
/// dropped), [`close`] waits for it in vain: until the thread's next launch, or always where the thread has
/// no count of its own.
pub fn launch_begins(slot: &Slot, generation: u32) {
    let vendor = CudaSlot::of(slot);
    let index = own_index(slot, generation).unwrap_or_else(|| take(slot, generation));
    vendor.counted_in.set(index + 1);
    add(index);
    // SYNC: the count must be stored before `is_closed` is read. This fence is for the compiler only; for the
    // core the barrier in `close` stands in for one. Acquire: pairs with the Release as `Closed` is dropped,
    // so that the launch comes after callbacks that were enabled before that.
    compiler_fence(Ordering::SeqCst);
    if is_closed().load(Ordering::Acquire) {
        wait(index);
    }
}

/// Counts a launch of a thread that has a count of its own. False if the thread has none, or if launches must
/// wait (the launch is counted already then). If false, [`launch_begins`] is to be called.
#[inline(always)]
pub fn launch_begins_on_own(slot: &Slot, generation: u32) -> bool {
    let Some(index) = own_index(slot, generation) else { return false };
    let Some(count) = COUNTS.get(index as usize) else { return false };
    CudaSlot::of(slot).counted_in.set(index + 1);
    count.0.store(1, Ordering::Relaxed);
    // SYNC: as in `launch_begins`.
    compiler_fence(Ordering::SeqCst);
    !is_closed().load(Ordering::Acquire)
}

/// To be called after the thread's launch, whether it was counted or not.
#[inline(always)]
pub fn launch_ended(slot: &Slot) {
    if let Some(index) = CudaSlot::of(slot).counted_in.take().checked_sub(1) {
        remove(index);
    }
}

/// A launch is counted for as long as this lives. If its thread ends by unwinding out of the launch, this is
/// dropped, and the launch is no longer counted.
pub struct CountedLaunch<'s>(&'s Slot);

impl Drop for CountedLaunch<'_> {
    fn drop(&mut self) {
        launch_ended(self.0);
    }
}

/// Counts a call before it is made, if its work makes device records; otherwise both are `None`.
#[cold]
#[inline(never)]
pub fn call_begins<'s>(
    slot: &'s Slot,
    generation: u32,
    entry: &Entry,
) -> (Option<CountedLaunch<'s>>, Option<CountedCall>) {
    if entry.launches_kernels() {
        launch_begins(slot, generation);
        return (Some(CountedLaunch(slot)), None);
    }
    (None, entry.makes_records().then(others_under_way::begins))
}

/// The low bits of a slot's `launch_count`: the index of the thread's count, [`COUNTS_LEN`] for [`SHARED`].
const INDEX_BITS: u32 = 6;
const INDEX: u32 = (1 << INDEX_BITS) - 1;

/// The index of the thread's count. The slot has it, and the session's generation in the bits above. In
/// another generation (a forked child, or another session) the thread takes a count anew.
#[inline(always)]
fn own_index(slot: &Slot, generation: u32) -> Option<u32> {
    let known = CudaSlot::of(slot).launch_count.get();
    let index = known & INDEX;
    (known == word(generation, index)).then_some(index)
}

#[inline(always)]
fn word(generation: u32, index: u32) -> u32 {
    generation << INDEX_BITS | index
}

#[cold]
#[inline(never)]
fn take(slot: &Slot, generation: u32) -> u32 {
    let index = TAKEN.fetch_add(1, Ordering::Relaxed).min(COUNTS_LEN as u32);
    CudaSlot::of(slot).launch_count.set(word(generation, index));
    index
}

fn add(index: u32) {
    match COUNTS.get(index as usize) {
        Some(own) => own.0.store(1, Ordering::Relaxed),
        None => _ = SHARED.0.fetch_add(1, Ordering::Relaxed),
    }
}

// SYNC: Release: callbacks that are enabled from now on come after the launch.
#[inline(always)]
fn remove(index: u32) {
    match COUNTS.get(index as usize) {
        Some(own) => own.0.store(0, Ordering::Release),
        None => _ = SHARED.0.fetch_sub(1, Ordering::Release),
    }
}

#[cold]
#[inline(never)]
fn wait(index: u32) {
    wait_until_open(
        || is_closed().load(Ordering::Acquire),
        |is_counted| {
            if is_counted {
                add(index);
            } else {
                remove(index);
            }
            compiler_fence(Ordering::SeqCst);
        },
        || is_closed().store(false, Ordering::Release),
    );
}

/// A counted call waits while `is_closed`, a second at most. If it is closed still, `open` lets all begin.
/// `count(false)` takes the call out of the count while it waits, `count(true)` puts it in again.
pub(super) fn wait_until_open(is_closed: impl Fn() -> bool, count: impl Fn(bool), open: impl Fn()) {
    let deadline_ns = clock::monotonic_ns() + WAIT_MOST_NS;
    loop {
        count(false);
        while is_closed() && clock::monotonic_ns() < deadline_ns {
            system::yield_now();
        }
        count(true);
        if !is_closed() {
            return;
        }
        if clock::monotonic_ns() >= deadline_ns {
            // The thread that closed takes too long, or has left by `longjmp`. Other calls need not wait as
            // well.
            return open();
        }
    }
}

/// While it lives, new launches wait, until one has waited for a second: that one lets all begin. If
/// [`Closed::is_quiet`], every launch that was under way had returned as this was made.
pub struct Closed {
    pub is_quiet: bool,
}

/// Makes new launches wait, and waits up to `patience_ns` for those under way to return. To make the barrier
/// ready takes some milliseconds before that. One thread at a time may call this.
pub fn close(patience_ns: u64) -> Closed {
    // Before launches wait: it takes milliseconds.
    let has_barrier = system::register_barrier();
    let deadline_ns = clock::monotonic_ns() + patience_ns;
    is_closed().store(true, Ordering::SeqCst);
    // SYNC: pairs with the fences where launches begin.
    if !(has_barrier && system::barrier_on_all_threads()) {
        system::sleep_ns(STORES_ARE_SEEN_NS);
    }
    // SYNC: Acquire pairs with the Release of `remove`.
    while COUNTS.iter().chain([&SHARED]).any(|count| count.0.load(Ordering::Acquire) != 0) {
        if clock::monotonic_ns() >= deadline_ns {
            return Closed { is_quiet: false };
        }
        system::sleep_ns(WAIT_STEP_NS);
    }
    Closed { is_quiet: true }
}

impl Closed {
    /// Whether new launches are still made to wait: not if one has waited for a second.
    pub fn are_held(&self) -> bool {
        is_closed().load(Ordering::Relaxed)
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        is_closed().store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use gputrace_producer::thread::with;

    use super::*;

    /// As a launch in a paused session does.
    fn launch_begins_here(generation: u32) {
        with(|slot| {
            if !launch_begins_on_own(slot, generation) {
                launch_begins(slot, generation);
            }
        });
    }

    /// The counts are the process's, so one test covers all cases in order.
    #[test]
    fn launches_and_the_moment_without_them_exclude_each_other() {
        begin_session();
        launch_begins_here(1);
        assert!(!close(1_000_000).is_quiet, "a launch is under way");
        with(launch_ended);
        assert!(close(0).is_quiet, "and launches may begin again after either");
        // Each with a count of its own, and then all but one with the shared one.
        for taken in [0, COUNTS_LEN as u32 - 1] {
            TAKEN.store(taken, Ordering::Relaxed);
            let [is_exclusive, is_over, had_begun] = [const { AtomicBool::new(false) }; 3];
            let mut were_quiet = 0;
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        while !is_over.load(Ordering::Relaxed) {
                            launch_begins_here(1);
                            if is_exclusive.load(Ordering::SeqCst) {
                                had_begun.store(true, Ordering::Relaxed);
                            }
                            std::hint::spin_loop();
                            with(launch_ended);
                        }
                    });
                }
                for _ in 0..200 {
                    let closed = close(WAIT_MOST_NS);
                    were_quiet += u32::from(closed.is_quiet);
                    is_exclusive.store(true, Ordering::SeqCst);
                    thread::yield_now();
                    is_exclusive.store(false, Ordering::SeqCst);
                    drop(closed);
                }
                is_over.store(true, Ordering::Relaxed);
            });
            assert_eq!((were_quiet, had_begun.into_inner()), (200, false), "{taken} taken");
            assert!(COUNTS.iter().chain([&SHARED]).all(|count| count.0.load(Ordering::Relaxed) == 0));
            begin_session();
        }
        assert_eq!(launches_that_began_in_a_quiet_moment(), 0);
        core::mem::forget(close(0));
        launch_begins_here(2);
        with(launch_ended);
        assert!(!is_closed().load(Ordering::Relaxed), "a launch opens what its owner has left");
    }

    /// One thread launches and another one closes at the same instant, over and over. Without the barrier
    /// it would sometimes happen that neither sees the other.
    fn launches_that_began_in_a_quiet_moment() -> u32 {
        const LONGEST: Duration = Duration::from_millis(500);
        let end = Instant::now() + LONGEST;
        let [round, begun, over, dropped] = [const { AtomicU32::new(0) }; 4];
        let is_last = AtomicBool::new(false);
        let wait_for = |what: &AtomicU32, number| {
            let mut turns = 0_u32;
            while what.load(Ordering::Acquire) < number {
                turns += 1;
                if turns.is_multiple_of(1000) { thread::yield_now() } else { std::hint::spin_loop() }
            }
        };
        let mut found = 0;
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1.. {
                    wait_for(&round, number);
                    if is_last.load(Ordering::Relaxed) {
                        break;
                    }
                    launch_begins_here(1);
                    begun.store(number, Ordering::Release);
                    wait_for(&over, number);
                    with(launch_ended);
                    dropped.store(number, Ordering::Release);
                }
            });
            for number in 1.. {
                is_last.store(Instant::now() > end, Ordering::Relaxed);
                round.store(number, Ordering::Release);
                if is_last.load(Ordering::Relaxed) {
                    break;
                }
                (0..number % 64).for_each(|_| std::hint::spin_loop());
                let closed = close(0);
                (0..100).for_each(|_| std::hint::spin_loop());
                found += u32::from(closed.is_quiet && begun.load(Ordering::Acquire) == number);
                drop(closed);
                over.store(number, Ordering::Release);
                wait_for(&dropped, number);
            }
        });
        found
    }
}
