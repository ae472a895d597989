//! The memory of one process.

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::{FxHashMap, FxHashSet};

use super::change::{AllocationKey, KINDS, MemoryChange, Space, is_of_host};
use super::held_memory::HeldMemory;
use super::imported_again::ImportedAgain;
use super::journal::{JournalStep, MemoryJournal};
use super::kind_memory::KindMemory;
use super::live::{BYTES_MAX, Live};
use super::mappings::Mappings;
use super::observed_use::ObservedUse;
use super::pools::{PoolMemory, PoolOf, Pools};
use super::refusal::{GIVEN_LATER_NS, HOLDERS_KEPT, MemoryRefusal};
use super::reordering::{AskedMemory, FreeOutcome};
use super::site::{Moment, Site, SiteKey};
use super::sizes::Sizes;
use super::timeline::LiveBytes;

/// An allocation that is freed before so many more were made is temporary.
const TEMPORARY_WITHIN: usize = 2;
/// Freed addresses that are remembered, to tell what a refused free meant.
const FREED_KEPT: usize = 256;
/// The most refusals that are kept with who held the memory then: the first ones, and the last.
const REFUSALS_KEPT: usize = 8;

/// Addresses of memory that graphs allocate which are remembered, since any call may free them.
const GRAPH_ADDRESSES_MAX: usize = 1 << 12;

/// Tables that all processes share the budget of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    pub live: usize,
    pub sites: usize,
    pub timelines: usize,
}

/// Frees that match no known allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UnmatchedFrees {
    /// The driver accepted them: of memory from before tracing, from a lost call, or from a function that is
    /// not hooked.
    pub unknown: u64,
    /// The driver refused them: of something freed before, of an address inside an allocation, and the rest.
    pub twice: u64,
    pub interior: u64,
    pub refused: u64,
}

#[derive(Clone, Debug, Default)]
pub struct ProcessMemory {
    kinds: [KindMemory; KINDS],
    pub sizes: Sizes,
    /// What the process holds on devices, managed memory included.
    pub on_device: HeldMemory,
    /// The most that it held there, and when it first did.
    pub peak: HeldMemory,
    pub peak_ns: u64,
    /// Grows with each new peak.
    peak_number: u64,
    sites: Vec<Site>,
    by_key: FxHashMap<SiteKey, u16>,
    /// By address, a table a space.
    live: [BTreeMap<u64, Live>; 5],
    mappings: Mappings,
    imported_again: ImportedAgain,
    pools: Pools,
    /// What graphs were made to allocate at each launch, which is in no other sum.
    pub in_graphs: HeldMemory,
    graph_addresses: FxHashSet<u64>,
    /// When the program asked how much is free: the time with the most in use, and the last time.
    pub observed: Option<ObservedUse>,
    pub observed_last: Option<ObservedUse>,
    /// The last allocations that were made.
    last_made: [Option<AllocationKey>; TEMPORARY_WITHIN],
    /// When the first of them was made.
    first_ns: Option<u64>,
    /// Of the device's memory.
    pub timeline: LiveBytes,
    /// When the latest change was, after the first allocation.
    now_ns: u64,
    freed_lately: VecDeque<AllocationKey>,
    pub unmatched: UnmatchedFrees,
    pub contexts_ended: u64,
    /// Allocations of which it is not known how much memory they take. They count as nothing.
    pub sizes_unknown: u64,
    /// Allocations that were not followed, because the tables were full.
    pub not_followed: HeldMemory,
    pub refusals: Vec<MemoryRefusal>,
    /// Allocations that were refused for want of memory.
    pub refused: u64,
    asked_ns: Option<u64>,
    /// Whether the time that was asked for has passed.
    is_past: bool,
    /// The part of its life that is asked for, if it is not all, and whether that has begun.
    part_ns: Option<[u64; 2]>,
    has_begun: bool,
    journal: MemoryJournal,
    /// The time of the call that is applied.
    applied_ns: u64,
}

impl ProcessMemory {
    pub(super) fn new(asked_ns: Option<u64>, part_ns: Option<[u64; 2]>) -> ProcessMemory {
        ProcessMemory { asked_ns, part_ns, ..ProcessMemory::default() }
    }

    pub(super) fn keep_journal(&mut self) {
        self.journal.keep();
    }

    pub(super) fn take_journal(&mut self) -> Vec<JournalStep> {
        self.journal.take()
    }

    /// Forgets single allocations.
    pub(super) fn end(&mut self, end_ns: u64, budget: &mut Budget) {
        self.keep_asked();
        self.begin_part();
        let from_ns = self.part_ns.map_or(0, |[from_ns, _]| from_ns);
        self.reach(end_ns);
        let life = [self.first_ns.unwrap_or(end_ns), end_ns];
        for live in self.live.iter().flat_map(BTreeMap::values) {
            if let Some(site) = self.sites.get_mut(live.site()) {
                let (made_ns, at_end) = (live.since_ns(), site.at_end.get_or_insert_default());
                at_end.add(live.bytes(), made_ns, made_ns >= from_ns, life);
            }
        }
        for live in &mut self.live {
            budget.live += live.len();
            *live = BTreeMap::new();
        }
        self.by_key = FxHashMap::default();
        self.freed_lately = VecDeque::new();
        budget.live += self.mappings.count();
        self.mappings = Mappings::default();
        self.imported_again = ImportedAgain::default();
        self.graph_addresses = FxHashSet::default();
    }

    pub(super) fn apply(&mut self, asked: AskedMemory, budget: &mut Budget) {
        if !self.is_past && self.asked_ns.is_some_and(|at_ns| asked.at_ns > at_ns) {
            self.keep_asked();
        }
        match self.part_ns {
            Some([_, to_ns]) if asked.at_ns > to_ns => return,
            Some([from_ns, _]) if asked.at_ns >= from_ns => self.begin_part(),
            _ => {}
        }
        self.reach(asked.at_ns);
        self.applied_ns = asked.at_ns;
        match asked.what {
            FreeOutcome::Block(_) => {}
            FreeOutcome::Refused { kind, bytes } => self.refuse(asked, kind, bytes),
            FreeOutcome::InGraph { address, bytes } => {
                self.in_graphs.add(HeldMemory::one(bytes));
                if self.graph_addresses.len() < GRAPH_ADDRESSES_MAX {
                    self.graph_addresses.insert(address);
                }
            }
            FreeOutcome::Changed(change) => self.change(asked, change, budget),
        }
    }

    fn change(&mut self, asked: AskedMemory, change: MemoryChange, budget: &mut Budget) {
        match change {
            MemoryChange::Allocated { key: (space, number), kind, bytes, from, is_size_unknown } => {
                let number = match space {
                    Space::Handles => self.mappings.created(number),
                    Space::Imported if self.live_at((space, number)).is_some() && budget.live > 0 => {
                        self.imported_again.opened(number)
                    }
                    _ => number,
                };
                self.sizes_unknown += u64::from(is_size_unknown);
                self.allocate(asked, (space, number), (kind, from), bytes, budget);
            }
            MemoryChange::Freed { key: (Space::Handles, handle) } => {
                if let Some(key) = self.mappings.released(handle) {
                    self.free(asked, (Space::Handles, key), budget);
                }
            }
            MemoryChange::Freed { key: (Space::Imported, address) } => {
                let key = self.imported_again.closed(address);
                self.free(asked, (Space::Imported, key), budget);
            }
            MemoryChange::Freed { key } => self.free(asked, key, budget),
            MemoryChange::ContextEnded => self.end_context(budget),
            MemoryChange::Mapped { .. } if budget.live == 0 => {
                self.not_followed.add(HeldMemory { count: 1, bytes: 0 });
            }
            MemoryChange::Mapped { address, handle, bytes } => {
                budget.live -= usize::from(self.mappings.mapped(address, handle, bytes));
            }
            MemoryChange::Unmapped { address, bytes } => {
                let (count, freed) = self.mappings.unmapped(address, bytes);
                budget.live += count;
                for key in freed {
                    self.free(asked, (Space::Handles, key), budget);
                }
            }
            MemoryChange::Retained { address, handle } => self.mappings.retained(address, handle),
            MemoryChange::Pool { handle, change } => {
                if let Some((pool, bytes)) = self.pools.change(handle, change) {
                    self.journal.add(|| JournalStep::PoolReserved { at_ns: asked.at_ns, pool, bytes });
                }
            }
            MemoryChange::Observed { total_bytes, free_bytes } => {
                let held = self.on_device.bytes;
                let observed = ObservedUse::new(asked.at_ns, total_bytes, free_bytes, held);
                self.observed = Some(observed.or_more(self.observed));
                self.observed_last = Some(observed);
            }
        }
    }

    /// What is live on devices now and has an address: from the first address to the one after it, in order.
    pub(super) fn ranges(&self) -> Vec<(u64, u64)> {
        let [addresses, handles] = [Space::Addresses, Space::Handles].map(|space| &self.live[space as usize]);
        let on_device = |live: &Live| self.sites.get(live.site()).is_some_and(|site| is_of_device(site.kind));
        let mut ranges: Vec<(u64, u64)> = addresses
            .iter()
            .filter(|(_, live)| on_device(live))
            .map(|(address, live)| (*address, address.saturating_add(live.bytes())))
            .collect();
        // Pieces of mapped memory that follow each other are one range.
        let mut mapped: Option<(u64, u64)> = None;
        for (address, key, mapped_bytes) in self.mappings.iter() {
            let bytes = match mapped_bytes {
                0 => handles.get(&key).map_or(0, Live::bytes),
                bytes => bytes,
            };
            let end = address.saturating_add(bytes);
            match &mut mapped {
                Some((_, before)) if *before == address => *before = end,
                _ => ranges.extend(mapped.replace((address, end))),
            }
        }
        ranges.extend(mapped);
        ranges.sort_unstable();
        ranges
    }

    /// What is live by address.
    pub(super) fn by_address(&self) -> &BTreeMap<u64, Live> {
        &self.live[Space::Addresses as usize]
    }

    /// From now on the peak is that of the part that is asked for: at first what is held already.
    fn begin_part(&mut self) {
        let Some([from_ns, _]) = self.part_ns.filter(|_| !self.has_begun) else { return };
        self.has_begun = true;
        (self.peak, self.peak_ns) = (self.on_device, from_ns);
        self.peak_number += 1;
    }

    /// Nothing changed until then. A process's time begins with its first call for memory.
    fn reach(&mut self, at_ns: u64) {
        let since_ns = at_ns.saturating_sub(*self.first_ns.get_or_insert(at_ns));
        self.now_ns = self.now_ns.max(since_ns);
        self.timeline.reach(self.now_ns);
    }

    /// From the first call for memory to the end.
    pub fn life_ns(&self) -> u64 {
        self.now_ns
    }

    fn allocate(
        &mut self,
        asked: AskedMemory,
        key: AllocationKey,
        (kind, from): (usize, PoolOf),
        bytes: u64,
        budget: &mut Budget,
    ) {
        let given = |refusal: &&mut MemoryRefusal| {
            (refusal.thread, refusal.kind) == (asked.thread, kind)
                && bytes >= refusal.bytes
                && asked.at_ns.saturating_sub(refusal.at_ns) <= GIVEN_LATER_NS
        };
        self.refusals.iter_mut().filter(given).for_each(|refusal| refusal.given_later = true);
        let bytes = bytes.min(BYTES_MAX);
        // What had the address before was freed by a call that is not known.
        if let Some(before) = self.take(key) {
            budget.live += 1;
            self.forget(before);
        }
        self.sizes.add(bytes);
        let pool = self.pools.number(from);
        self.last_made.rotate_right(1);
        self.last_made[0] = Some(key);
        let Some(index) =
            self.site(SiteKey { stack: asked.stack, api: asked.api, kind: kind as u8, pool }, budget)
        else {
            self.not_followed.add(HeldMemory::one(bytes));
            return;
        };
        let live = Live::new(bytes, asked.at_ns, index);
        let Some(site) = self.sites.get_mut(usize::from(index)) else { return };
        site.allocated.add(HeldMemory::one(bytes));
        site.calls_ns = site.calls_ns.saturating_add(asked.duration_ns);
        if budget.live == 0 {
            self.not_followed.add(HeldMemory::one(bytes));
            return;
        }
        budget.live -= 1;
        site.hold(bytes, self.peak_number, self.now_ns);
        if let Some(of_kind) = self.kinds.get_mut(kind) {
            of_kind.add(bytes, asked.at_ns);
        }
        self.pools.allocated(pool, bytes, asked.at_ns);
        self.write_journal(usize::from(index));
        if is_of_device(kind) {
            self.on_device.add(HeldMemory::one(bytes));
            self.timeline.change(self.now_ns, self.on_device.bytes);
            if self.on_device.bytes > self.peak.bytes {
                (self.peak, self.peak_ns) = (self.on_device, asked.at_ns);
                self.peak_number += 1;
            }
        }
        if let Some(table) = self.live.get_mut(key.0 as usize) {
            table.insert(key.1, live);
        }
    }

    fn free(&mut self, asked: AskedMemory, key: AllocationKey, budget: &mut Budget) {
        let Some(live) = self.take(key) else {
            let is_of_graph = key.0 == Space::Addresses && self.graph_addresses.contains(&key.1);
            self.unmatched.unknown += u64::from(!is_of_graph);
            return;
        };
        budget.live += 1;
        if self.freed_lately.len() >= FREED_KEPT {
            self.freed_lately.pop_front();
        }
        self.freed_lately.push_back(key);
        let is_temporary = self.last_made.contains(&Some(key));
        if let Some(site) = self.sites.get_mut(live.site()) {
            site.calls_ns = site.calls_ns.saturating_add(asked.duration_ns);
            site.freed.add(HeldMemory::one(live.bytes()));
            if is_temporary {
                site.temporary.add(HeldMemory::one(live.bytes()));
            }
        }
        self.release(live);
    }

    fn end_context(&mut self, budget: &mut Budget) {
        self.contexts_ended += 1;
        self.imported_again = ImportedAgain::default();
        for space in [Space::Addresses, Space::Arrays, Space::Registered, Space::Imported] {
            let Some(table) = self.live.get_mut(space as usize) else { continue };
            let all = std::mem::take(table);
            budget.live += all.len();
            all.into_values().for_each(|live| self.forget(live));
        }
    }

    /// An allocation that ended, and no call for memory says when.
    fn forget(&mut self, live: Live) {
        if let Some(site) = self.sites.get_mut(live.site()) {
            site.ended_unfreed.add(HeldMemory::one(live.bytes()));
        }
        self.release(live);
    }

    fn release(&mut self, live: Live) {
        let Some(site) = self.sites.get_mut(live.site()) else { return };
        site.release(live.bytes(), self.peak_number, self.now_ns);
        if let Some(of_kind) = self.kinds.get_mut(site.kind) {
            of_kind.free(live.bytes());
        }
        self.pools.freed(site.pool, live.bytes());
        if is_of_device(site.kind) {
            self.on_device.remove(HeldMemory::one(live.bytes()));
            self.timeline.change(self.now_ns, self.on_device.bytes);
        }
        self.write_journal(live.site());
    }

    /// Writes what a site holds, and what is used of its pool.
    fn write_journal(&mut self, site: usize) {
        let Some(of) = self.sites.get(site) else { return };
        let at_ns = self.applied_ns;
        self.journal.add(|| JournalStep::Live { at_ns, site, bytes: of.live.bytes });
        if let Some(bytes) = self.pools.used(of.pool) {
            self.journal.add(|| JournalStep::PoolUsed { at_ns, pool: of.pool, bytes });
        }
    }

    fn live_at(&self, key: AllocationKey) -> Option<&Live> {
        self.live.get(key.0 as usize)?.get(&key.1)
    }

    fn take(&mut self, key: AllocationKey) -> Option<Live> {
        self.live.get_mut(key.0 as usize)?.remove(&key.1)
    }

    /// The index of a site, a new one if it is new; `None` if the table is full.
    fn site(&mut self, key: SiteKey, budget: &mut Budget) -> Option<u16> {
        if let Some(index) = self.by_key.get(&key) {
            return Some(*index);
        }
        let index = u16::try_from(self.sites.len()).ok()?;
        budget.sites = budget.sites.checked_sub(1)?;
        let has_timeline = budget.timelines.checked_sub(1).map(|left| budget.timelines = left).is_some();
        self.sites.push(Site::new(key, has_timeline));
        self.by_key.insert(key, index);
        Some(index)
    }

    fn refuse(&mut self, asked: AskedMemory, kind: usize, bytes: u64) {
        self.refused += 1;
        let holders = self.holders();
        let AskedMemory { at_ns, thread, stack, api, .. } = asked;
        let held = self.on_device;
        let refusal = MemoryRefusal {
            at_ns,
            thread,
            stack,
            api,
            kind,
            bytes,
            held,
            holders,
            given_later: false,
            blocks: None,
        };
        if self.refusals.len() >= REFUSALS_KEPT {
            self.refusals.pop();
        }
        self.refusals.push(refusal);
    }

    /// The sites that hold the most on devices now, the most first.
    pub(super) fn holders(&self) -> Vec<(usize, HeldMemory)> {
        let mut holders: Vec<(usize, HeldMemory)> = self
            .sites
            .iter()
            .enumerate()
            .filter(|(_, site)| is_of_device(site.kind) && site.live.bytes > 0)
            .map(|(index, site)| (index, site.live))
            .collect();
        holders.sort_by_key(|(_, held)| std::cmp::Reverse(held.bytes));
        holders.truncate(HOLDERS_KEPT);
        holders
    }

    /// A free that the driver refused. The calls of other threads that arrive later are not considered.
    pub(super) fn refuse_free(&mut self, (space, address): AllocationKey) {
        let below = self.live.get(space as usize).and_then(|table| table.range(..address).next_back());
        let is_inside = below.is_some_and(|(start, live)| address - start < live.bytes());
        let count = match (is_inside, self.freed_lately.contains(&(space, address))) {
            (true, _) => &mut self.unmatched.interior,
            (_, true) => &mut self.unmatched.twice,
            _ => &mut self.unmatched.refused,
        };
        *count += 1;
    }

    fn keep_asked(&mut self) {
        if !self.is_past && self.asked_ns.is_some() {
            self.is_past = true;
            self.sites.iter_mut().for_each(|site| site.at_asked = Some(Box::new(site.live)));
        }
    }

    /// The sites with what they held at that moment, in the order of their first allocations.
    pub fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// What a site held at that moment. The peak is that of the device's memory.
    pub fn held(&self, site: &Site, moment: Moment) -> HeldMemory {
        match moment {
            Moment::Peak => site.at_peak(self.peak_number),
            Moment::End => site.live,
            Moment::Asked if self.is_past => site.at_asked.as_deref().copied().unwrap_or_default(),
            Moment::Asked => site.live,
        }
    }

    /// What is live, of all kinds that are not another process's or the program's own memory.
    pub fn unfreed(&self) -> HeldMemory {
        let mut all = HeldMemory::default();
        let is_leak = |site: &&Site| is_leak(site.kind);
        self.sites.iter().filter(is_leak).for_each(|site| all.add(site.live));
        all
    }

    /// In the order in which calls first named them.
    pub fn pools(&self) -> impl Iterator<Item = &PoolMemory> {
        self.pools.iter()
    }

    /// Calls for pools beyond those that are followed.
    pub fn pools_beyond(&self) -> u64 {
        self.pools.beyond
    }

    pub fn kinds(&self) -> impl Iterator<Item = (usize, &KindMemory)> {
        self.kinds.iter().enumerate().filter(|(_, kind)| kind.allocated.count > 0)
    }
}

/// Whether memory of the kind is the device's and counts as the process's.
pub fn is_of_device(kind: usize) -> bool {
    !is_of_host(kind) && kind != usize::from(gputrace_wire::call::memory::IMPORTED)
}

/// Whether live memory of the kind at a process's end is something that the driver allocated for it.
fn is_leak(kind: usize) -> bool {
    is_of_device(kind) || kind == usize::from(gputrace_wire::call::memory::PINNED)
}
