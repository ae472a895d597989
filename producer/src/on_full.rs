//! What a thread does whose ring is full: it drops the entry, or waits a while if the user asked
//! for that.
//!
//! The wait is bounded three times over: an event waits for [`EVENT_MOST_NS`]; nobody waits for a
//! collector that has not looked at the rings for [`STILL_NS`], until it looks again; and a thread
//! whose ring a living collector leaves alone stops waiting after as long. A signal handler that
//! interrupted a hook writes nothing, so that it never waits for its own thread.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use gputrace_wire::counter::Counter;

use crate::clock;
use crate::session::Session;
use crate::stderr::KeepErrno;
use crate::system;

const EVENT_MOST_NS: u64 = 200_000_000;
const STILL_NS: u64 = 1_000_000_000;
const STEP_FIRST_NS: u64 = 100_000;
const STEP_MOST_NS: u64 = 2_000_000;

/// Of the whole process; a forked child has its parent's.
static WAITS: AtomicBool = AtomicBool::new(false);

/// Waits instead of dropping from here on, or the other way about.
pub fn set_waits(waits: bool) {
    WAITS.store(waits, Ordering::Relaxed);
}

/// The session in which it was said that threads waited.
static NOTICED_FOR: AtomicU32 = AtomicU32::new(0);

pub fn waits() -> bool {
    WAITS.load(Ordering::Relaxed)
}

/// What a thread has waited in vain for its own ring.
#[derive(Debug)]
pub(crate) struct Vain {
    /// The consumer's position meanwhile.
    tail: Cell<u64>,
    waited_ns: Cell<u64>,
}

impl Vain {
    pub const fn new() -> Vain {
        Vain { tail: Cell::new(0), waited_ns: Cell::new(0) }
    }

    /// Waits until there is room; false if the time is up before. `tail` is the consumer's
    /// position, `has_room` looks whether the entry would fit.
    pub fn wait(
        &self,
        session: &Session,
        tail: impl Fn() -> u64,
        mut has_room: impl FnMut() -> bool,
    ) -> bool {
        let _errno = KeepErrno::new();
        let position = tail();
        if self.tail.replace(position) != position {
            self.waited_ns.set(0);
        }
        let begin_ns = clock::monotonic_ns();
        if self.waited_ns.get() >= STILL_NS || stands_still(session, begin_ns) {
            return false;
        }
        let mut step_ns = STEP_FIRST_NS;
        let (came, waited_ns) = loop {
            pause(step_ns);
            step_ns = (step_ns * 2).min(STEP_MOST_NS);
            let now_ns = clock::monotonic_ns();
            let waited_ns = now_ns.saturating_sub(begin_ns);
            // A signal handler may have forked or ended the session meanwhile.
            if !session.is_current() {
                return false;
            }
            if has_room() {
                break (true, waited_ns);
            }
            if waited_ns >= EVENT_MOST_NS || stands_still(session, now_ns) {
                break (false, waited_ns);
            }
        };
        if self.tail.get() == tail() {
            self.waited_ns.set(self.waited_ns.get().saturating_add(waited_ns));
        }
        if NOTICED_FOR.swap(session.generation, Ordering::Relaxed) != session.generation {
            session.notice(1, 0, b"threads waited for room in their rings, as --on-full wait asks");
        }
        session.count(Counter::Waits, 1);
        session.count(Counter::WaitedNs, waited_ns);
        came
    }
}

/// Whether the collector has not looked at the rings for so long that nobody waits for it.
fn stands_still(session: &Session, now_ns: u64) -> bool {
    // Relaxed: a time, which orders nothing.
    now_ns.saturating_sub(session.control().heartbeat_ns.load(Ordering::Relaxed)) > STILL_NS
}

/// By a system call of its own: the C library's sleep is a place where a thread may be cancelled,
/// and a launch is none.
fn pause(nanoseconds: u64) {
    system::sleep_ns(nanoseconds);
}
