//! When CUPTI calls back at launches of kernels: from the session's begin, or, if it begins paused and not by
//! windows, from when it first goes on, a graph is made, or another client of CUPTI comes. Nobody takes that
//! back. At copies, fills and launches of graphs, which are few, it calls back from when it is taken up
//! ([`super::attach`]): before the first of them, or, if that is late, together with launches.
//!
//! The callbacks cost a launch 0.1 µs in a tight loop, and more in PyTorch (OVERHEAD.md). But a thread that
//! is inside a launch as they go on gets that launch's correlation id for all its later launches too (seen
//! with CUPTI 13.0). Device records of those have other ids, so they are without their calls, which the
//! report counts; one may be taken for that launch's. Therefore the callbacks go on at a moment without a
//! launch, and in spite of one only if it has not returned for [`PATIENCE_NS`]: it may wait for a kernel.
//!
//! A copy often waits for the device, and its thread then launches all that comes next. So it is waited for
//! longer where that stops nobody: the service thread comes again at its next turn.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use gputrace_producer::session::Session;
use gputrace_producer::{clock, system};

use super::root::Root;
use super::{callbacks, launches};
use crate::hook::under_way;

/// Less than a hook waits for the right to switch.
const PATIENCE_NS: u64 = 100_000_000;

/// The turns at which the service thread waits so long for a copy: as many as fit into less than the time for
/// which `gputrace ctl` waits.
const TRIES_MOST: u32 = 40;
static TRIES: AtomicU32 = AtomicU32::new(0);

/// How long a thread waits for another one that turns them on.
const WAIT_MOST_NS: u64 = 2 * PATIENCE_NS;
const WAIT_STEP_NS: u64 = 20_000;

mod state {
    pub const OFF: u8 = 0;
    pub const GO_ON: u8 = 1;
    pub const ON: u8 = 2;
}
static STATE: AtomicU8 = AtomicU8::new(state::OFF);
/// Whether those of copies, fills and graphs are on.
static OTHERS_ARE_ON: AtomicBool = AtomicBool::new(false);

/// Turns on those of copies, fills and graphs, none of which has been called so far.
pub fn begin_with_others(root: &Root) {
    callbacks::enable(root, launches::ids_of_others());
    OTHERS_ARE_ON.store(true, Ordering::Release);
}

/// Turns the callbacks on. Other threads' calls that come meanwhile wait.
pub fn turn_on(session: &Session, root: &Root) {
    turn_on_after(session, root, true);
}

/// The same for the service thread, which comes again at its next turn: false, and nothing is on, if a copy
/// does not return.
pub fn try_turn_on(session: &Session, root: &Root) -> bool {
    let is_last = TRIES.fetch_add(1, Ordering::Relaxed) >= TRIES_MOST;
    turn_on_after(session, root, is_last)
}

fn turn_on_after(session: &Session, root: &Root, in_any_case: bool) -> bool {
    let claim = claim();
    if claim == Claim::Needless {
        return true;
    }
    let is_own = claim == Claim::Own;
    let others_are_on = OTHERS_ARE_ON.load(Ordering::Acquire);
    let others = (is_own && !others_are_on).then(|| under_way::OTHERS.close(PATIENCE_NS));
    if !in_any_case && others.as_ref().is_some_and(|closed| !closed.is_quiet) {
        STATE.store(state::OFF, Ordering::Release);
        return false;
    }
    let launches = is_own.then(|| under_way::LAUNCHES.close(PATIENCE_NS));
    if !others_are_on {
        begin_with_others(root);
    }
    callbacks::enable(root, launches::ids_of_kernels());
    STATE.store(state::ON, Ordering::Release);
    session.count_none_under_way();
    let was_quiet = |closed: &Option<under_way::Closed>| closed.as_ref().is_none_or(|closed| closed.is_quiet);
    let notice: &[u8] = if !is_own {
        b"CUPTI was not done for 0.2 s as it was to note launches: some may lack device times, or have another's"
    } else if !was_quiet(&launches) {
        b"a launch did not return for 0.1 s as CUPTI was to note launches: its thread's may lack device times, or have another's"
    } else if !was_quiet(&others) {
        b"a copy or the launch of a graph did not return as CUPTI was to note launches: its thread's may lack device times, or have another's"
    } else {
        return true;
    };
    session.notice(1, 0, notice);
    true
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Claim {
    /// This thread turns them on.
    Own,
    /// They are on.
    Needless,
    /// Who was to turn them on is long about it, or does not come back.
    InVain,
}

/// Waits where another thread turns them on, or this one does, in CUPTI's call of another client.
#[cold]
fn claim() -> Claim {
    let deadline_ns = clock::monotonic_ns() + WAIT_MOST_NS;
    loop {
        match STATE.compare_exchange(state::OFF, state::GO_ON, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Claim::Own,
            Err(state::ON) => return Claim::Needless,
            Err(_) if clock::monotonic_ns() >= deadline_ns => return Claim::InVain,
            Err(_) => system::sleep_ns(WAIT_STEP_NS),
        }
    }
}
