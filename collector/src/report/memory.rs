//! The program's memory: by process, and by line.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::aggregate::Aggregates;
use crate::label::units::{bytes, duration};
use crate::label::{Labels, StackNames};
use crate::memory::{
    Growth, HeldMemory, KindMemory, LeakedSites, MemoryOf, MemoryRefusal, Moment, NAMES, ProcessMemory, Site,
    caching_library,
};
use crate::model::{Process, Totals};
use crate::report::CodeLocation;
use crate::report::lines::charged_location;
use crate::report::memory_blocks::{BlocksReport, SegmentsReport};
use crate::report::memory_state::{DeviceUseReport, PoolReport};
use crate::report::words::plural;

/// From so many live allocations on, a line is taken to hold more with each turn of a loop.
pub const REPEATED_MIN: u64 = 3;
/// Lines whose live bytes over time are in the report: of those that held the most at the peak, and of those
/// with the most that was not freed.
const TIMELINES_KEPT: usize = 20;

#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MemoryReport {
    /// Processes that asked for memory.
    pub processes: Vec<ProcessMemoryReport>,
    /// The one that held the most at its process's peak first.
    pub lines: Vec<MemoryLineReport>,
    /// The same of the blocks that a caching allocator gave out of this memory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub block_lines: Vec<MemoryLineReport>,
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
    pub unfreed_bytes: u64,
    pub unfreed_allocations: u64,
    /// Of that, what no library keeps on purpose: all if `caching` is empty, else of the lines that held more
    /// and more to the end.
    pub leaked_bytes: u64,
    pub leaked_allocations: u64,
    /// Libraries that keep what they were given until the process ends.
    pub caching: Vec<&'static str>,
    /// From the first call for memory to the process's end.
    pub life_ns: u64,
    /// The most bytes of devices that were live in each interval of that time.
    pub timeline: TimelineReport,
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
    /// Allocations of which it is not known how many bytes they take; they count as 0.
    pub sizes_unknown: u64,
    pub not_followed: u64,
    pub not_followed_bytes: u64,
    /// Allocations for which there was not enough memory.
    pub refused: u64,
    /// The first of them and the last.
    pub refusals: Vec<RefusalReport>,
    /// Of a caching allocator; absent where its blocks are not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks: Option<BlocksReport>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TimelineReport {
    pub interval_ns: u64,
    pub bytes: Vec<u64>,
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
    /// Of that, what counts as leaked.
    pub leaked_bytes: u64,
    pub leaked_allocations: u64,
    /// When the oldest that is live at the end was allocated, since tracing of the process began.
    pub oldest_at_ns: Option<u64>,
    /// The most bytes that were live in each interval of the process's `timeline`; of the first lines only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Vec<u64>>,
    #[serde(skip)]
    pub(super) growth: Growth,
    /// What is live and was allocated in the part that was asked for, or at any time.
    #[serde(skip)]
    pub(super) left: HeldMemory,
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
    /// Of it, what a caching allocator had given out; absent where its blocks are not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks: Option<RefusedBlocksReport>,
}

/// What a caching allocator had given out when there was not enough memory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RefusedBlocksReport {
    pub segments: SegmentsReport,
    /// Who held the most blocks.
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
        let block_lines = MemoryReport::of(MemoryOf::Blocks, totals, aggregates, labels).lines;
        MemoryReport { block_lines, ..MemoryReport::of(MemoryOf::Driver, totals, aggregates, labels) }
    }

    /// The memory of that sort.
    pub fn of(of: MemoryOf, totals: &Totals, aggregates: &Aggregates, labels: &mut Labels<'_>) -> Self {
        let has_asked = aggregates.memory.has_asked();
        let mut report = MemoryReport { left_out: aggregates.memory.beyond, ..MemoryReport::default() };
        for (number, memory) in aggregates.memory.of(of) {
            let Some(process) = totals.process(number) else {
                report.left_out += memory.sites().iter().map(|site| site.allocated.count).sum::<u64>();
                continue;
            };
            let is_of_driver = of == MemoryOf::Driver;
            let caching = if is_of_driver { caching(aggregates, process, number) } else { Vec::new() };
            let mut lines = lines(process, memory, &mut labels.stacks, has_asked);
            // What a program holds of blocks to its end, as a model, is no leak.
            let is_kept = !caching.is_empty() || !is_of_driver;
            lines.iter_mut().for_each(|line| line.judge(is_kept && !aggregates.memory.is_part()));
            let of_blocks = aggregates.memory.blocks(number).map(|blocks| &blocks.memory);
            let sum = |of: fn(&MemoryLineReport) -> u64| lines.iter().map(of).fold(0, u64::saturating_add);
            let sampled = &aggregates.sampled_devices;
            report.processes.push(ProcessMemoryReport {
                leaked_bytes: sum(|line| line.leaked_bytes),
                leaked_allocations: sum(|line| line.leaked_allocations),
                caching,
                device_use: DeviceUseReport::new(process, memory, sampled).filter(|_| is_of_driver),
                blocks: BlocksReport::new(process, aggregates),
                ..process_memory(process, memory, of_blocks, &mut labels.stacks)
            });
            report.lines.extend(lines);
        }
        report.lines.sort_by(|a, b| {
            let weight = |line: &MemoryLineReport| {
                Reverse((line.peak_bytes, line.end_bytes, line.allocated_bytes, line.allocations))
            };
            weight(a).cmp(&weight(b)).then_with(|| (a.pid, &a.line, a.kind).cmp(&(b.pid, &b.line, b.kind)))
        });
        report.keep_timelines();
        report
    }

    fn keep_timelines(&mut self) {
        let mut unfreed: Vec<u64> =
            self.lines.iter().map(|line| line.end_bytes).filter(|bytes| *bytes > 0).collect();
        unfreed.sort_unstable_by_key(|bytes| Reverse(*bytes));
        let least = unfreed.get(TIMELINES_KEPT).map_or(1, |bytes| bytes + 1);
        let others = self.lines.iter_mut().skip(TIMELINES_KEPT).filter(|line| line.end_bytes < least);
        others.for_each(|line| line.timeline = None);
    }

    /// Processes whose blocks are recorded, with their pids: those with any, or the first one if none has.
    pub(super) fn processes_with_blocks(&self) -> Vec<(u32, &BlocksReport)> {
        let recorded =
            self.processes.iter().filter_map(|process| Some((process.pid, process.blocks.as_ref()?)));
        let (with, without): (Vec<_>, Vec<_>) = recorded.partition(|(_, blocks)| !blocks.devices.is_empty());
        if with.is_empty() { without.into_iter().take(1).collect() } else { with }
    }

    /// Lines with leaked memory: first those that hold [`REPEATED_MIN`] allocations or more, as a leak in a
    /// loop does, then by bytes.
    pub fn leaks(&self) -> Vec<&MemoryLineReport> {
        let mut leaks: Vec<_> = self.lines.iter().filter(|line| line.leaked_allocations > 0).collect();
        leaks.sort_by_key(|line| Reverse((line.leaked_allocations >= REPEATED_MIN, line.leaked_bytes)));
        leaks
    }

    /// What is held at the end and is no leak, for a library keeps it: bytes and allocations, and whose.
    pub fn kept(&self) -> Option<(HeldMemory, String)> {
        let keeping: Vec<_> = self
            .processes
            .iter()
            .filter(|process| process.unfreed_allocations > process.leaked_allocations)
            .collect();
        let mut names: Vec<&str> =
            keeping.iter().flat_map(|process| process.caching.iter().copied()).collect();
        names.sort_unstable();
        names.dedup();
        let mut kept = HeldMemory::default();
        for process in keeping {
            kept.add(HeldMemory {
                count: process.unfreed_allocations - process.leaked_allocations,
                bytes: process.unfreed_bytes.saturating_sub(process.leaked_bytes),
            });
        }
        (kept.count > 0).then(|| (kept, names.join(" and ")))
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
        let kind = if ["device", "block"].contains(&self.kind) {
            String::new()
        } else {
            format!(" ({})", self.kind)
        };
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

/// Stacks whose lines have leaked memory: process, stack and kind of memory.
pub fn leaked_sites(
    of: MemoryOf,
    totals: &Totals,
    aggregates: &Aggregates,
    labels: &mut Labels<'_>,
) -> LeakedSites {
    let report = MemoryReport::of(of, totals, aggregates, labels);
    let leaks = report.lines.iter().filter(|line| line.leaked_allocations > 0);
    let leaks: BTreeSet<_> = leaks.map(|line| (line.pid, &line.line, line.kind)).collect();
    let mut found = LeakedSites::new();
    for (number, memory) in aggregates.memory.of(of) {
        let Some(process) = totals.process(number) else { continue };
        for site in memory.sites() {
            let line = charged_location(&mut labels.stacks, number, site.stack);
            if leaks.contains(&(process.begin.pid, &line, kind_name(site.kind))) {
                found.insert((number, site.stack, site.kind));
            }
        }
    }
    found
}

/// The libraries whose kernels the process launched and that cache memory.
fn caching(aggregates: &Aggregates, process: &Process, number: u32) -> Vec<&'static str> {
    let own = aggregates.kernels.iter().filter(|(key, _)| key.process == number);
    let names = own.filter_map(|(key, _)| process.definitions.name(key.name));
    let mut libraries: Vec<_> = names.filter_map(caching_library).collect();
    libraries.sort_unstable();
    libraries.dedup();
    libraries
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
    pub(super) fn empty(
        pid: u32,
        line: Option<CodeLocation>,
        kind: usize,
        has_asked: bool,
    ) -> MemoryLineReport {
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
            leaked_bytes: 0,
            leaked_allocations: 0,
            oldest_at_ns: None,
            timeline: None,
            growth: Growth::default(),
            left: HeldMemory::default(),
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
        if let Some(at_end) = &site.at_end {
            self.growth.add(at_end.growth);
            self.left.add(at_end.left);
        }
        if let Some(timeline) = &site.timeline {
            let (_, levels) = timeline.levels(&memory.timeline);
            match &mut self.timeline {
                Some(all) => {
                    all.iter_mut().zip(levels).for_each(|(all, more)| *all = all.saturating_add(more))
                }
                None => self.timeline = Some(levels),
            }
        }
        self.ended_unfreed = self.ended_unfreed.saturating_add(site.ended_unfreed.count);
        self.calls_ns = self.calls_ns.saturating_add(site.calls_ns);
        self.live_at_most_bytes = self.live_at_most_bytes.saturating_add(site.live_max_bytes);
        let oldest = site.at_end.as_ref().map(|at_end| process.since_begin_ns(at_end.oldest_ns));
        self.oldest_at_ns = self.oldest_at_ns.into_iter().chain(oldest).min();
    }

    /// Decides what of the live memory is leaked. What a caching library holds is no leak unless the line
    /// grew to the end.
    fn judge(&mut self, is_cached: bool) {
        if is_leaking(self.kind) && (!is_cached || self.growth.is_to_the_end()) {
            (self.leaked_bytes, self.leaked_allocations) = (self.left.bytes, self.left.count);
        }
    }
}

fn process_memory(
    process: &Process,
    memory: &ProcessMemory,
    blocks: Option<&ProcessMemory>,
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
    let unfreed = memory.unfreed();
    let (interval_ns, bytes) = memory.timeline.levels(&memory.timeline);
    let unmatched = memory.unmatched;
    ProcessMemoryReport {
        pid: process.begin.pid,
        peak_bytes: memory.peak.bytes,
        peak_allocations: memory.peak.count,
        peak_at_ns: if memory.peak.count == 0 { 0 } else { since(memory.peak_ns) },
        end_bytes: memory.on_device.bytes,
        end_allocations: memory.on_device.count,
        unfreed_bytes: unfreed.bytes,
        unfreed_allocations: unfreed.count,
        leaked_bytes: 0,
        leaked_allocations: 0,
        caching: Vec::new(),
        life_ns: memory.life_ns(),
        timeline: TimelineReport { interval_ns, bytes },
        kinds: memory.kinds().map(kind).collect(),
        pools: memory.pools().map(|pool| PoolReport::new(process, pool)).collect(),
        pools_left_out: memory.pools_beyond(),
        graph_allocations: memory.in_graphs.count,
        graph_bytes: memory.in_graphs.bytes,
        device_use: None,
        blocks: None,
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
        sizes_unknown: memory.sizes_unknown,
        not_followed: memory.not_followed.count,
        not_followed_bytes: memory.not_followed.bytes,
        refused: memory.refused,
        refusals: memory
            .refusals
            .iter()
            .map(|refusal| refused(process, memory, blocks, refusal, stacks))
            .collect(),
    }
}

fn refused(
    process: &Process,
    memory: &ProcessMemory,
    blocks: Option<&ProcessMemory>,
    refusal: &MemoryRefusal,
    stacks: &mut StackNames<'_>,
) -> RefusalReport {
    let blocks = refusal.blocks.as_deref().zip(blocks).map(|(refused, blocks)| RefusedBlocksReport {
        segments: SegmentsReport::new(&refused.segments, process.since_begin_ns(refused.segments.at_ns)),
        holders: holders(process, blocks, &refused.holders, stacks),
    });
    RefusalReport {
        at_ns: process.since_begin_ns(refusal.at_ns),
        tid: process.definitions.thread(refusal.thread).map(|thread| thread.tid),
        call: process.definitions.call_name(refusal.api).to_owned(),
        kind: kind_name(refusal.kind),
        bytes: refusal.bytes,
        line: charged_location(stacks, process.number, refusal.stack),
        held_bytes: refusal.held.bytes,
        given_later: refusal.given_later,
        holders: holders(process, memory, &refusal.holders, stacks),
        blocks,
    }
}

fn holders(
    process: &Process,
    memory: &ProcessMemory,
    held: &[(usize, HeldMemory)],
    stacks: &mut StackNames<'_>,
) -> Vec<HolderReport> {
    let mut holders: Vec<HolderReport> = Vec::new();
    for (index, held) in held {
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
    holders
}
