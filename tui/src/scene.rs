//! What is known at one moment, ready to be drawn or printed as JSON.

use std::collections::VecDeque;

use gputrace_monitor::{GpuDeviceInfo, GpuMetrics};
use serde::Serialize;

/// Everything that one frame shows.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Scene {
    pub devices: Vec<DeviceView>,
    pub processes: Vec<ProcessRow>,
    /// Sessions of this user that record programs on this machine.
    pub sessions: Vec<SessionView>,
    /// Whether devices are still being opened.
    #[serde(skip)]
    pub is_opening: bool,
    /// What could not be read, one line each.
    pub problems: Vec<String>,
    /// The time of day as the header shows it, `12:01:33`.
    pub time: String,
}

#[derive(Debug, Clone, Serialize)]
pub struct DeviceView {
    pub info: GpuDeviceInfo,
    pub sample: GpuMetrics,
    /// Utilisation in percent of the last minute, the newest last; `None` where it was unknown.
    #[serde(skip)]
    pub history: VecDeque<Option<u32>>,
    /// Live allocations of traced programs on this device; `None` if no program that uses it is traced.
    pub allocations: Option<u64>,
}

impl DeviceView {
    /// The share of the memory that is used, in percent.
    pub fn memory_percent(&self) -> Option<f64> {
        let (used, total) = (self.sample.memory.used?, self.sample.memory.total?);
        (total > 0).then(|| used as f64 * 100.0 / total as f64)
    }
}

/// One process on one device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProcessRow {
    pub pid: u32,
    /// Whether `pid` is one of the host's and names nothing in this container.
    pub is_host_pid: bool,
    pub device: u32,
    pub user: Option<String>,
    pub command: Option<String>,
    pub memory: Option<u64>,
    pub gpu_percent: Option<u32>,
    /// Live allocations, if the process is traced.
    pub allocations: Option<u64>,
    /// `None` for a host's pid, which no session in this container knows, and while a session is silent.
    pub is_traced: Option<bool>,
}

/// A session that records programs, as its collector reports it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SessionView {
    pub pid: u32,
    /// Why nothing else is known: its collector did not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    pub command: String,
    pub output: String,
    pub launches: u64,
    pub host_calls: u64,
    pub device_records: u64,
    pub events_per_second: f64,
    /// Lost events, over all reasons.
    pub lost: u64,
    /// The mean measured cost of a hook.
    pub hook_cost_ns: Option<f64>,
    /// Process ids of the programs that it records now.
    pub processes: Vec<u32>,
    /// What they hold on devices, and the most that one of them held.
    pub held_bytes: u64,
    pub peak_bytes: u64,
    pub tables: Tables,
}

/// The live tables of a session; empty where its collector has none.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Tables {
    pub kernels: Vec<TableRow>,
    pub lines: Vec<TableRow>,
    pub streams: Vec<TableRow>,
    pub copies: Vec<TableRow>,
    pub memory: Vec<MemoryRow>,
}

/// What a line allocated and holds.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct MemoryRow {
    pub name: String,
    /// `device`, `pool`, `pinned` and the like.
    pub kind: String,
    /// Whether it is part of what the programs hold on devices.
    pub is_on_device: bool,
    pub live_bytes: u64,
    pub live: u64,
    pub most_bytes: u64,
    pub allocations: u64,
    /// `None` until it is known.
    pub allocations_per_second: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TableRow {
    pub name: String,
    pub calls: u64,
    /// Device time in all; `None` without device times.
    pub total_ns: Option<u64>,
    /// Bytes moved, for copies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}
