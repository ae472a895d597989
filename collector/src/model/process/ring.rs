//! A ring, as far as the stream has come in it.

use crate::model::instances::OpenInstances;

/// What a ring's earlier entries say about its later ones.
#[derive(Debug, Default)]
pub struct RingState {
    pub thread: u32,
    /// The ranges that are open on it, a node of the tree of names.
    pub ranges: u32,
    /// The same ranges, this time that they are open.
    pub instances: OpenInstances,
    /// For whom the thread says that it works, a number of the process's callers.
    pub said: u32,
    /// For whom is what is done now.
    pub caller: u32,
    /// The number of the innermost range that is of that caller.
    pub range: u32,
    pub epoch: Option<u32>,
    /// Where the stream is in the ring: cells since it was made.
    pub position: u64,
    /// Cells to come that another trace had already.
    pub repeated: u64,
}

impl RingState {
    /// Ranges or the thread's caller are others than before.
    pub fn update_caller(&mut self) {
        self.caller = self.instances.caller(self.said);
        self.range = self.instances.innermost(self.caller);
    }

    /// How many of the ring's cells any trace had so far.
    pub fn seen(&self) -> u64 {
        self.position.saturating_add(self.repeated)
    }
}
