//! The kind for whole graphs (`GRAPH_TRACE`): when it may be switched, and the one place where it is.
//!
//! Owns another rule of CUPTI's that is written nowhere: switched in the middle of a launch of a graph it crashes, or the launch has no
//! record (measured on driver 580 with CUPTI 13.0: three of five times, and two launches in another). Between launches it
//! may be switched, whatever the device is still at. So launches of graphs are counted as they come and go, and the kind is switched
//! by whoever finds none under way: the service thread, a thread that makes a graph, a client, or the next launch before it
//! begins. A launch that comes in those microseconds waits for them.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cupti_sys::cupti::{CUpti_ActivityKind as Kind, CUptiResult};
use gputrace_producer::stderr::KeepErrno;
use gputrace_producer::system;

use super::root::{self, Root, Who};
use super::{client, graph_times, instantiation};

const WHOLE: Kind = Kind::CUPTI_ACTIVITY_KIND_GRAPH_TRACE;

/// Launches of graphs that are under way, and a bit for a switch.
static GATE: AtomicU32 = AtomicU32::new(0);
const SWITCHING: u32 = 1 << 31;
/// How long a launch waits for a switch. It takes 8 to 25 µs; more only where the thread that switches is held up.
const PATIENCE: Duration = Duration::from_secs(1);
/// The kind is not as it is wanted: the next launch switches it, or the next turn.
static IS_BEHIND: AtomicBool = AtomicBool::new(false);

/// Whether the kind is on for the tracer.
pub fn is_on() -> bool {
    root::wants(Who::Tracer, WHOLE.0)
}

/// A launch of a graph is under way for as long as this lives.
pub struct Launching(());

/// Before the driver launches a graph.
#[inline]
pub fn launch_begins() -> Launching {
    if IS_BEHIND.load(Ordering::Relaxed) {
        catch_up();
    }
    // SYNC: Acquire, so that CUPTI's launch comes after the switch that a switcher released.
    if GATE.fetch_add(1, Ordering::Acquire) & SWITCHING != 0 {
        wait_for_switch();
    }
    Launching(())
}

impl Drop for Launching {
    #[inline]
    fn drop(&mut self) {
        // SYNC: Release, so that a switch comes after the launch.
        GATE.fetch_sub(1, Ordering::Release);
    }
}

#[cold]
#[inline(never)]
fn wait_for_switch() {
    // In a forked child nobody switches any more, whatever its parent was at.
    if client::in_use().is_none() {
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
    if let Some(root) = client::in_use() {
        settle(root, Duration::ZERO);
    }
}

/// Switches the kind to what is wanted of it, if that can be within so long; true if it is so now.
pub fn settle(root: &Root, patience: Duration) -> bool {
    let begun = Instant::now();
    loop {
        if GATE.compare_exchange(0, SWITCHING, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            let is_settled = switch(root);
            GATE.fetch_and(!SWITCHING, Ordering::Release);
            // What is wanted may have changed after we looked. Whoever changed it, and found us or a launch here, says that we are
            // behind: that must not be taken back after we have looked again.
            IS_BEHIND.store(false, Ordering::SeqCst);
            if is_settled && graph_times::wants_whole(root) != is_on() {
                continue;
            }
            return is_settled;
        }
        if graph_times::wants_whole(root) == is_on() && GATE.load(Ordering::SeqCst) & SWITCHING == 0 {
            return true;
        }
        IS_BEHIND.store(true, Ordering::SeqCst);
        if begun.elapsed() >= patience {
            return false;
        }
        system::yield_now();
    }
}

/// With the gate closed.
fn switch(root: &Root) -> bool {
    let wanted = graph_times::wants_whole(root);
    if wanted == is_on() {
        return true;
    }
    if !wanted && !instantiation::can_prepare(root.version()) {
        // Graphs that were not launched yet could not be launched with it on any more.
        instantiation::give_up();
    }
    let result = root.want(Who::Tracer, WHOLE, wanted);
    graph_times::note_result(result);
    result == CUptiResult::CUPTI_SUCCESS
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
