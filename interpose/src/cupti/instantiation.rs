//! Executable graphs, and whether they may be timed as a whole.
//!
//! Owns one rule of CUPTI's that is written nowhere. Where the kind for whole graphs (`GRAPH_TRACE`) goes on
//! after an executable graph was made, the next launch of that graph crashes inside CUPTI. Of a graph that was made while the
//! kind was on, launches may come with it on and off in turn, whatever is updated, cloned or under way meanwhile, and
//! switching off is always safe. (Measured on driver 580, CUPTI 12.9 and 13.0, with 3 to 1000 nodes; 11.8 crashes as well if the kind goes
//! off between the making and the first launch.) So while graphs may yet come to be timed as a whole, the kind is
//! on for as long as one is being made, which takes 8 to 25 µs; and where a graph escaped that, the kind never goes on.
//!
//! A launch by another thread in that moment has one record instead of its nodes', as any whole launch.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cupti_sys::cupti::{ApiVersion, CUptiResult};
use gputrace_producer::stderr::KeepErrno;
use gputrace_producer::thread;

use super::client;
use super::graph_times::{self, WHOLE};
use super::root::{Root, Who};

/// From here on (12.9; nothing between it and 11.8 was tried) a graph may be made with the kind on, and first launched with it off.
const PREPARES: ApiVersion = ApiVersion(28);
/// How long a thread waits for another that is just switching the kind, which takes it some microseconds.
const PATIENCE: Duration = Duration::from_millis(20);

/// There is an executable graph that CUPTI would crash over.
static UNPREPARED: AtomicBool = AtomicBool::new(false);
/// Graphs that are being made with the kind on.
static UNDER_WAY: AtomicU32 = AtomicU32::new(0);
/// Somebody is switching the kind.
static SWITCHING: AtomicBool = AtomicBool::new(false);

/// Whether the kind may go on beneath the graphs that there are.
pub fn all_are_prepared() -> bool {
    !UNPREPARED.load(Ordering::SeqCst)
}

/// Whether some are being made with the kind on.
pub fn is_under_way() -> bool {
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

/// Whoever holds it may switch the kind for whole graphs. Not a lock that one waits on for long: a thread that a fork or a
/// signal cut short must not stop the others.
pub struct Switch(());

impl Switch {
    /// `None` where another thread does not come to an end with it.
    pub fn take() -> Option<Switch> {
        let begun = Instant::now();
        while SWITCHING.swap(true, Ordering::SeqCst) {
            if begun.elapsed() > PATIENCE {
                return None;
            }
            std::thread::yield_now();
        }
        Some(Switch(()))
    }

    /// Switches it off.
    pub fn off(&self, root: &Root) {
        // Those graphs are made without it from here on.
        if is_under_way() {
            give_up();
        }
        // Nor can those be launched again with it on that were not launched yet.
        if !can_prepare(root.version()) {
            give_up();
        }
        root.want(Who::Tracer, WHOLE, false);
    }

    pub fn on(&self, root: &Root) -> CUptiResult {
        root.want(Who::Tracer, WHOLE, true)
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        SWITCHING.store(false, Ordering::SeqCst);
    }
}

/// An executable graph is being made for as long as this lives.
pub struct Making {
    with_kind: Option<&'static Root>,
}

/// Before the driver makes an executable graph.
pub fn begins() -> Making {
    let _errno = KeepErrno::new();
    let with_kind = prepare();
    if with_kind.is_none() {
        give_up();
    }
    Making { with_kind }
}

/// Sees to it that the kind is on; `None` where it is not to be, or cannot.
fn prepare() -> Option<&'static Root> {
    let root = client::in_use()?;
    if !all_are_prepared() || !graph_times::may_become_whole(root) {
        return None;
    }
    let switch = Switch::take()?;
    // SYNC: with `graph_times`, where a guest says what it wants before it looks for graphs that are being made.
    if switch.on(root) != CUptiResult::CUPTI_SUCCESS {
        return None;
    }
    UNDER_WAY.fetch_add(1, Ordering::SeqCst);
    // A guest may have come in between, to whom the nodes belong.
    if !graph_times::may_become_whole(root) {
        switch.off(root);
    }
    Some(root)
}

impl Drop for Making {
    fn drop(&mut self) {
        let Some(root) = self.with_kind else { return };
        let _errno = KeepErrno::new();
        let switch = Switch::take();
        let is_last = UNDER_WAY.fetch_sub(1, Ordering::SeqCst) == 1;
        // Without the switch it stays on: launches are timed as a whole until the next graph is made.
        if let Some(switch) = switch
            && is_last
            && !graph_times::is_whole()
        {
            switch.off(root);
        }
    }
}

/// CUPTI says that an executable graph was made. One that no hook of ours saw is not prepared.
pub fn at_creation() {
    let is_ours = is_under_way() && thread::with(|slot| slot.is_inside());
    if !is_ours && !graph_times::is_whole() {
        give_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_switches_at_a_time_and_nobody_waits_for_ever() {
        let switch = Switch::take().unwrap();
        assert!(std::thread::spawn(|| Switch::take().is_none()).join().unwrap());
        drop(switch);
        assert!(std::thread::spawn(|| Switch::take().is_some()).join().unwrap());
    }

    #[test]
    fn a_graph_made_without_cupti_can_never_be_timed_as_a_whole() {
        assert!(all_are_prepared());
        drop(begins());
        assert!(!all_are_prepared());
        UNPREPARED.store(false, Ordering::SeqCst);
    }
}
