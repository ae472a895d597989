//! Holds calls of the driver's while CUPTI is flushed, so that none is under way then.
//!
//! CUPTI 13.0 to 13.5 crashes in a thread that launches, copies or fills if another thread flushes it in the
//! midst of that: a program of eight such threads on four cores crashed after some thousand flushes, without
//! gputrace too (`scripts/bench-cupti-flush`). The tracer flushes up to 20 times a second. So [`flush_with`]
//! holds new calls, waits until none is under way, flushes, and lets the calls go on. It puts the flush off
//! if the wait takes too long.
//!
//! A call writes into the header of its thread's ring when it began, and then reads whether calls are held,
//! which is part of what every hook reads anyway ([`HookState`](gputrace_producer::hook_state::HookState)).
//! No locked instruction keeps the store before the read. Instead [`flush_with`] has all threads pass a
//! barrier, as [`under_way`](super::under_way) explains.
//!
//! None of these is waited for; CUPTI may still crash where one of the last three goes on during a flush:
//! - calls that only wait for the device, and launches of a paused session: CUPTI makes no records of either;
//! - calls that have not returned for [`BLOCKED_NS`], and so are blocked in the driver, for instance as a
//!   stream's queue is full;
//! - calls of threads for which there is no ring;
//! - calls by a signal handler that has interrupted a hook.

use core::hint::cold_path;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, compiler_fence};

use gputrace_producer::session::Session;
use gputrace_producer::thread::{self, Slot};
use gputrace_producer::{clock, fork, system};
use gputrace_wire::definition::role;

use crate::symbols::entry::Entry;

/// Odd while calls are held, and another number for each time. Calls that wait sleep on it: if they only let
/// others run, eight of them would keep the flush itself from running.
static HOLD: AtomicU32 = AtomicU32::new(0);

/// The longest time that a call is held. A flush takes milliseconds, more the longer the program runs
/// (docs/OVERHEAD.md); but if CUPTI hangs in one, the program must not hang with it.
const WAIT_MOST_NS: u64 = 500_000_000;

/// How long a flush holds new calls and waits for those under way before it is put off. If one is under way
/// for longer already, it is put off at once.
const PATIENCE_NS: u64 = 2_000_000;
/// A call that has been under way for this long is taken to be blocked in the driver, and is not waited for.
/// It is also how long a flush that must be made waits for calls.
const BLOCKED_NS: u64 = 40_000_000;
/// How many flushes in a row are put off at most: that makes records 0.2 s later.
const PUT_OFF_MOST: u32 = 3;
static PUT_OFF: AtomicU32 = AtomicU32::new(0);

const STEP_NS: u64 = 5_000;
/// How long to sleep where there is no barrier: other cores see a store within some microseconds.
const STORES_ARE_SEEN_NS: u64 = 50_000;

static IS_FLUSHING: AtomicBool = AtomicBool::new(false);

/// Called before the first call of a session: a forked child inherits its parent's statics, but not its
/// calls.
pub fn begin_session() {
    HOLD.store(0, Ordering::Relaxed);
    PUT_OFF.store(0, Ordering::Relaxed);
    IS_FLUSHING.store(false, Ordering::Relaxed);
}

/// A call of the driver's is under way for as long as this lives, if it is one that flushes wait for.
pub struct CallUnderWay<'s>(Option<&'s Slot>);

/// To be called before such a call, inside of the hook, with the time at which the call would begin. Returns
/// the time at which it begins: a later one if it had to wait, or if the thread had no ring yet.
#[inline(always)]
pub fn begins<'s>(
    session: &'static Session,
    slot: &'s Slot,
    entry: &Entry,
    start_ticks: u64,
) -> (CallUnderWay<'s>, u64) {
    if entry.only_waits {
        return (CallUnderWay(None), start_ticks);
    }
    let (call, start_ticks) = note(session, slot, start_ticks);
    if are_held() { (wait(session, slot, call), clock::now()) } else { (call, start_ticks) }
}

#[inline(always)]
fn note<'s>(session: &'static Session, slot: &'s Slot, start_ticks: u64) -> (CallUnderWay<'s>, u64) {
    if slot.call_begins(start_ticks) {
        return (CallUnderWay(Some(slot)), start_ticks);
    }
    cold_path();
    // The thread has no ring of the session: it is its first call, or there was none left for it.
    let is_attached = slot.attach(session, role::PROGRAM);
    let start_ticks = clock::now();
    let is_noted = is_attached && slot.call_begins(start_ticks);
    (CallUnderWay(is_noted.then_some(slot)), start_ticks)
}

/// SYNC: the call must have been noted before the state is read. The fence is for the compiler only; for the
/// core the barrier in [`flush_with`] stands in for one.
#[inline(always)]
fn are_held() -> bool {
    compiler_fence(Ordering::SeqCst);
    fork::of_process().hook_state().holds_calls()
}

/// The futex says when [`WAIT_MOST_NS`] have passed, so that no function of the C library is asked for the
/// time: the program may have replaced it.
#[cold]
#[inline(never)]
fn wait<'s>(session: &'static Session, slot: &'s Slot, mut call: CallUnderWay<'s>) -> CallUnderWay<'s> {
    while are_held() {
        drop(call);
        let hold = HOLD.load(Ordering::SeqCst);
        if hold.is_multiple_of(2) {
            // It is just over.
            system::yield_now();
        } else if system::wait_while(&HOLD, hold, WAIT_MOST_NS) {
            // The flush takes too long. Other calls need not wait as well.
            if HOLD.compare_exchange(hold, hold.wrapping_add(1), Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                session.hold_calls(false);
                system::wake_all(&HOLD);
            }
            return note(session, slot, clock::now()).0;
        }
        call = note(session, slot, clock::now()).0;
    }
    call
}

impl Drop for CallUnderWay<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(slot) = self.0 {
            slot.call_ends();
        }
    }
}

/// Runs `flush` at a moment when no call is under way, or not at all if calls do not return in time, or if
/// another thread flushes. With `must` it always runs: after [`BLOCKED_NS`] at most, even if calls are still
/// under way.
pub fn flush_with(session: &Session, must: bool, flush: impl FnOnce()) {
    if IS_FLUSHING.swap(true, Ordering::Acquire) && !must {
        return;
    }
    let must = must || PUT_OFF.load(Ordering::Relaxed) >= PUT_OFF_MOST;
    // Before calls are held: the first time it takes milliseconds.
    let has_barrier = system::register_barrier();
    let is_flushed = (must || OldestCall::now(session) != OldestCall::Long) && {
        let hold = hold(session);
        if !(has_barrier && system::barrier_on_all_threads()) {
            system::sleep_ns(STORES_ARE_SEEN_NS);
        }
        let until_ns = clock::monotonic_ns() + if must { BLOCKED_NS } else { PATIENCE_NS };
        let mut is_quiet = OldestCall::now(session) == OldestCall::None;
        while !is_quiet && clock::monotonic_ns() < until_ns {
            system::sleep_ns(STEP_NS);
            is_quiet = OldestCall::now(session) == OldestCall::None;
        }
        let is_time = is_quiet || must;
        if is_time {
            flush();
        }
        release(session, hold);
        is_time
    };
    PUT_OFF.store(if is_flushed { 0 } else { PUT_OFF.load(Ordering::Relaxed) + 1 }, Ordering::Relaxed);
    IS_FLUSHING.store(false, Ordering::Release);
}

fn hold(session: &Session) -> u32 {
    let hold = (HOLD.load(Ordering::Relaxed) | 1).wrapping_add(2);
    HOLD.store(hold, Ordering::SeqCst);
    session.hold_calls(true);
    hold
}

/// Ends the hold, whether or not a call that waited for too long has ended it already.
fn release(session: &Session, hold: u32) {
    session.hold_calls(false);
    HOLD.store(hold.wrapping_add(1), Ordering::SeqCst);
    system::wake_all(&HOLD);
}

/// The call under way that began first, but for those that are blocked.
#[derive(PartialEq, Eq)]
enum OldestCall {
    None,
    Young,
    /// Under way for longer than [`PATIENCE_NS`].
    Long,
}

impl OldestCall {
    fn now(session: &Session) -> OldestCall {
        let now = thread::time_of_call(clock::now());
        let times = |nanoseconds: u64| {
            let ticks = u128::from(session.ticks_per_second) * u128::from(nanoseconds) / 1_000_000_000;
            thread::time_of_call(ticks as u64)
        };
        let (long, blocked) = (times(PATIENCE_NS), times(BLOCKED_NS));
        let ages = session.calls_under_way().map(|begun| age(now, begun));
        match ages.filter(|age| *age < blocked).max() {
            None => OldestCall::None,
            Some(age) if age < long => OldestCall::Young,
            Some(_) => OldestCall::Long,
        }
    }
}

/// How old a call is, 0 for one that began after `now` was read. These times go round in a quarter of an hour
/// or more.
fn age(now: u32, begun: u32) -> u32 {
    const LATER_MOST: u32 = 1 << 20;
    match now.wrapping_sub(begun) {
        later if later > u32::MAX - LATER_MOST => 0,
        age => age,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_an_age_however_long_ago_they_began() {
        let second = thread::time_of_call(3_000_000_000);
        for now in [second, 1, u32::MAX] {
            for seconds in [0, 1, 60, 800, 1400] {
                assert_eq!(age(now, now.wrapping_sub(seconds * second)), seconds * second);
            }
            assert_eq!(age(now, now.wrapping_add(7)), 0, "it began after that");
        }
    }
}
