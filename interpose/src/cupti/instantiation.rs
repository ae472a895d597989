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

use std::time::Duration;

use gputrace_producer::stderr::KeepErrno;

use super::graph_state::{self, State};
use super::root::{self, Root};
use super::{attach, whole_kind};

/// The longest wait of a thread that makes a graph for a moment without a graph launch. A graph launch may
/// itself wait for a flush, seldom for more than 40 ms.
const PATIENCE: Duration = Duration::from_millis(50);

/// An executable graph is being made for as long as this lives.
pub struct Making {
    with_kind: Option<&'static Root>,
}

/// To be called before the driver makes a graph or begins to capture one: CUPTI numbers the nodes as they are
/// made.
pub fn graph_begins() {
    attach::subscribe_for_graph();
}

/// To be called before the driver makes an executable graph.
pub fn begins() -> Making {
    let _errno = KeepErrno::new();
    attach::subscribe_for_graph();
    let with_kind = root::of_tracer().filter(|_| {
        let (before, after) = graph_state::update(State::begin_graph);
        before != after
    });
    // Other threads' launches meanwhile may have records. The callbacks say of which calls these are.
    if with_kind.is_some() {
        attach::turn_callbacks_on();
    }
    let is_applied = with_kind.is_some_and(|root| whole_kind::apply(root, PATIENCE));
    // The kind stays on until the last graph is made. Only a guest switches it off earlier, which forbids
    // graph-level timing.
    if !is_applied || !whole_kind::is_on() {
        graph_state::update(State::forbid_graph_level);
    }
    Making { with_kind }
}

impl Drop for Making {
    fn drop(&mut self) {
        let Some(root) = self.with_kind else { return };
        let _errno = KeepErrno::new();
        graph_state::update(State::end_graph);
        // If the kind cannot be switched off at once, the next launch or turn does it.
        whole_kind::apply(root, Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graph_made_without_cupti_never_allows_graph_level_timing() {
        assert!(!graph_state::now().is_unprepared);
        drop(begins());
        assert!(graph_state::now().is_unprepared);
        graph_state::update(|_| State::default());
    }
}
