//! Memory as counters: a process has one for kinds, one for lines, one for pools, each with several values.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::export::memory_counters::{MemoryCounter, MemoryCounters, MemoryValue};

/// The last values of each counter, by process: an event has all of them.
#[derive(Debug, Default)]
pub struct MemorySeries(FxHashMap<(u32, &'static str), BTreeMap<String, u64>>);

impl MemorySeries {
    /// Sets a value, and returns the counter's name with all of its values.
    pub fn set(
        &mut self,
        process: u32,
        value: &MemoryValue,
        memory: &MemoryCounters,
    ) -> (&'static str, &BTreeMap<String, u64>) {
        let counter = match value.counter {
            MemoryCounter::Held => "memory held on devices",
            MemoryCounter::Kind(_) => "memory in use",
            MemoryCounter::Line(_) => "memory by line",
            MemoryCounter::PoolUsed(_) | MemoryCounter::PoolReserved(_) => "memory pools",
        };
        let series = self.0.entry((process, counter)).or_default();
        series.insert(memory.series(process, value.counter), value.bytes);
        (counter, series)
    }

    pub fn process_ends(&mut self, ended: u32) {
        self.0.retain(|(process, _), _| *process != ended);
    }
}
