//! What is kept of one running process for the live view.

use super::live_process::LiveProcess;
use super::memory_rows::{self, AllocationRates};
use super::tables::LiveTables;
use crate::aggregate::Aggregates;
use crate::memory::ProcessMemory;
use crate::model::definitions::Definitions;
use crate::model::process_snapshot::ProcessSnapshot;

/// What is kept of a running process.
#[derive(Debug)]
pub(super) struct Observed {
    pid: u32,
    rates: AllocationRates,
    hook_cost_ns: Option<f64>,
}

impl Observed {
    pub fn new(pid: u32) -> Observed {
        Observed { pid, rates: AllocationRates::default(), hook_cost_ns: None }
    }

    pub fn snapshot(&mut self, snapshot: &ProcessSnapshot<'_>) {
        self.hook_cost_ns = snapshot.hook_cost_ns();
    }

    /// The tables of the process, as of that time.
    pub fn tables(
        &mut self,
        number: u32,
        aggregates: &Aggregates,
        at_ns: u64,
        definitions: &Definitions,
    ) -> LiveTables {
        let memory = aggregates.memory.process(number);
        let mut rows = memory.map_or_else(Vec::new, |memory| memory_rows::rows(number, memory, definitions));
        self.rates.rate(&mut rows, at_ns);
        LiveTables {
            memory: rows,
            ..LiveTables::new(aggregates, (number, self.process(memory)), definitions)
        }
    }

    fn process(&self, memory: Option<&ProcessMemory>) -> LiveProcess {
        let is_known =
            memory.is_none_or(|memory| memory.contexts_ended == 0 && memory.not_followed.count == 0);
        LiveProcess {
            pid: self.pid,
            allocations: is_known.then(|| memory.map_or(0, |memory| memory.on_device.count)),
            held_bytes: memory.map_or(0, |memory| memory.on_device.bytes),
            peak_bytes: memory.map_or(0, |memory| memory.peak.bytes),
            hook_cost_ns: self.hook_cost_ns,
        }
    }
}
