//! What the live view says of one running process: its live allocations and what a hook costs.

use serde::{Deserialize, Serialize};

use crate::metrics::MemoryUse;
use crate::model::definitions::Definitions;
use crate::model::operation::HostCall;
use crate::model::process_snapshot::ProcessSnapshot;

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LiveProcess {
    pub pid: u32,
    /// Allocations of device and managed memory that were not freed; `None` once a context ended, or after
    /// too many.
    pub allocations: Option<u64>,
    /// The mean time of a hook, of those that were measured.
    pub hook_cost_ns: Option<f64>,
}

/// What is kept of a running process.
#[derive(Debug)]
pub(super) struct Observed {
    pid: u32,
    memory: MemoryUse,
    hook_cost_ns: Option<f64>,
}

impl Observed {
    pub fn new(pid: u32) -> Observed {
        Observed { pid, memory: MemoryUse::default(), hook_cost_ns: None }
    }

    pub fn memory_call(&mut self, call: &HostCall, definitions: &Definitions) {
        self.memory.follow(call, definitions);
    }

    pub fn snapshot(&mut self, snapshot: &ProcessSnapshot<'_>) {
        let calls = snapshot.counts.host_calls();
        let is_measured = snapshot.counters.sampled_hooks > 0 && calls > 0;
        self.hook_cost_ns = is_measured.then(|| snapshot.hooks_ns() / calls as f64);
    }

    pub fn process(&self) -> LiveProcess {
        let is_known = self.memory.is_known();
        LiveProcess {
            pid: self.pid,
            allocations: is_known.then(|| self.memory.live_on_device()),
            hook_cost_ns: self.hook_cost_ns,
        }
    }
}
