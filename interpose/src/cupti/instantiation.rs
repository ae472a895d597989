//! Executable graphs, and whether they allow graph-level timing.
//!
//! Owns an undocumented rule of CUPTI. If the kind of graph-level timing is switched on after an executable
//! graph was made, the next launch of that graph crashes inside CUPTI. A graph made while the kind was on
//! can be launched with the kind on and off in turn, whatever is updated, cloned or under way meanwhile;
//! switching the kind off needs no such care. (Measured on driver 580, CUPTI 12.8, 12.9 and 13.0, with 3 to
//! 1000 nodes. 11.8 also crashes if the kind is switched off between the making and the first launch.)
//! So while graph-level timing is still possible, the kind is on whenever a graph is being made, which
//! takes 8 to 25 µs. If a graph was made without it, the kind is never switched on again.
//!
//! A launch by another thread in that moment has one record instead of its nodes' records.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use cupti_sys::cupti::ApiVersion;
use gputrace_producer::stderr::KeepErrno;
use gputrace_producer::thread;

use super::root::Root;
use super::{client, graph_times, whole_kind};

/// From 12.8 on a graph may be made with the kind on and first launched with it off (measured; no version
/// between 11.8 and 12.8 was tried).
const PREPARES: ApiVersion = ApiVersion::CUDA_12_8;
/// The longest wait of a thread that makes a graph for a moment without a graph launch.
const PATIENCE: Duration = Duration::from_millis(20);

/// Whether some executable graph would crash CUPTI if the kind were switched on.
static UNPREPARED: AtomicBool = AtomicBool::new(false);
/// Number of graphs being made that need the kind on.
static UNDER_WAY: AtomicU32 = AtomicU32::new(0);

/// Whether all existing graphs allow the kind to be switched on.
pub fn all_are_prepared() -> bool {
    !UNPREPARED.load(Ordering::SeqCst)
}

/// Whether graphs are being made with the kind on.
pub fn are_under_way() -> bool {
    UNDER_WAY.load(Ordering::SeqCst) > 0
}

/// Whether this CUPTI lets graphs be prepared for a later switch.
pub fn can_prepare(version: ApiVersion) -> bool {
    version >= PREPARES
}

/// From here on the kind is never switched on: some graph may be one that CUPTI would crash over.
pub fn forbid_graph_level() {
    UNPREPARED.store(true, Ordering::SeqCst);
}

/// An executable graph is being made for as long as this lives.
pub struct Making {
    with_kind: Option<&'static Root>,
}

/// To be called before the driver makes an executable graph.
pub fn begins() -> Making {
    let _errno = KeepErrno::new();
    let with_kind =
        client::in_use().filter(|root| all_are_prepared() && graph_times::may_become_graph_level(root));
    if let Some(root) = with_kind {
        UNDER_WAY.fetch_add(1, Ordering::SeqCst);
        whole_kind::apply(root, PATIENCE);
    }
    // The kind stays on until the last graph is made. Only a guest switches it off earlier, and then calls
    // `forbid_graph_level`.
    if with_kind.is_none() || !whole_kind::is_on() {
        forbid_graph_level();
    }
    Making { with_kind }
}

impl Drop for Making {
    fn drop(&mut self) {
        let Some(root) = self.with_kind else { return };
        let _errno = KeepErrno::new();
        UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
        // If the kind cannot be switched off at once, the next launch or turn does it.
        whole_kind::apply(root, Duration::ZERO);
    }
}

/// CUPTI reports a new executable graph. A graph made outside our hooks is not prepared.
pub fn at_creation() {
    let is_ours = thread::with(|slot| slot.is_inside()) && whole_kind::is_on();
    if !is_ours {
        forbid_graph_level();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graph_made_without_cupti_never_allows_graph_level_timing() {
        assert!(all_are_prepared());
        drop(begins());
        assert!(!all_are_prepared());
        UNPREPARED.store(false, Ordering::SeqCst);
    }
}
