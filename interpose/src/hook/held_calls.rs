//! Holds calls of the driver's while CUPTI is flushed, so that none is under way then.
//!
//! CUPTI 13.0 to 13.5 crashes in a thread that launches, copies or fills if another thread flushes it in the
//! midst of that: a program of eight such threads on four cores lived for some thousand flushes, without
//! gputrace too (`scripts/bench-cupti-flush`). The tracer flushes up to 20 times a second. So [`flush_with`]
//! waits for a moment without a call, for which new ones wait, and puts the flush off if none comes soon.
//!
//! A call writes into the header of its thread's ring when it began, and then reads whether calls are held,
//! which is part of what every hook reads anyway ([`HookState`](gputrace_producer::hook_state::HookState)).
//! No locked instruction keeps the store before the read. Instead [`flush_with`] has all threads pass a
//! barrier, as [`under_way`](super::under_way) explains.
//!
//! Not waited for are calls that only wait for the device; launches of a paused session, of which CUPTI makes
//! no records; calls that have not returned for [`BLOCKED_NS`]: they wait in the driver, for space in a
//! stream's queue for instance; calls of threads for which there is no ring; and launches by a signal handler
//! that has interrupted a hook. CUPTI may still crash where one of these goes on in the midst of a flush.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, compiler_fence};

use gputrace_producer::session::Session;
use gputrace_producer::thread::{self, Slot};
use gputrace_producer::{clock, fork, system};
use gputrace_wire::definition::role;

use crate::symbols::entry::Entry;

/// Odd while calls are held, and another number for each time. Calls that wait sleep on it: if they only let
/// others run, eight of them would keep the flush itself from running.
static HOLD: AtomicU32 = AtomicU32::new(0);

/// The longest wait of a call. A flush takes 0.1 µs a record, and waits for ever where CUPTI itself hangs.
const WAIT_MOST_NS: u64 = 500_000_000;

/// How long a flush holds new calls and waits for those under way before it is put off. If one is under way
/// for longer already, it is put off at once.
const PATIENCE_NS: u64 = 2_000_000;
/// A call under way for so long waits in the driver. A flush that is not to be put off waits for so long.
const BLOCKED_NS: u64 = 40_000_000;
/// How many flushes in a row are put off at most: records come a quarter of a second late then.
const PUT_OFF_MOST: u32 = 3;
static PUT_OFF: AtomicU32 = AtomicU32::new(0);

const STEP_NS: u64 = 5_000;
/// A store leaves its core within some microseconds, where there is no barrier to be had.
const STORES_ARE_SEEN_NS: u64 = 50_000;

mod barrier {
    pub const UNKNOWN: u32 = 0;
    pub const THERE: u32 = 1;
    pub const MISSING: u32 = 2;
}
static BARRIER: AtomicU32 = AtomicU32::new(barrier::UNKNOWN);
static IS_FLUSHING: AtomicBool = AtomicBool::new(false);

/// Called before the first call of a session: a forked child inherits its parent's statics, but not its
/// calls.
pub fn begin_session() {
    HOLD.store(0, Ordering::Relaxed);
    PUT_OFF.store(0, Ordering::Relaxed);
    BARRIER.store(barrier::UNKNOWN, Ordering::Relaxed);
    IS_FLUSHING.store(false, Ordering::Relaxed);
}

/// A call of the driver's is under way for as long as this lives, if it is one that flushes wait for.
pub struct CallUnderWay<'s>(Option<&'s Slot>);

/// To be called before such a call, inside of the hook. It may wait.
#[inline(always)]
pub fn begins<'s>(session: &'static Session, slot: &'s Slot, entry: &Entry) -> CallUnderWay<'s> {
    if entry.only_waits() {
        return CallUnderWay(None);
    }
    let call = note(session, slot);
    if are_held() { wait(session, slot, call) } else { call }
}

#[inline(always)]
fn note<'s>(session: &'static Session, slot: &'s Slot) -> CallUnderWay<'s> {
    let ticks = clock::now();
    // The second one for a thread's first call.
    let is_noted = slot.call_begins(ticks) || slot.attach(session, role::PROGRAM) && slot.call_begins(ticks);
    CallUnderWay(is_noted.then_some(slot))
}

/// SYNC: the call must have been noted before the state is read. The fence is for the compiler only; for the
/// core the barrier in [`flush_with`] stands in for one.
#[inline(always)]
fn are_held() -> bool {
    compiler_fence(Ordering::SeqCst);
    fork::of_process().hook_state().holds_calls()
}

/// Reads no clock: the C library's function may be the program's own.
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
            return note(session, slot);
        }
        call = note(session, slot);
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

/// Runs `flush` while no call is under way. False if it was put off, as calls did not return in time; not if
/// it `must` be made.
pub fn flush_with(session: &Session, must: bool, flush: impl FnOnce()) -> bool {
    if IS_FLUSHING.swap(true, Ordering::Acquire) && !must {
        // Another thread flushes.
        return false;
    }
    let must = must || PUT_OFF.load(Ordering::Relaxed) >= PUT_OFF_MOST;
    let has_barrier = has_barrier();
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
    is_flushed
}

fn hold(session: &Session) -> u32 {
    let hold = (HOLD.load(Ordering::Relaxed) | 1).wrapping_add(2);
    HOLD.store(hold, Ordering::SeqCst);
    session.hold_calls(true);
    hold
}

/// Whether or not a call that waited for long has ended the hold already.
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
        // Read before the calls are, so that the age of one that begins meanwhile is negative: it is short.
        let now = thread::time_of_call(clock::now());
        let times = |nanoseconds: u64| {
            let ticks = u128::from(session.ticks_per_second) * u128::from(nanoseconds) / 1_000_000_000;
            i64::from(thread::time_of_call(ticks as u64))
        };
        let (long, blocked) = (times(PATIENCE_NS), times(BLOCKED_NS));
        let ages = session.calls_under_way().map(|begun| i64::from(now.wrapping_sub(begun).cast_signed()));
        match ages.filter(|age| *age < blocked).max() {
            None => OldestCall::None,
            Some(age) if age < long => OldestCall::Young,
            Some(_) => OldestCall::Long,
        }
    }
}

/// Whether there is a barrier for all threads. Registered at the first flush: that takes milliseconds.
fn has_barrier() -> bool {
    let found = match BARRIER.load(Ordering::Relaxed) {
        barrier::UNKNOWN if system::register_barrier() => barrier::THERE,
        barrier::UNKNOWN => barrier::MISSING,
        known => known,
    };
    BARRIER.store(found, Ordering::Relaxed);
    found == barrier::THERE
}
