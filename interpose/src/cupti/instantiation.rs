//! Executable graphs, and whether they may be timed as a whole.
//!
//! Owns one rule of CUPTI's that is written nowhere. Where the kind for whole graphs goes on after an executable graph was
//! made, the next launch of that graph crashes inside CUPTI. Of a graph that was made while the kind was on, launches may come with
//! it on and off in turn, whatever is updated, cloned or under way meanwhile, and switching off needs no care of this sort.
//! (Measured on driver 580, CUPTI 12.8, 12.9 and 13.0, with 3 to 1000 nodes; 11.8 crashes as well if the kind goes off between the
//! making and the first launch.) So while graphs may yet come to be timed as a whole, the kind is on for as long as one is
//! being made, which takes 8 to 25 µs; and where a graph escaped that, the kind never goes on.
//!
//! A launch by another thread in that moment has one record instead of its nodes', as any whole launch.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use cupti_sys::cupti::ApiVersion;
use gputrace_producer::stderr::KeepErrno;
use gputrace_producer::thread;

use super::root::Root;
use super::{client, graph_times, whole_kind};

/// From here on (12.8; nothing between it and 11.8 was tried) a graph may be made with the kind on, and first launched with it off.
const PREPARES: ApiVersion = ApiVersion::CUDA_12_8;
/// How long a thread that makes a graph waits for a moment without a launch of one.
const PATIENCE: Duration = Duration::from_millis(20);

/// There is an executable graph that CUPTI would crash over.
static UNPREPARED: AtomicBool = AtomicBool::new(false);
/// Graphs that are being made for which the kind is to be on.
static UNDER_WAY: AtomicU32 = AtomicU32::new(0);

/// Whether the kind may go on beneath the graphs that there are.
pub fn all_are_prepared() -> bool {
    !UNPREPARED.load(Ordering::SeqCst)
}

/// Whether some are being made with the kind on.
pub fn are_under_way() -> bool {
    UNDER_WAY.load(Ordering::SeqCst) > 0
}

/// Whether this CUPTI can be made ready for a switch.
pub fn can_prepare(version: ApiVersion) -> bool {
    version >= PREPARES
}

/// From here on some graph is, or may be, one that CUPTI would crash over.
pub fn give_up() {
    UNPREPARED.store(true, Ordering::SeqCst);
}

/// An executable graph is being made for as long as this lives.
pub struct Making {
    with_kind: Option<&'static Root>,
}

/// Before the driver makes an executable graph.
pub fn begins() -> Making {
    let _errno = KeepErrno::new();
    let with_kind = client::in_use().filter(|root| all_are_prepared() && graph_times::may_become_whole(root));
    if let Some(root) = with_kind {
        UNDER_WAY.fetch_add(1, Ordering::SeqCst);
        whole_kind::settle(root, PATIENCE);
    }
    // The kind stays on until the last graph is made; only a guest switches it off before, and gives up.
    if with_kind.is_none() || !whole_kind::is_on() {
        give_up();
    }
    Making { with_kind }
}

impl Drop for Making {
    fn drop(&mut self) {
        let Some(root) = self.with_kind else { return };
        let _errno = KeepErrno::new();
        UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
        // Where it cannot be off at once, the next launch or turn switches it.
        whole_kind::settle(root, Duration::ZERO);
    }
}

/// CUPTI says that an executable graph was made. One that no hook of ours saw is not prepared.
pub fn at_creation() {
    let is_ours = thread::with(|slot| slot.is_inside()) && whole_kind::is_on();
    if !is_ours {
        give_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_made_without_cupti_can_never_be_timed_as_a_whole() {
        assert!(all_are_prepared());
        drop(begins());
        assert!(!all_are_prepared());
        UNPREPARED.store(false, Ordering::SeqCst);
    }
}
