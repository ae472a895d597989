//! What a thread does when its ring is full: it drops the entry, or waits a while if the user asked for
//! that.
//!
//! The wait has three bounds. An event waits for at most [`EVENT_MOST_NS`]. No thread waits for a collector
//! that has not read the rings for [`STILL_NS`], until it reads them again. A thread stops waiting after
//! the same time if a living collector does not read that thread's ring.
//!
//! A signal handler that interrupted a hook writes nothing, so it never waits for its own thread.

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

/// Process-wide; a forked child inherits its parent's setting.
static WAITS: AtomicBool = AtomicBool::new(false);

/// Sets whether threads wait from here on instead of dropping.
pub fn set_waits(waits: bool) {
    WAITS.store(waits, Ordering::Relaxed);
}

/// The session for which the notice that threads waited was written.
static NOTICED_FOR: AtomicU32 = AtomicU32::new(0);

pub fn waits() -> bool {
    WAITS.load(Ordering::Relaxed)
}

/// How long a thread has waited without success for its own ring.
#[derive(Debug)]
pub(crate) struct WaitedSoFar {
    /// The consumer's position during that wait.
    tail: Cell<u64>,
    waited_ns: Cell<u64>,
}

impl WaitedSoFar {
    /// Waits until the entry fits; false if the time is up first. `tail` returns the consumer's position;
    /// `has_space` returns whether the entry fits.
    pub fn wait(
        &self,
        session: &Session,
        tail: impl Fn() -> u64,
        mut has_space: impl FnMut() -> bool,
    ) -> bool {
        let _errno = KeepErrno::new();
        let position = tail();
        if self.tail.replace(position) != position {
            self.waited_ns.set(0);
        }
        let begin_ns = clock::monotonic_ns();
        if self.waited_ns.get() >= STILL_NS || is_collector_stuck(session, begin_ns) {
            return false;
        }
        let mut step_ns = STEP_FIRST_NS;
        let (came, waited_ns) = loop {
            pause(step_ns);
            step_ns = (step_ns * 2).min(STEP_MOST_NS);
            let now_ns = clock::monotonic_ns();
            let waited_ns = now_ns.saturating_sub(begin_ns);
            // A signal handler may have forked or ended the session in the meantime.
            if !session.is_current() {
                return false;
            }
            if has_space() {
                break (true, waited_ns);
            }
            if waited_ns >= EVENT_MOST_NS || is_collector_stuck(session, now_ns) {
                break (false, waited_ns);
            }
        };
        if self.tail.get() == tail() {
            self.waited_ns.set(self.waited_ns.get().saturating_add(waited_ns));
        }
        if NOTICED_FOR.swap(session.generation, Ordering::Relaxed) != session.generation {
            session.notice(1, 0, b"threads waited for their full rings, as --on-full wait asks");
        }
        session.count(Counter::Waits, 1);
        session.count(Counter::WaitedNs, waited_ns);
        came
    }
}

/// Whether the collector has not read the rings for so long that no thread waits for it.
fn is_collector_stuck(session: &Session, now_ns: u64) -> bool {
    // Relaxed: a time, which orders nothing.
    now_ns.saturating_sub(session.control().heartbeat_ns.load(Ordering::Relaxed)) > STILL_NS
}

/// Makes the system call directly. The C library's sleep is a cancellation point, and a launch must not be
/// one.
fn pause(nanoseconds: u64) {
    system::sleep_ns(nanoseconds);
}
