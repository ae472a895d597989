//! The program's memory: by process, and by line.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use crate::aggregate::{Aggregates, SampledDevices};
use crate::label::units::{bytes, duration};
use crate::label::{Labels, StackNames};
use crate::memory::{HeldMemory, KindMemory, MemoryRefusal, Moment, NAMES, ProcessMemory, Site};
use crate::model::{Process, Totals};
use crate::report::CodeLocation;
use crate::report::lines::charged_location;
use crate::report::memory_state::{DeviceUseReport, PoolReport};
use crate::report::words::plural;

/// From so many live allocations on, a line is taken to hold more with each turn of a loop.
pub const REPEATED_MIN: u64 = 3;

#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MemoryReport {
    /// Processes that asked for memory.
    pub processes: Vec<ProcessMemoryReport>,
    /// The one that held the most at its process's peak first.
    pub lines: Vec<MemoryLineReport>,
    /// Calls of processes that were not followed, or are not kept.
    pub left_out: u64,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProcessMemoryReport {
    pub pid: u32,
    /// The most that it held on devices, and when it first did, since tracing of the process began.
    pub peak_bytes: u64,
    pub peak_allocations: u64,
    pub peak_at_ns: u64,
    /// What it held on devices at its end.
    pub end_bytes: u64,
    pub end_allocations: u64,
    /// The same with memory of the host that the driver allocated.
    pub leaked_bytes: u64,
    pub leaked_allocations: u64,
    pub kinds: Vec<MemoryKindReport>,
    /// In the order in which calls first named them.
    pub pools: Vec<PoolReport>,
    pub pools_left_out: u64,
    /// What graphs were made to allocate when they are launched, which is in no other figure.
    pub graph_allocations: u64,
    pub graph_bytes: u64,
    pub device_use: Option<DeviceUseReport>,
    pub sizes: Vec<SizeReport>,
    pub unmatched_frees: UnmatchedFreesReport,
    pub contexts_ended: u64,
    pub not_followed: u64,
    pub not_followed_bytes: u64,
    /// Allocations for which there was not enough memory.
    pub refused: u64,
    /// The first of them and the last.
    pub refusals: Vec<RefusalReport>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MemoryKindReport {
    pub kind: &'static str,
    pub allocations: u64,
    pub allocated_bytes: u64,
    pub frees: u64,
    pub freed_bytes: u64,
    pub peak_bytes: u64,
    pub peak_at_ns: u64,
    pub end_bytes: u64,
    pub end_allocations: u64,
}

/// Allocations of at least so many bytes, and fewer than twice as many.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SizeReport {
    pub from_bytes: u64,
    pub allocations: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UnmatchedFreesReport {
    pub unknown: u64,
    pub twice: u64,
    pub interior: u64,
    pub refused: u64,
}

/// Allocations of one kind that are charged to one line of one process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MemoryLineReport {
    pub pid: u32,
    pub line: Option<CodeLocation>,
    pub kind: &'static str,
    pub allocations: u64,
    pub allocated_bytes: u64,
    pub frees: u64,
    pub freed_bytes: u64,
    /// Freed before the process made two more allocations.
    pub temporary: u64,
    pub temporary_bytes: u64,
    pub ended_unfreed: u64,
    /// Host time in the calls that allocated, and in those that freed what they had allocated.
    pub calls_ns: u64,
    /// The sum of the most that each stack of the line had live at once: exact of a line with one stack.
    pub live_at_most_bytes: u64,
    /// At the process's peak of device memory.
    pub peak_bytes: u64,
    pub peak_allocations: u64,
    pub end_bytes: u64,
    pub end_allocations: u64,
    /// When the oldest that is live at the end was allocated, since tracing of the process began.
    pub oldest_at_ns: Option<u64>,
    /// At the time that was asked for, if one was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_allocations: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RefusalReport {
    pub at_ns: u64,
    pub tid: Option<u32>,
    pub call: String,
    pub kind: &'static str,
    pub bytes: u64,
    pub line: Option<CodeLocation>,
    /// What the process held on devices then.
    pub held_bytes: u64,
    /// Whether the thread got as much within half a second.
    pub given_later: bool,
    /// Who held the most of it.
    pub holders: Vec<HolderReport>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HolderReport {
    pub line: Option<CodeLocation>,
    pub kind: &'static str,
    pub bytes: u64,
    pub allocations: u64,
}

impl MemoryReport {
    /// The memory of an analysis.
    pub(super) fn new(totals: &Totals, aggregates: &Aggregates, labels: &mut Labels<'_>) -> Self {
        let has_asked = aggregates.memory.has_asked();
        let mut report = MemoryReport { left_out: aggregates.memory.beyond, ..MemoryReport::default() };
        for (number, memory) in aggregates.memory.iter() {
            let Some(process) = totals.process(number) else {
                report.left_out += memory.sites().iter().map(|site| site.allocated.count).sum::<u64>();
                continue;
            };
            report.lines.extend(lines(process, memory, &mut labels.stacks, has_asked));
            let sampled = &aggregates.sampled_devices;
            report.processes.push(process_memory(process, memory, sampled, &mut labels.stacks));
        }
        report.lines.sort_by(|a, b| {
            let weight = |line: &MemoryLineReport| {
                Reverse((line.peak_bytes, line.end_bytes, line.allocated_bytes, line.allocations))
            };
            weight(a).cmp(&weight(b)).then_with(|| (a.pid, &a.line, a.kind).cmp(&(b.pid, &b.line, b.kind)))
        });
        report
    }

    /// Lines with memory that was never freed: first those that hold [`REPEATED_MIN`] allocations or more, as
    /// a leak in a loop does, then by bytes.
    pub fn leaks(&self) -> Vec<&MemoryLineReport> {
        let is_leak = |line: &&MemoryLineReport| line.end_allocations > 0 && is_leaking(line.kind);
        let mut leaks: Vec<_> = self.lines.iter().filter(is_leak).collect();
        leaks.sort_by_key(|line| Reverse((line.end_allocations >= REPEATED_MIN, line.end_bytes)));
        leaks
    }

    /// Lines with temporary allocations, the one with the most first.
    pub fn temporary(&self) -> Vec<&MemoryLineReport> {
        let mut churn: Vec<_> = self.lines.iter().filter(|line| line.temporary > 0).collect();
        churn.sort_by_key(|line| Reverse((line.temporary, line.calls_ns)));
        churn
    }
}

impl MemoryLineReport {
    pub(super) fn is_on_device(&self) -> bool {
        !["pinned", "registered", "pageable", "imported"].contains(&self.kind)
    }

    /// `train.py:22 train_step`, and the kind if it is not ordinary memory of the device.
    pub fn text(&self, width: usize) -> String {
        let kind = if self.kind == "device" { String::new() } else { format!(" ({})", self.kind) };
        let left = width.saturating_sub(kind.chars().count());
        self.line.as_ref().map_or_else(|| "(no line)".to_owned(), |line| line.fitted(left)) + &kind
    }
}

impl ProcessMemoryReport {
    /// `at most 1.20 GiB on devices, after 3.2 s; 800 MiB in 100 allocations at the end`.
    pub(super) fn line(&self, names_process: bool) -> String {
        let process = if names_process { format!("process {}: ", self.pid) } else { String::new() };
        let held = plural(self.end_allocations, "allocation", "allocations");
        let end = match self.end_allocations {
            0 => "all freed at the end".to_owned(),
            _ => format!("{} in {held} at the end", bytes(self.end_bytes)),
        };
        let (peak, at) = (bytes(self.peak_bytes), duration(self.peak_at_ns));
        format!("{process}at most {peak} on devices, after {at}; {end}")
    }
}

/// Whether live memory of the kind is something that the driver allocated for the process.
fn is_leaking(kind: &str) -> bool {
    !["registered", "imported", "pageable"].contains(&kind)
}

fn kind_name(kind: usize) -> &'static str {
    NAMES.get(kind).copied().unwrap_or("unknown")
}

fn lines(
    process: &Process,
    memory: &ProcessMemory,
    stacks: &mut StackNames<'_>,
    has_asked: bool,
) -> Vec<MemoryLineReport> {
    let mut found: BTreeMap<(Option<CodeLocation>, usize), MemoryLineReport> = BTreeMap::new();
    for site in memory.sites() {
        let line = charged_location(stacks, process.number, site.stack);
        let pid = process.begin.pid;
        found
            .entry((line.clone(), site.kind))
            .or_insert_with(|| MemoryLineReport::empty(pid, line, site.kind, has_asked))
            .add(process, memory, site);
    }
    found.into_values().collect()
}

impl MemoryLineReport {
    fn empty(pid: u32, line: Option<CodeLocation>, kind: usize, has_asked: bool) -> MemoryLineReport {
        MemoryLineReport {
            pid,
            line,
            kind: kind_name(kind),
            allocations: 0,
            allocated_bytes: 0,
            frees: 0,
            freed_bytes: 0,
            temporary: 0,
            temporary_bytes: 0,
            ended_unfreed: 0,
            calls_ns: 0,
            live_at_most_bytes: 0,
            peak_bytes: 0,
            peak_allocations: 0,
            end_bytes: 0,
            end_allocations: 0,
            oldest_at_ns: None,
            at_bytes: has_asked.then_some(0),
            at_allocations: has_asked.then_some(0),
        }
    }

    fn add(&mut self, process: &Process, memory: &ProcessMemory, site: &Site) {
        let add = |[count, bytes]: [&mut u64; 2], held: HeldMemory| {
            *count = count.saturating_add(held.count);
            *bytes = bytes.saturating_add(held.bytes);
        };
        add([&mut self.allocations, &mut self.allocated_bytes], site.allocated);
        add([&mut self.frees, &mut self.freed_bytes], site.freed);
        add([&mut self.temporary, &mut self.temporary_bytes], site.temporary);
        add([&mut self.peak_allocations, &mut self.peak_bytes], memory.held(site, Moment::Peak));
        add([&mut self.end_allocations, &mut self.end_bytes], memory.held(site, Moment::End));
        if let (Some(count), Some(bytes)) = (&mut self.at_allocations, &mut self.at_bytes) {
            add([count, bytes], memory.held(site, Moment::Asked));
        }
        self.ended_unfreed = self.ended_unfreed.saturating_add(site.ended_unfreed.count);
        self.calls_ns = self.calls_ns.saturating_add(site.calls_ns);
        self.live_at_most_bytes = self.live_at_most_bytes.saturating_add(site.live_max_bytes);
        let oldest = site.oldest_ns.map(|at_ns| process.since_begin_ns(at_ns));
        self.oldest_at_ns = self.oldest_at_ns.into_iter().chain(oldest).min();
    }
}

fn process_memory(
    process: &Process,
    memory: &ProcessMemory,
    sampled: &SampledDevices,
    stacks: &mut StackNames<'_>,
) -> ProcessMemoryReport {
    let since = |at_ns: u64| process.since_begin_ns(at_ns);
    let kind = |(kind, of): (usize, &KindMemory)| MemoryKindReport {
        kind: kind_name(kind),
        allocations: of.allocated.count,
        allocated_bytes: of.allocated.bytes,
        frees: of.freed.count,
        freed_bytes: of.freed.bytes,
        peak_bytes: of.peak_bytes,
        peak_at_ns: since(of.peak_ns),
        end_bytes: of.live.bytes,
        end_allocations: of.live.count,
    };
    let leaked = memory.leaked();
    let unmatched = memory.unmatched;
    ProcessMemoryReport {
        pid: process.begin.pid,
        peak_bytes: memory.peak.bytes,
        peak_allocations: memory.peak.count,
        peak_at_ns: if memory.peak.count == 0 { 0 } else { since(memory.peak_ns) },
        end_bytes: memory.on_device.bytes,
        end_allocations: memory.on_device.count,
        leaked_bytes: leaked.bytes,
        leaked_allocations: leaked.count,
        kinds: memory.kinds().map(kind).collect(),
        pools: memory.pools().map(|pool| PoolReport::new(process, pool)).collect(),
        pools_left_out: memory.pools_beyond(),
        graph_allocations: memory.in_graphs.count,
        graph_bytes: memory.in_graphs.bytes,
        device_use: DeviceUseReport::new(process, memory, sampled),
        sizes: memory
            .sizes
            .iter()
            .map(|(from_bytes, allocations)| SizeReport { from_bytes, allocations })
            .collect(),
        unmatched_frees: UnmatchedFreesReport {
            unknown: unmatched.unknown,
            twice: unmatched.twice,
            interior: unmatched.interior,
            refused: unmatched.refused,
        },
        contexts_ended: memory.contexts_ended,
        not_followed: memory.not_followed.count,
        not_followed_bytes: memory.not_followed.bytes,
        refused: memory.refused,
        refusals: memory.refusals.iter().map(|refusal| refused(process, memory, refusal, stacks)).collect(),
    }
}

fn refused(
    process: &Process,
    memory: &ProcessMemory,
    refusal: &MemoryRefusal,
    stacks: &mut StackNames<'_>,
) -> RefusalReport {
    let mut holders: Vec<HolderReport> = Vec::new();
    for (index, held) in &refusal.holders {
        let Some(site) = memory.sites().get(*index) else { continue };
        let line = charged_location(stacks, process.number, site.stack);
        let kind = kind_name(site.kind);
        match holders.iter_mut().find(|holder| holder.line == line && holder.kind == kind) {
            Some(holder) => {
                holder.bytes = holder.bytes.saturating_add(held.bytes);
                holder.allocations = holder.allocations.saturating_add(held.count);
            }
            None => holders.push(HolderReport { line, kind, bytes: held.bytes, allocations: held.count }),
        }
    }
    holders.sort_by_key(|holder| Reverse(holder.bytes));
    RefusalReport {
        at_ns: process.since_begin_ns(refusal.at_ns),
        tid: process.definitions.thread(refusal.thread).map(|thread| thread.tid),
        call: process.definitions.call_name(refusal.api).to_owned(),
        kind: kind_name(refusal.kind),
        bytes: refusal.bytes,
        line: charged_location(stacks, process.number, refusal.stack),
        held_bytes: refusal.held.bytes,
        given_later: refusal.given_later,
        holders,
    }
}
