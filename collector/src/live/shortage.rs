//! What is written at once when a program lacks memory: who asked for how much, and who holds what.
//!
//! An allocation that is refused is not worth a word if the thread gets as much a moment later, as caching
//! allocators do. So the message waits for that, and for what other threads did before.

use std::collections::BTreeMap;

use gputrace_wire::cell::kind;

use crate::aggregate::{Aggregates, SampledDevices};
use crate::batch::DeviceMetric;
use crate::label::StackNames;
use crate::label::units::{bytes, count, percent};
use crate::memory::{GIVEN_LATER_NS, HeldMemory, MemoryRefusal, NAMES, ProcessMemory, is_of_host};
use crate::model::definitions::{Definitions, Device};
use crate::model::operation::HostCall;
use crate::names::line_safe;

/// Calls that are older than this have arrived from all threads.
const ARRIVED_NS: u64 = 100_000_000;
/// The least time between two messages.
const QUIET_NS: u64 = 10_000_000_000;
/// How far a figure of the device's may be from the refusal that it explains.
const NEAR_NS: u64 = 1_000_000_000;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: u16 = 2;

#[derive(Debug, Default)]
pub(super) struct Shortages {
    /// When the first refusal that was not looked at yet returned, by process.
    waiting: BTreeMap<u32, u64>,
    written_ns: Option<u64>,
}

impl Shortages {
    #[inline]
    pub fn call(&mut self, call: &HostCall) {
        if call.status == OUT_OF_MEMORY && call.kind == kind::ALLOC {
            let returned_ns = call.start_ns.saturating_add(call.duration_ns);
            self.waiting.entry(call.process).or_insert(returned_ns);
        }
    }

    /// The message on a process's latest refusal, once it is known whether the memory was given later.
    pub fn due(
        &mut self,
        process: u32,
        now_ns: u64,
        aggregates: &mut Aggregates,
        definitions: &Definitions,
    ) -> Option<String> {
        let refused_ns = *self.waiting.get(&process)?;
        if now_ns < refused_ns.saturating_add(GIVEN_LATER_NS + ARRIVED_NS) {
            return None;
        }
        self.waiting.remove(&process);
        aggregates.memory.catch_up(process, now_ns - ARRIVED_NS);
        self.message(process, now_ns, aggregates, definitions)
    }

    /// The same for a process that has ended, which will be given nothing any more.
    pub fn ended(
        &mut self,
        process: u32,
        last_seen_ns: u64,
        aggregates: &Aggregates,
        definitions: &Definitions,
    ) -> Option<String> {
        self.waiting.remove(&process)?;
        self.message(process, last_seen_ns, aggregates, definitions)
    }

    fn message(
        &mut self,
        process: u32,
        now_ns: u64,
        aggregates: &Aggregates,
        definitions: &Definitions,
    ) -> Option<String> {
        let memory = aggregates.memory.process(process)?;
        let refusal = memory.refusals.iter().rev().find(|refusal| !refusal.given_later)?;
        if self.written_ns.is_some_and(|written_ns| now_ns.saturating_sub(written_ns) < QUIET_NS) {
            return None;
        }
        self.written_ns = Some(now_ns);
        Some(message(process, memory, refusal, aggregates, definitions))
    }
}

fn message(
    process: u32,
    memory: &ProcessMemory,
    refusal: &MemoryRefusal,
    aggregates: &Aggregates,
    definitions: &Definitions,
) -> String {
    let mut stacks = StackNames::of_running(process, definitions);
    let mut line = |stack: u32| {
        let line = stacks.charged_line(process, stack);
        line_safe(&line.unwrap_or_else(|| "(no line known)".to_owned())).into_owned()
    };
    let kind = |kind: usize| NAMES.get(kind).copied().unwrap_or("unknown");
    // With several devices, no call says which one lacked the memory.
    let device = definitions.device_in_use();
    let total = device.as_ref().map(|device| device.total_memory_bytes);
    let is_of_device = !is_of_host(refusal.kind);
    let answered = answered_bytes(memory, refusal).filter(|_| is_of_device && device.is_some());
    let sampled = || sampled_bytes(device.as_ref()?, refusal, &aggregates.sampled_devices);
    let free = answered.or_else(|| sampled().filter(|_| is_of_device));
    let of_total = total.map_or_else(String::new, |total| format!(" of the device's {}", bytes(total)));
    let mut text = format!(
        "gputrace: out of memory: {} ({}) asked for at {}; the program holds {} in {} {}{of_total}\n",
        bytes(refusal.bytes),
        kind(refusal.kind),
        line(refusal.stack),
        bytes(refusal.held.bytes),
        count(refusal.held.count),
        if refusal.held.count == 1 { "allocation" } else { "allocations" },
    );
    let mut list = |memory: &ProcessMemory, holders: &[(usize, HeldMemory)]| {
        let mut by_line: Vec<(String, HeldMemory)> = Vec::new();
        for (site, held) in holders {
            let Some(site) = memory.sites().get(*site) else { continue };
            let name = format!("{} ({})", line(site.stack), kind(site.kind));
            match by_line.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => sum.add(*held),
                None => by_line.push((name, *held)),
            }
        }
        by_line.sort_by_key(|(_, held)| std::cmp::Reverse(held.bytes));
        let mut text = String::new();
        for (name, held) in by_line {
            let share = percent(held.bytes as f64 / refusal.held.bytes.max(1) as f64);
            text += &format!("  {:>10} {share:>6} in {:>6}  {name}\n", bytes(held.bytes), count(held.count));
        }
        text
    };
    text += &list(memory, &refusal.holders);
    if let Some((refused, blocks)) = refusal.blocks.as_deref().zip(aggregates.memory.blocks(process)) {
        let segments = &refused.segments;
        text += &format!(
            "  of it PyTorch gave out {}; {} are free in {} pieces beside blocks, the largest {}:\n",
            bytes(segments.allocated.bytes),
            bytes(segments.free_bytes),
            count(segments.free_pieces),
            bytes(segments.largest_free_bytes)
        );
        text += &list(&blocks.memory, &refused.holders);
    }
    if let Some((free, total)) = free.zip(total) {
        let others = total.saturating_sub(free).saturating_sub(refusal.held.bytes);
        text += &format!(
            "  the device has {} free; {} are not in the program's allocations: contexts, modules, other processes\n",
            bytes(free),
            bytes(others)
        );
    }
    text += &format!("  hint: {}\n", hint(refusal, total, answered));
    text
}

/// What the driver answered to the program after the refusal: PyTorch asks when it lacks memory.
fn answered_bytes(memory: &ProcessMemory, refusal: &MemoryRefusal) -> Option<u64> {
    let answered = memory.observed_last?;
    let since_ns = answered.at_ns.checked_sub(refusal.at_ns)?;
    (since_ns < NEAR_NS).then(|| answered.total_bytes.saturating_sub(answered.used_bytes))
}

/// What was free at the last sample, if that is near.
fn sampled_bytes(device: &Device, refusal: &MemoryRefusal, sampled: &SampledDevices) -> Option<u64> {
    let sample = sampled.of(device)?.last()?;
    let is_near = sample.monotonic_ns.abs_diff(refusal.at_ns) < NEAR_NS;
    let used_bytes = sample.get(DeviceMetric::MemoryUsed).filter(|_| is_near)?;
    Some(device.total_memory_bytes.saturating_sub(used_bytes))
}

/// What PyTorch had of the driver in segments with blocks, and did not give out.
fn free_beside_blocks(refusal: &MemoryRefusal) -> u64 {
    refusal.blocks.as_ref().map_or(0, |refused| refused.segments.free_bytes)
}

fn hint(refusal: &MemoryRefusal, total: Option<u64>, answered: Option<u64>) -> String {
    let needed = refusal.held.bytes.saturating_add(refusal.bytes);
    match total {
        Some(total) if refusal.bytes > total => "the device has less than that in all".to_owned(),
        Some(_) if free_beside_blocks(refusal) >= refusal.bytes => {
            "as much is free within PyTorch's segments, in pieces that are too small: set \
             PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or allocate what stays before what goes"
                .to_owned()
        }
        Some(_) if answered.is_some_and(|free| free >= refusal.bytes) => {
            "as much is free, in pieces that are too small: allocate the large ones first, or, in PyTorch, set \
             PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
                .to_owned()
        }
        Some(total) if needed > total => {
            "both together are more than the device has: make batches smaller, or free what the lines above hold".to_owned()
        }
        Some(total) => format!(
            "{} are not this program's: other processes and CUDA's own use take it (nvidia-smi), or what is free is in pieces that are too small",
            bytes(total.saturating_sub(refusal.held.bytes))
        ),
        None => "see what else is on the device (nvidia-smi), make batches smaller, or free what the lines above hold".to_owned(),
    }
}
