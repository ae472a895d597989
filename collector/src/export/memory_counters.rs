//! A process's memory as counters over time, for timelines: in all, by kind, of the lines that held the most,
//! and of pools. What is live follows from whole traces only.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use crate::export::Trace;
use crate::memory::{JournalStep, MemoryLedger, NAMES, ProcessMemory, is_of_device};
use crate::model::definitions::Definitions;
use crate::model::operation::HostCall;

/// Lines of a process that have a counter: those that held the most at one time.
const LINES_MAX: usize = 10;
/// Likewise of pools.
const POOLS_MAX: usize = 4;
const NO_LINE: &str = "(no line known)";

/// What counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum MemoryCounter {
    Held,
    Kind(usize),
    Line(usize),
    PoolUsed(u32),
    PoolReserved(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryValue {
    /// On the process's clock.
    pub at_ns: u64,
    pub counter: MemoryCounter,
    pub bytes: u64,
}

/// The counters of all processes.
#[derive(Debug)]
pub struct MemoryCounters {
    ledger: MemoryLedger,
    processes: FxHashMap<u32, ProcessCounters>,
    is_warned: bool,
}

#[derive(Debug)]
struct ProcessCounters {
    /// The names of lines that have a counter.
    lines: Vec<String>,
    /// Their places, by stack and kind.
    by_site: FxHashMap<(u32, usize), usize>,
    pools: FxHashMap<u32, String>,
    /// What each site holds.
    sites: Vec<u64>,
    held: u64,
    kinds: [u64; NAMES.len()],
    lines_hold: Vec<u64>,
}

/// A line, the most that its stacks held, and their sites by stack and kind.
#[derive(Debug, Default)]
struct LineSites {
    name: String,
    most_bytes: u64,
    sites: Vec<(u32, usize)>,
}

impl Default for MemoryCounters {
    fn default() -> Self {
        let mut ledger = MemoryLedger::default();
        ledger.keep_journals();
        MemoryCounters { ledger, processes: FxHashMap::default(), is_warned: false }
    }
}

impl MemoryCounters {
    /// Follows any call. Returns the values that it completes, in the order of their times.
    pub fn call(
        &mut self,
        call: &HostCall,
        definitions: &Definitions,
        trace: &mut Trace<'_>,
    ) -> Vec<MemoryValue> {
        if !trace.is_whole {
            self.warn(call, definitions, trace);
            return Vec::new();
        }
        self.ledger.add(call, definitions);
        self.values(call.process, trace)
    }

    /// The last values of a process.
    pub fn process_ends(&mut self, process: u32, at_ns: u64, trace: &mut Trace<'_>) -> Vec<MemoryValue> {
        self.ledger.process_ends(process, at_ns);
        self.values(process, trace)
    }

    /// `memory in use: device`.
    pub fn name(&self, process: u32, counter: MemoryCounter) -> String {
        let series = self.series(process, counter);
        match counter {
            MemoryCounter::Held => "memory held on devices".to_owned(),
            MemoryCounter::Kind(_) => format!("memory in use: {series}"),
            MemoryCounter::Line(_) => format!("memory of {series}"),
            MemoryCounter::PoolUsed(_) | MemoryCounter::PoolReserved(_) => format!("pool {series}"),
        }
    }

    /// What distinguishes a counter from others of its sort: a kind, a line, a pool.
    pub fn series(&self, process: u32, counter: MemoryCounter) -> String {
        let of = self.processes.get(&process);
        let line = |line: usize| of.and_then(|of| of.lines.get(line)).map_or(NO_LINE, String::as_str);
        let pool = |pool: u32| of.and_then(|of| of.pools.get(&pool)).map_or("", String::as_str);
        match counter {
            MemoryCounter::Held => "bytes".to_owned(),
            MemoryCounter::Kind(kind) => NAMES.get(kind).copied().unwrap_or("unknown").to_owned(),
            MemoryCounter::Line(number) => line(number).to_owned(),
            MemoryCounter::PoolUsed(number) => format!("{}: in use", pool(number)),
            MemoryCounter::PoolReserved(number) => format!("{}: reserved", pool(number)),
        }
    }

    fn warn(&mut self, call: &HostCall, definitions: &Definitions, trace: &mut Trace<'_>) {
        if !self.is_warned && crate::memory::MemoryChange::of(call, definitions).is_some() {
            self.is_warned = true;
            trace
                .warnings
                .push("counters of memory are left out: what is live is known of whole traces only".into());
        }
    }

    fn values(&mut self, process: u32, trace: &mut Trace<'_>) -> Vec<MemoryValue> {
        let steps = self.ledger.take_journal(process);
        let Some(memory) = self.ledger.process(process).filter(|_| !steps.is_empty()) else {
            return Vec::new();
        };
        let counters = self.processes.entry(process).or_insert_with(|| ProcessCounters::new(process, trace));
        let mut values: Vec<MemoryValue> = Vec::new();
        for step in steps {
            counters.step(step, memory, |value| {
                // Of several at the same time the last one counts.
                match values
                    .iter_mut()
                    .rev()
                    .take_while(|known| known.at_ns == value.at_ns)
                    .find(|known| known.counter == value.counter)
                {
                    Some(known) => *known = value,
                    None => values.push(value),
                }
            });
        }
        values
    }
}

impl ProcessCounters {
    /// Chooses what has a counter by what the first pass found.
    fn new(process: u32, trace: &mut Trace<'_>) -> ProcessCounters {
        let mut lines: Vec<LineSites> = Vec::new();
        let mut by_name: FxHashMap<(String, usize), usize> = FxHashMap::default();
        let known = trace.aggregates.memory.process(process);
        for site in known.into_iter().flat_map(ProcessMemory::sites).filter(|site| is_of_device(site.kind)) {
            let name = trace.labels.stacks.charged_line(process, site.stack);
            let name = name.unwrap_or_else(|| NO_LINE.to_owned());
            let index = *by_name.entry((name, site.kind)).or_insert_with_key(|(name, kind)| {
                let suffix = match NAMES.get(*kind) {
                    Some(&"device") | None => String::new(),
                    Some(kind) => format!(" ({kind})"),
                };
                lines.push(LineSites { name: format!("{name}{suffix}"), ..LineSites::default() });
                lines.len() - 1
            });
            if let Some(line) = lines.get_mut(index) {
                line.most_bytes = line.most_bytes.saturating_add(site.live_max_bytes);
                line.sites.push((site.stack, site.kind));
            }
        }
        lines.sort_by(|a, b| (Reverse(a.most_bytes), &a.name).cmp(&(Reverse(b.most_bytes), &b.name)));
        lines.truncate(LINES_MAX);
        let mut pools: Vec<(u32, u64, String)> = (1..)
            .zip(known.into_iter().flat_map(ProcessMemory::pools))
            .map(|(number, pool)| (number, pool.peak_bytes, pool.name()))
            .filter(|(_, most, _)| *most > 0)
            .collect();
        pools.sort_by_key(|(_, most, _)| Reverse(*most));
        pools.truncate(POOLS_MAX);
        let by_site = lines.iter().enumerate();
        let by_site = by_site.flat_map(|(line, of)| of.sites.iter().map(move |site| (*site, line)));
        ProcessCounters {
            by_site: by_site.collect(),
            lines_hold: vec![0; lines.len()],
            lines: lines.into_iter().map(|line| line.name).collect(),
            pools: pools.into_iter().map(|(number, _, name)| (number, name)).collect(),
            sites: Vec::new(),
            held: 0,
            kinds: [0; NAMES.len()],
        }
    }

    fn step(&mut self, step: JournalStep, memory: &ProcessMemory, mut write: impl FnMut(MemoryValue)) {
        match step {
            JournalStep::Live { at_ns, site, bytes } => {
                let Some(of) = memory.sites().get(site) else { return };
                if self.sites.len() <= site {
                    self.sites.resize(site + 1, 0);
                }
                let Some(before) = self.sites.get_mut(site).map(|held| std::mem::replace(held, bytes)) else {
                    return;
                };
                let changed = |held: u64| held.saturating_sub(before).saturating_add(bytes);
                let mut value = |counter, bytes| write(MemoryValue { at_ns, counter, bytes });
                if is_of_device(of.kind) {
                    self.held = changed(self.held);
                    value(MemoryCounter::Held, self.held);
                }
                if let Some(held) = self.kinds.get_mut(of.kind) {
                    *held = changed(*held);
                    value(MemoryCounter::Kind(of.kind), *held);
                }
                let line = self.by_site.get(&(of.stack, of.kind)).copied();
                if let Some((line, held)) = line.and_then(|line| Some((line, self.lines_hold.get_mut(line)?)))
                {
                    *held = changed(*held);
                    value(MemoryCounter::Line(line), *held);
                }
            }
            JournalStep::PoolUsed { at_ns, pool, bytes } if self.pools.contains_key(&pool) => {
                write(MemoryValue { at_ns, counter: MemoryCounter::PoolUsed(pool), bytes });
            }
            JournalStep::PoolReserved { at_ns, pool, bytes } if self.pools.contains_key(&pool) => {
                write(MemoryValue { at_ns, counter: MemoryCounter::PoolReserved(pool), bytes });
            }
            JournalStep::PoolUsed { .. } | JournalStep::PoolReserved { .. } => {}
        }
    }
}
