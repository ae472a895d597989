//! The state of one ring.

use crate::model::instances::OpenInstances;
use crate::model::since_launch::SinceLaunch;

/// What the entries read so far determine for the later ones.
#[derive(Debug, Default)]
pub struct RingState {
    pub thread: u32,
    /// The open ranges, a node of the tree of names.
    pub ranges: u32,
    /// The instances of these ranges.
    pub instances: OpenInstances,
    /// The thread's last CALLER entry, a number of the process's callers.
    pub thread_caller: u32,
    /// The active span: that of the innermost range that names one, else `thread_caller`.
    pub caller: u32,
    /// The number of the innermost range with that active span.
    pub range: u32,
    /// The thread's calls since its last launch.
    pub since_launch: SinceLaunch,
    pub epoch: Option<u32>,
    /// The number of the ring's cells that the stream has had.
    pub position: u64,
    /// The number of next cells that an earlier session already had.
    pub repeated: u64,
}

impl RingState {
    /// Updates `caller` and `range` after the ranges or `thread_caller` changed.
    pub fn update_caller(&mut self) {
        self.caller = self.instances.caller(self.thread_caller);
        self.range = self.instances.innermost(self.caller);
    }

    /// The number of the ring's cells that any session has had.
    pub fn seen(&self) -> u64 {
        self.position.saturating_add(self.repeated)
    }
}
