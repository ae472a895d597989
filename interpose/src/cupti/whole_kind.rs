//! Switches the activity kind of graph-level timing (`GRAPH_TRACE`), in one place and at safe moments.
//!
//! Owns a second undocumented rule of CUPTI. If the kind is switched in the middle of a graph launch, CUPTI
//! crashes or the launch has no record (measured on driver 580 with CUPTI 13.0: a crash in three of five
//! runs, two launches without a record in another). Between launches the kind may be switched, even while
//! the device still runs graphs. So this module counts graph launches under way, and the kind is switched
//! by a thread that finds none: the service thread, a thread that makes a graph, a client, or the next
//! launch before it begins. A launch that comes during those microseconds waits.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cupti_sys::cupti::{CUpti_ActivityKind as Kind, CUptiResult};
use gputrace_producer::stderr::KeepErrno;
use gputrace_producer::{system, thread};

use super::graph_state::{self, State};
use super::kinds::{self, Requester};
use super::root::{self, Root};

const GRAPH_LEVEL: Kind = Kind::CUPTI_ACTIVITY_KIND_GRAPH_TRACE;

/// Number of graph launches under way; the top bit is set during a switch.
static GATE: AtomicU32 = AtomicU32::new(0);
const SWITCHING: u32 = 1 << 31;
/// The longest wait of a launch for a switch. A switch takes 8 to 25 µs, more only if its thread is delayed.
const PATIENCE: Duration = Duration::from_secs(1);
/// Whether the kind differs from what is wanted: the next launch or turn switches it.
static IS_BEHIND: AtomicBool = AtomicBool::new(false);

/// Whether the kind is on for the tracer.
pub fn is_on() -> bool {
    kinds::is_requested(Requester::Graphs, GRAPH_LEVEL.0)
}

/// A graph launch is under way for as long as this lives.
pub struct Launching(());

/// To be called before the driver launches a graph.
#[inline]
pub fn launch_begins() -> Launching {
    if IS_BEHIND.load(Ordering::Relaxed) {
        catch_up();
    }
    // SYNC: Acquire: CUPTI's part of the launch comes after a finished switch (Release of the gate).
    if GATE.fetch_add(1, Ordering::Acquire) & SWITCHING != 0 {
        wait_for_switch();
    }
    Launching(())
}

impl Drop for Launching {
    #[inline]
    fn drop(&mut self) {
        // SYNC: Release: a later switch comes after this launch.
        GATE.fetch_sub(1, Ordering::Release);
    }
}

#[cold]
#[inline(never)]
fn wait_for_switch() {
    // In a forked child no thread finishes the switch that its parent was in.
    if root::of_tracer().is_none() {
        return;
    }
    let begun = Instant::now();
    while GATE.load(Ordering::Acquire) & SWITCHING != 0 && begun.elapsed() < PATIENCE {
        system::yield_now();
    }
}

#[cold]
#[inline(never)]
fn catch_up() {
    let _errno = KeepErrno::new();
    if let Some(root) = root::of_tracer() {
        apply(root, Duration::ZERO);
    }
}

/// Applies the wanted state of the kind, if possible within `patience`; true if it is in effect.
pub fn apply(root: &Root, patience: Duration) -> bool {
    let begun = Instant::now();
    loop {
        if GATE.compare_exchange(0, SWITCHING, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            let is_applied = switch(root);
            GATE.fetch_and(!SWITCHING, Ordering::Release);
            // A thread that changed the wanted state and found this switch or a launch under way set
            // IS_BEHIND. So the wanted state is read once more after IS_BEHIND is cleared.
            IS_BEHIND.store(false, Ordering::SeqCst);
            if is_applied && graph_state::now().wants_kind() != is_on() {
                continue;
            }
            return is_applied;
        }
        if graph_state::now().wants_kind() == is_on() && GATE.load(Ordering::SeqCst) & SWITCHING == 0 {
            return true;
        }
        IS_BEHIND.store(true, Ordering::SeqCst);
        if begun.elapsed() >= patience {
            return false;
        }
        system::yield_now();
    }
}

/// Switches the kind until it is as wanted; false if CUPTI refuses. The gate is closed by the caller.
///
/// The wanted state may change during a switch. It is read again before a launch may begin, because CUPTI
/// would crash if the kind were on by a decision from before a graph was made without it.
fn switch(root: &Root) -> bool {
    loop {
        let state = graph_state::now();
        let is_wanted = state.wants_kind();
        if is_wanted == is_on() {
            return true;
        }
        if !is_wanted && !state.can_prepare {
            // With this CUPTI, graphs not launched yet would crash at a launch with the kind on again.
            graph_state::update(State::forbid_graph_level);
        }
        let change = if is_wanted { kinds::request } else { kinds::withdraw };
        let result = change(root, Requester::Graphs, GRAPH_LEVEL);
        if result != CUptiResult::CUPTI_SUCCESS {
            graph_state::update(|state| state.refuse(result));
            return false;
        }
    }
}

/// CUPTI reports a new executable graph. A graph made outside our hooks is not prepared.
pub fn at_graph_creation() {
    let is_ours = thread::with(|slot| slot.is_inside()) && is_on();
    if !is_ours {
        graph_state::update(State::forbid_graph_level);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_are_counted_and_wait_for_nobody_where_cupti_is_not_used() {
        let (first, second) = (launch_begins(), launch_begins());
        assert_eq!(GATE.load(Ordering::Relaxed), 2);
        drop(first);
        drop(second);
        GATE.store(SWITCHING, Ordering::Relaxed);
        drop(launch_begins());
        assert_eq!(GATE.load(Ordering::Relaxed), SWITCHING);
        GATE.fetch_and(!SWITCHING, Ordering::Release);
        assert_eq!(GATE.load(Ordering::Relaxed), 0);
    }
}
