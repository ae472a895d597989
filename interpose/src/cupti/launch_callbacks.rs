//! When CUPTI calls back at launches of kernels: from the session's begin, or, if it begins paused and not by
//! windows, from when it first goes on, a graph is made, or another client of CUPTI comes. Nobody takes that
//! back.
//!
//! The callbacks cost a launch 0.1 µs in a tight loop, and more in PyTorch (OVERHEAD.md). But a thread that
//! is inside a launch as they go on gets that launch's correlation id for all its later launches too (seen
//! with CUPTI 13.0). The device records of the later launches have ids of their own, so the report finds no
//! call for them, and counts them as such; and the first launch's record may be taken for a later one's.
//! Therefore the callbacks go on at a moment without a launch. If one has not returned after
//! [`PATIENCE_NS`], they go on all the same: it may wait for a kernel.

use core::sync::atomic::{AtomicU8, Ordering};

use gputrace_producer::session::Session;
use gputrace_producer::{clock, system};

use super::root::Root;
use super::{callbacks, launches};
use crate::hook::under_way;

/// Less than a hook waits for its turn to pause the session or let it go on ([`super::pause`]).
const PATIENCE_NS: u64 = 100_000_000;

/// How long a thread waits for another one that turns them on.
const WAIT_MOST_NS: u64 = 2 * PATIENCE_NS;
const WAIT_STEP_NS: u64 = 20_000;

mod state {
    pub const OFF: u8 = 0;
    pub const GO_ON: u8 = 1;
    pub const ON: u8 = 2;
}
static STATE: AtomicU8 = AtomicU8::new(state::OFF);

/// Turns the callbacks on. Where launches under way are counted, new ones wait meanwhile; not where another
/// thread is long about turning the callbacks on, and this one does it at once.
pub fn turn_on(session: &Session, root: &Root) {
    turn_on_after(session, root, || true);
}

/// The same, after something else that needs a moment without launches. If that is false the callbacks stay
/// off.
pub fn turn_on_after(session: &Session, root: &Root, before: impl FnOnce() -> bool) {
    let found = STATE.compare_exchange(state::OFF, state::GO_ON, Ordering::AcqRel, Ordering::Acquire);
    let is_first = match found {
        Ok(_) => true,
        Err(_) if are_on() => {
            _ = before();
            return;
        }
        // Who was to turn them on is long about it, or does not come back.
        Err(_) => false,
    };
    // Launches under way are counted only while the session has been paused since its begin. A session that
    // records turns the callbacks on as it begins. If a range has come and gone before the tracer subscribed
    // to CUPTI, the count has ended too.
    let closed = (is_first && session.hook_state().counts_under_way()).then(|| under_way::close(PATIENCE_NS));
    if !before() {
        STATE.store(state::OFF, Ordering::Release);
        return session.count_no_launches_under_way();
    }
    callbacks::enable(root, launches::ids_of_kernels());
    STATE.store(state::ON, Ordering::Release);
    session.count_no_launches_under_way();
    let notice: &[u8] = match closed {
        Some(closed) if !closed.is_quiet || !closed.are_held() => {
            b"a launch did not return for 0.1 s as CUPTI was to note launches: its thread's may lack device times, or have another's"
        }
        _ if is_first => return,
        _ => {
            b"CUPTI was not done for 0.2 s as it was to note launches: some may lack device times, or have another's"
        }
    };
    session.notice(1, 0, notice);
}

/// Whether they are on. Waits while they are being turned on; in vain if this thread itself is doing that,
/// and CUPTI has called another client in the midst of it.
#[cold]
fn are_on() -> bool {
    let deadline_ns = clock::monotonic_ns() + WAIT_MOST_NS;
    loop {
        match STATE.load(Ordering::Acquire) {
            state::ON => return true,
            _ if clock::monotonic_ns() >= deadline_ns => return false,
            _ => system::sleep_ns(WAIT_STEP_NS),
        }
    }
}
