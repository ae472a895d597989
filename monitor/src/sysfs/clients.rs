//! The processes that have a card open, from the kernel's statistics of descriptors (`drm-usage-stats`).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::identity::Identities;
use crate::plausible;
use crate::process::{GpuProcess, ProcessKind};

/// What one process has used.
#[derive(Clone, Debug, Default)]
struct Use {
    memory: Option<u64>,
    /// Busy time of each engine, in nanoseconds.
    engines: BTreeMap<String, u64>,
}

/// Reads them again and again: utilisation is the difference of two readings.
#[derive(Debug)]
pub struct Clients {
    identities: Identities,
    last: Option<(Instant, HashMap<u32, Use>)>,
}

/// Processes, and the busiest engine's utilisation by all of them.
pub type Reading = (Vec<GpuProcess>, Option<u32>);

impl Clients {
    pub fn new(identities: Identities) -> Clients {
        Clients { identities, last: None }
    }

    /// Sees only processes whose descriptors this user may read.
    pub fn read(&mut self, proc: &Path, bus_id: &str) -> Reading {
        let now = Instant::now();
        let found = users(proc, bus_id);
        let mut total: BTreeMap<String, u64> = BTreeMap::new();
        let mut processes = Vec::new();
        let mut elapsed = None;
        for (pid, used) in &found {
            let mut process = self.identities.process(*pid, ProcessKind::Unknown);
            process.memory = used.memory;
            if let Some((then, before)) = &self.last {
                let since = now.duration_since(*then);
                elapsed = Some(since);
                // One that was not there before has used nothing then.
                let before = before.get(pid).cloned().unwrap_or_default();
                let busy = |name: &String, ns: &u64| {
                    ns.saturating_sub(before.engines.get(name).copied().unwrap_or(0))
                };
                let differences = used.engines.iter().map(|(name, ns)| (name.clone(), busy(name, ns)));
                let differences: Vec<(String, u64)> = differences.collect();
                process.gpu_percent = differences.iter().map(|(_, ns)| percent(*ns, since)).max();
                differences.into_iter().for_each(|(name, ns)| *total.entry(name).or_default() += ns);
            }
            processes.push(process);
        }
        self.identities.keep_only(&processes);
        self.last = Some((now, found));
        processes.sort_by_key(|process| (std::cmp::Reverse(process.memory), process.pid));
        let busiest = elapsed.and_then(|since| total.values().map(|ns| percent(*ns, since)).max());
        (processes, busiest)
    }
}

fn percent(busy_ns: u64, since: Duration) -> u32 {
    (u128::from(busy_ns) * 100 / since.as_nanos().max(1)).min(100) as u32
}

fn users(proc: &Path, bus_id: &str) -> HashMap<u32, Use> {
    let mut found = HashMap::new();
    for entry in fs::read_dir(proc).into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(used) = user(&entry.path(), bus_id) {
            found.insert(pid, used);
        }
    }
    found
}

/// Of a process without an open card `None`. A client with several descriptors is counted once.
fn user(process: &Path, bus_id: &str) -> Option<Use> {
    let mut used: Option<Use> = None;
    let mut clients = HashSet::new();
    for descriptor in fs::read_dir(process.join("fd")).ok()?.flatten() {
        if !fs::read_link(descriptor.path()).is_ok_and(|target| target.starts_with("/dev/dri")) {
            continue;
        }
        let statistics = process.join("fdinfo").join(descriptor.file_name());
        let Ok(text) = fs::read_to_string(statistics) else { continue };
        let field = |name: &str| {
            text.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
        };
        if field("drm-pdev") != Some(bus_id) || !clients.insert(field("drm-client-id").map(str::to_owned)) {
            continue;
        }
        add(used.get_or_insert_default(), &text);
    }
    used
}

/// Memory of the device is called `vram` (amdgpu), `local` (i915) or `vram0` (xe).
fn add(used: &mut Use, text: &str) {
    let mut memory: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
        if let Some(engine) = name.strip_prefix("drm-engine-")
            && let Some(ns) = value.trim().strip_suffix(" ns").and_then(|ns| ns.trim().parse::<u64>().ok())
        {
            *used.engines.entry(engine.to_owned()).or_default() += ns;
        }
        for kind in ["drm-resident-", "drm-memory-"] {
            if let Some(region) = name.strip_prefix(kind)
                && (region.starts_with("vram") || region.starts_with("local"))
                && let Some(bytes) = bytes(value)
            {
                // Older and newer kernels have other names for the same; both may be there.
                memory.entry(region).or_insert(bytes);
            }
        }
    }
    if !memory.is_empty() {
        used.memory = plausible::bytes(used.memory.unwrap_or(0).saturating_add(memory.values().sum()));
    }
}

/// `123 KiB`; without a unit bytes.
fn bytes(text: &str) -> Option<u64> {
    let mut words = text.split_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    let factor = match words.next() {
        None => 1,
        Some("KiB") => 1 << 10,
        Some("MiB") => 1 << 20,
        Some(_) => return None,
    };
    number.checked_mul(factor)
}
