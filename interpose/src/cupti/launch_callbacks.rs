//! When CUPTI calls back at launches: from the session's begin, or, if it begins paused, from when it first
//! goes on or another client comes. Nobody takes that back: [`under_way`] says why.

use core::sync::atomic::{AtomicBool, Ordering};

use gputrace_producer::session;

use super::callbacks;
use super::root::{self, Root};
use super::switching::Switching;
use crate::hook::under_way;

static ARE_ON: AtomicBool = AtomicBool::new(false);

/// Turns the callbacks on, where no call of their functions can be under way.
pub fn turn_on(root: &Root) {
    callbacks::enable_launches(root);
    ARE_ON.store(true, Ordering::Release);
    if let Some(session) = session::current() {
        session.count_no_calls_under_way();
    }
}

/// The same at a moment without such a call; false if there is none within the patience. The calling thread
/// has the right to switch.
pub fn turn_on_between_calls(root: &Root, _: &Switching, patience_ns: u64) -> bool {
    if ARE_ON.load(Ordering::Acquire) {
        return true;
    }
    let Some(_closed) = under_way::close(patience_ns) else { return false };
    turn_on(root);
    true
}

/// The same for a thread that has no right to switch, where the tracer collects records. Nothing if there is
/// no such moment: calls until the session goes on then have no id.
pub fn turn_on_soon() {
    if !ARE_ON.load(Ordering::Acquire)
        && let Some(root) = root::of_tracer()
        && let Some(switching) = Switching::take()
    {
        turn_on_between_calls(root, &switching, Switching::WAIT_NS);
    }
}
