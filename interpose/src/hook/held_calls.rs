//! Holds calls of the driver's while CUPTI is flushed, so that none is under way then.
//!
//! CUPTI 13.0 to 13.5 crashes in a thread that launches, copies or fills if another thread flushes it in the
//! midst of that: a program of eight such threads on four cores lived for some thousand flushes, without
//! gputrace too (`scripts/bench-cupti-flush`). The tracer flushes 20 times a second. So [`flush_with`] waits
//! for a moment without a call, for which new ones wait, and puts the flush off if none comes soon.
//!
//! A call says in the header of its thread's ring that it is under way, and then reads whether calls are
//! held, which is part of what every hook reads anyway
//! ([`HookState`](gputrace_producer::hook_state::HookState)). No locked instruction keeps the store before
//! the read. Instead [`flush_with`] has all threads pass a barrier, as [`under_way`](super::under_way)
//! explains.
//!
//! Not waited for are calls that only wait for the device, launches of a paused session, of which CUPTI makes
//! no records, and calls that have not returned for long: they wait in the driver, for space in a stream's
//! queue.

use core::hint::cold_path;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, compiler_fence};

use gputrace_producer::session::{self, Session};
use gputrace_producer::thread::Slot;
use gputrace_producer::{clock, fork, system};

use crate::symbols::entry::Entry;

/// 1 while calls are held. Those that wait sleep on it: if they only let others run, eight of them would keep
/// the flush itself from running.
static HELD: AtomicU32 = AtomicU32::new(0);

/// Calls under way of threads that have no ring (yet).
static WITHOUT_RING: AtomicU32 = AtomicU32::new(0);

/// The longest wait of a call: a flush takes 0.1 µs a record.
const WAIT_MOST_NS: u64 = 500_000_000;

/// How long a flush holds new calls and waits for those under way, before it is put off.
const HOLD_NS: u64 = 2_000_000;
/// The same after [`PUT_OFF_MOST`] flushes in a row were put off: records come a quarter of a second late
/// then.
const HOLD_LONG_NS: u64 = 20_000_000;
const PUT_OFF_MOST: u32 = 4;
static PUT_OFF: AtomicU32 = AtomicU32::new(0);
/// A call under way for so long waits in the driver. The last flush of a process is made after that time.
const BLOCKED_NS: u64 = 40_000_000;

const STEP_NS: u64 = 5_000;
/// A store is seen by other cores within a microsecond or two, where there is no barrier to be had.
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
    HELD.store(0, Ordering::Relaxed);
    WITHOUT_RING.store(0, Ordering::Relaxed);
    PUT_OFF.store(0, Ordering::Relaxed);
    BARRIER.store(barrier::UNKNOWN, Ordering::Relaxed);
    IS_FLUSHING.store(false, Ordering::Relaxed);
}

#[derive(Clone, Copy)]
enum Noted {
    InRing,
    WithoutRing,
    Not,
}

/// A call of the driver's is under way for as long as this lives.
pub struct CallUnderWay<'s> {
    slot: &'s Slot,
    noted: Noted,
}

/// To be called before such a call, inside of the hook. It may wait.
#[inline(always)]
pub fn begins<'s>(slot: &'s Slot, entry: &Entry) -> CallUnderWay<'s> {
    if entry.only_waits() {
        return CallUnderWay { slot, noted: Noted::Not };
    }
    let call = CallUnderWay::noted(slot);
    if are_held() { call.wait() } else { call }
}

/// SYNC: the call must have been noted before the state is read. The fence is for the compiler only; for the
/// core the barrier in [`flush_with`] stands in for one.
#[inline(always)]
fn are_held() -> bool {
    compiler_fence(Ordering::SeqCst);
    fork::of_process().hook_state().holds_calls()
}

impl<'s> CallUnderWay<'s> {
    #[inline(always)]
    fn noted(slot: &'s Slot) -> CallUnderWay<'s> {
        if slot.call_begins(clock::now()) {
            return CallUnderWay { slot, noted: Noted::InRing };
        }
        cold_path();
        WITHOUT_RING.fetch_add(1, Ordering::SeqCst);
        CallUnderWay { slot, noted: Noted::WithoutRing }
    }

    #[cold]
    #[inline(never)]
    fn wait(self) -> CallUnderWay<'s> {
        let slot = self.slot;
        let deadline_ns = clock::monotonic_ns() + WAIT_MOST_NS;
        let mut call = self;
        while are_held() {
            drop(call);
            let left_ns = deadline_ns.saturating_sub(clock::monotonic_ns());
            if left_ns == 0 {
                // The flush takes too long. Other calls need not wait as well.
                session::current().inspect(|session| release(session));
                return CallUnderWay::noted(slot);
            }
            system::wait_while(&HELD, 1, left_ns);
            call = CallUnderWay::noted(slot);
        }
        call
    }
}

impl Drop for CallUnderWay<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        match self.noted {
            Noted::InRing => self.slot.call_ends(),
            Noted::Not => {}
            Noted::WithoutRing => _ = WITHOUT_RING.fetch_sub(1, Ordering::Release),
        }
    }
}

/// Runs `flush` while no call is under way. False if it was put off, as calls did not return in time. The
/// last one is not put off.
pub fn flush_with(session: &Session, is_last: bool, flush: impl FnOnce()) -> bool {
    if IS_FLUSHING.swap(true, Ordering::Acquire) && !is_last {
        // Another thread flushes.
        return false;
    }
    let hold_ns = match PUT_OFF.load(Ordering::Relaxed) {
        _ if is_last => BLOCKED_NS,
        PUT_OFF_MOST.. => HOLD_LONG_NS,
        _ => HOLD_NS,
    };
    note_blocked(session);
    let has_barrier = has_barrier();
    HELD.store(1, Ordering::SeqCst);
    session.hold_calls(true);
    if !(has_barrier && system::barrier_on_all_threads()) {
        system::sleep_ns(STORES_ARE_SEEN_NS);
    }
    let begun_ns = clock::monotonic_ns();
    let mut is_quiet = are_none_under_way(session);
    while !is_quiet && clock::monotonic_ns() - begun_ns < hold_ns {
        system::sleep_ns(STEP_NS);
        is_quiet = are_none_under_way(session);
    }
    if is_quiet || is_last {
        PUT_OFF.store(0, Ordering::Relaxed);
        flush();
    } else {
        PUT_OFF.fetch_add(1, Ordering::Relaxed);
    }
    release(session);
    IS_FLUSHING.store(false, Ordering::Release);
    is_quiet || is_last
}

fn release(session: &Session) {
    session.hold_calls(false);
    HELD.store(0, Ordering::SeqCst);
    system::wake_all(&HELD);
}

/// But for those that are blocked.
fn are_none_under_way(session: &Session) -> bool {
    // SYNC: a call that has returned comes before the flush: Acquire pairs with Release in
    // `CallUnderWay::drop`.
    WITHOUT_RING.load(Ordering::Acquire) == 0
        && session.calls_under_way().all(|(ring, call)| {
            LONG.get(ring).is_some_and(|long| long.blocked.load(Ordering::Relaxed) == call)
        })
}

/// What is known of the call of one ring's thread: the one under way at [`SEEN_NS`], and if it was under way
/// for long by then, that one.
struct Long {
    seen: AtomicU32,
    blocked: AtomicU32,
}
/// As many as a session may have rings.
static LONG: [Long; 1088] = [const { Long { seen: AtomicU32::new(0), blocked: AtomicU32::new(0) } }; 1088];
static SEEN_NS: AtomicU64 = AtomicU64::new(0);

fn note_blocked(session: &Session) {
    let now_ns = clock::monotonic_ns();
    if now_ns - SEEN_NS.load(Ordering::Relaxed) < BLOCKED_NS {
        return;
    }
    SEEN_NS.store(now_ns, Ordering::Relaxed);
    for (ring, call) in session.calls_under_way() {
        if let Some(long) = LONG.get(ring)
            && long.seen.swap(call, Ordering::Relaxed) == call
        {
            long.blocked.store(call, Ordering::Relaxed);
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
