//! What is known of a process's memory beside its allocations: pools, graphs, and the use of the device.

use serde::Serialize;

use crate::aggregate::SampledDevices;
use crate::batch::DeviceMetric;
use crate::label::units::bytes;
use crate::memory::{ObservedUse, PoolMemory, ProcessMemory};
use crate::model::Process;

/// A memory pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolReport {
    /// `null` if no call named it.
    pub handle: Option<String>,
    /// As the summary has it.
    #[serde(skip)]
    pub(super) name: String,
    /// A device's own, from which calls without a pool allocate.
    pub is_default: bool,
    /// The ordinal of the device whose own or current pool it is, where a call said so.
    pub device: Option<u32>,
    pub allocations: u64,
    pub allocated_bytes: u64,
    pub peak_bytes: u64,
    pub peak_at_ns: u64,
    pub end_bytes: u64,
    pub end_allocations: u64,
    /// The most that it may hold, if it was made with a limit.
    pub limit_bytes: Option<u64>,
    /// What it may keep of what is freed, as the program set it.
    pub keeps_bytes: Option<u64>,
    /// What it had taken from the device when the program last asked, and the most that it was told.
    pub reserved_bytes: Option<u64>,
    pub reserved_most_bytes: Option<u64>,
    pub trims: u64,
    pub is_destroyed: bool,
}

/// How much memory of the device was in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DeviceUseReport {
    /// `"program"`: what the driver answered when the program asked; `"samples"`: the most that was sampled.
    pub source: &'static str,
    /// `null` of samples.
    pub at_ns: Option<u64>,
    pub total_bytes: u64,
    pub used_bytes: u64,
    /// What the process held on devices then; of samples its peak.
    pub accounted_bytes: u64,
    /// The rest: contexts, modules, what pools and graphs keep, other processes.
    pub not_accounted_bytes: u64,
}

impl PoolReport {
    pub(super) fn new(process: &Process, pool: &PoolMemory) -> PoolReport {
        PoolReport {
            handle: Some(pool.handle).filter(|handle| *handle != 0).map(|handle| format!("{handle:#x}")),
            name: pool.name(),
            is_default: pool.is_default,
            device: pool.device,
            allocations: pool.allocated.count,
            allocated_bytes: pool.allocated.bytes,
            peak_bytes: pool.peak_bytes,
            peak_at_ns: if pool.peak_bytes == 0 { 0 } else { process.since_begin_ns(pool.peak_ns) },
            end_bytes: pool.used.bytes,
            end_allocations: pool.used.count,
            limit_bytes: pool.limit_bytes,
            keeps_bytes: pool.keeps_bytes,
            reserved_bytes: pool.reserved_bytes,
            reserved_most_bytes: pool.reserved_most_bytes,
            trims: pool.trims,
            is_destroyed: pool.is_destroyed,
        }
    }

    /// `own of device 0: at most 64.0 MiB in use, 0 B at the end; 96.0 MiB taken from the device`.
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "{}: at most {} in use, {} at the end",
            self.name,
            bytes(self.peak_bytes),
            bytes(self.end_bytes)
        );
        if let Some(reserved) = self.reserved_most_bytes {
            text += &format!("; {} taken from the device at most", bytes(reserved));
        }
        if let Some(limit) = self.limit_bytes {
            text += &format!("; limit {}", bytes(limit));
        }
        if self.is_destroyed && self.end_bytes > 0 {
            text += "; the pool was destroyed, which this memory outlives";
        }
        text
    }
}

impl DeviceUseReport {
    /// `None` if neither is known. A process with several devices holds memory on all of them, and either
    /// figure is of one: nothing can be subtracted.
    pub(super) fn new(
        process: &Process,
        memory: &ProcessMemory,
        sampled: &SampledDevices,
    ) -> Option<DeviceUseReport> {
        let device = process.definitions.device_in_use()?;
        let (source, used) = match memory.observed {
            Some(observed) => ("program", observed),
            None => {
                let used_bytes = sampled.of(&device)?.level(DeviceMetric::MemoryUsed).max()?;
                let total_bytes = device.total_memory_bytes;
                let accounted_bytes = memory.peak.bytes;
                // Samples that missed the peak say nothing of the rest.
                (used_bytes >= accounted_bytes).then_some(())?;
                ("samples", ObservedUse { at_ns: 0, total_bytes, used_bytes, accounted_bytes })
            }
        };
        Some(DeviceUseReport {
            source,
            at_ns: (source == "program").then(|| process.since_begin_ns(used.at_ns)),
            total_bytes: used.total_bytes,
            used_bytes: used.used_bytes,
            accounted_bytes: used.accounted_bytes,
            not_accounted_bytes: used.used_bytes.saturating_sub(used.accounted_bytes),
        })
    }

    pub(super) fn text(&self) -> String {
        format!(
            "{} of {} in use, {} of it not accounted: contexts, modules, what pools keep, other processes",
            bytes(self.used_bytes),
            bytes(self.total_bytes),
            bytes(self.not_accounted_bytes)
        )
    }
}
