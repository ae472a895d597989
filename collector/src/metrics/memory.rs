//! Allocated memory: bytes by kind, and how much is in use.
//!
//! A call that frees names an address and no size, so allocations are remembered by address. Calls of several
//! threads arrive in any order: a free is matched by time, and may come before its allocation. No call frees
//! what ends with its context, so after that the memory in use is unknown.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::memory::{AllocationKey, KINDS, Mappings, MemoryChange, NAMES, Pools, Space};
use crate::metrics::total::Total;
use crate::model::definitions::Definitions;
use crate::model::operation::HostCall;

/// The most remembered allocations; with more, the memory in use is unknown.
const LIVE_MAX: usize = 1 << 16;
/// The most frees that wait for their allocation. Most of them are of memory from before tracing began.
const EARLY_MAX: usize = 1024;
/// Pools with series of their own: the first ones. The others share one.
const POOLS_SHOWN: usize = 16;
const OTHER_POOLS: &str = "other";

#[derive(Clone, Copy, Debug, Default)]
pub struct OfKind {
    pub calls: Total<u64>,
    pub allocated: Total<u64>,
    pub freed: Total<u64>,
    in_use: u64,
}

#[derive(Debug, Default)]
pub struct MemoryUse {
    kinds: [OfKind; KINDS],
    live: FxHashMap<AllocationKey, Vec<Allocation>>,
    mappings: Mappings,
    pools: Pools,
    live_count: usize,
    early: FxHashMap<AllocationKey, Vec<u64>>,
    /// The same frees in order of arrival.
    early_order: VecDeque<(AllocationKey, u64)>,
    /// When a context last ended.
    context_ended_ns: u64,
    /// Allocations that were not remembered, or may have ended with a context.
    pub forgotten: u64,
}

#[derive(Clone, Copy, Debug)]
struct Allocation {
    /// When the allocating call returned.
    since_ns: u64,
    bytes: u64,
    kind: u8,
    /// The number of its pool; 0 for none.
    pool: u32,
}

/// What a pool has in use, and has reserved where the program asked for that.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolUse {
    pub name: String,
    pub in_use: u64,
    pub reserved: Option<u64>,
}

impl MemoryUse {
    /// Follows a call of the process. Returns when memory was allocated or freed, if it was.
    #[inline]
    pub fn follow(&mut self, call: &HostCall, definitions: &Definitions) -> Option<u64> {
        let (at_ns, change) = MemoryChange::of(call, definitions)?;
        match change {
            MemoryChange::Allocated { key: (space, number), kind, bytes, from, .. } => {
                let number = if space == Space::Handles { self.mappings.created(number) } else { number };
                let pool = self.pools.number(from);
                self.allocated((space, number), (kind, pool), bytes, at_ns);
            }
            MemoryChange::Freed { key: (Space::Handles, handle) } => {
                let key = self.mappings.released(handle)?;
                self.freed((Space::Handles, key), at_ns);
            }
            MemoryChange::Freed { key } => self.freed(key, at_ns),
            MemoryChange::Mapped { address, handle, bytes } => {
                // With more, what is released while it is mapped counts as freed.
                if self.mappings.count() < LIVE_MAX {
                    self.mappings.mapped(address, handle, bytes);
                }
                return None;
            }
            MemoryChange::Unmapped { address, bytes } => {
                for key in self.mappings.unmapped(address, bytes).1 {
                    self.freed((Space::Handles, key), at_ns);
                }
            }
            MemoryChange::Retained { address, handle } => {
                self.mappings.retained(address, handle);
                return None;
            }
            MemoryChange::Pool { handle, change } => {
                self.pools.change(handle, change);
                return None;
            }
            MemoryChange::Observed { .. } => return None,
            MemoryChange::ContextEnded => {
                self.context_ended(at_ns);
                return None;
            }
        }
        Some(at_ns)
    }

    fn allocated(&mut self, key: AllocationKey, (kind, pool): (usize, u32), bytes: u64, returned_ns: u64) {
        let Some(of_kind) = self.kinds.get_mut(kind) else { return };
        of_kind.calls.add(1);
        of_kind.allocated.add(bytes);
        if let Some(frees) = self.early.get_mut(&key) {
            // The first free that began after the allocation.
            let later = frees.iter().enumerate().filter(|(_, at)| **at >= returned_ns);
            if let Some(index) = later.min_by_key(|(_, at)| **at).map(|(index, _)| index) {
                let began_ns = frees.swap_remove(index);
                if frees.is_empty() {
                    self.early.remove(&key);
                }
                if let Some(turn) = self.early_order.iter().position(|free| *free == (key, began_ns)) {
                    self.early_order.remove(turn);
                }
                of_kind.freed.add(bytes);
                return;
            }
        }
        if self.live_count >= LIVE_MAX || returned_ns < self.context_ended_ns {
            self.forgotten += 1;
            return;
        }
        of_kind.in_use = of_kind.in_use.saturating_add(bytes);
        self.pools.allocated(pool, bytes, returned_ns);
        // Nearly always an address has one allocation.
        let live = self.live.entry(key).or_insert_with(|| Vec::with_capacity(1));
        live.push(Allocation { since_ns: returned_ns, bytes, kind: kind as u8, pool });
        self.live_count += 1;
    }

    fn freed(&mut self, key: AllocationKey, began_ns: u64) {
        let known = self.live.get_mut(&key).and_then(|all| {
            let before = all.iter().enumerate().filter(|(_, live)| live.since_ns <= began_ns);
            let latest = before.max_by_key(|(_, live)| live.since_ns)?.0;
            Some((all.swap_remove(latest), all.is_empty()))
        });
        let Some((live, was_last)) = known else {
            self.wait_for_allocation(key, began_ns);
            return;
        };
        self.live_count -= 1;
        if was_last {
            self.live.remove(&key);
        }
        self.pools.freed(live.pool, live.bytes);
        if let Some(of_kind) = self.kinds.get_mut(usize::from(live.kind)) {
            of_kind.in_use = of_kind.in_use.saturating_sub(live.bytes);
            of_kind.freed.add(live.bytes);
        }
    }

    /// A context ended, and its allocations with it. No call says which these are, so any may be gone.
    fn context_ended(&mut self, began_ns: u64) {
        self.context_ended_ns = self.context_ended_ns.max(began_ns);
        self.forgotten += self.live_count as u64;
        self.live.clear();
        self.live_count = 0;
    }

    /// Holds a free. If too many wait, the oldest is dropped: its allocation hardly ever comes so late.
    fn wait_for_allocation(&mut self, key: AllocationKey, began_ns: u64) {
        if self.early_order.len() >= EARLY_MAX
            && let Some((oldest, at_ns)) = self.early_order.pop_front()
            && let Some(frees) = self.early.get_mut(&oldest)
        {
            if let Some(index) = frees.iter().position(|at| *at == at_ns) {
                frees.swap_remove(index);
            }
            if frees.is_empty() {
                self.early.remove(&oldest);
            }
        }
        self.early.entry(key).or_default().push(began_ns);
        self.early_order.push_back((key, began_ns));
    }

    /// All kinds with their names.
    pub fn kinds(&mut self) -> impl Iterator<Item = (&'static str, &mut OfKind)> {
        NAMES.into_iter().zip(&mut self.kinds)
    }

    /// The pools that something was allocated from, in the order in which calls first named them.
    pub fn pools(&self) -> Vec<PoolUse> {
        let mut found: Vec<PoolUse> = Vec::new();
        for pool in self.pools.iter().filter(|pool| pool.allocated.count > 0) {
            let (in_use, reserved) = (pool.used.bytes, pool.reserved_bytes.filter(|_| !pool.is_destroyed));
            let mut name = pool.name();
            if found.len() >= POOLS_SHOWN && found.iter().all(|known| known.name != name) {
                name = OTHER_POOLS.to_owned();
            }
            // A handle may be given again, and no two points of a series may have the same attributes.
            match found.iter_mut().find(|known| known.name == name) {
                Some(known) => {
                    known.in_use = known.in_use.saturating_add(in_use);
                    known.reserved = known.reserved.into_iter().chain(reserved).reduce(u64::saturating_add);
                }
                None => found.push(PoolUse { name, in_use, reserved }),
            }
        }
        found
    }

    /// Whether the memory in use is known.
    pub fn is_known(&self) -> bool {
        self.forgotten == 0
    }
}

impl OfKind {
    /// `None` if memory of the kind was never allocated.
    pub fn in_use(&self) -> Option<u64> {
        (self.calls != Total::default()).then_some(self.in_use)
    }
}

#[cfg(test)]
mod tests {
    use gputrace_wire::call::{self, Detail, memory};
    use gputrace_wire::cell::kind;

    use super::*;

    fn follow(memory: &mut MemoryUse, kind: u16, what: &call::Memory, start_ns: u64) {
        let call = HostCall { kind, start_ns, detail: Detail::Memory(*what), ..HostCall::default() };
        memory.follow(&call, &Definitions::default());
    }

    fn device(address: u64, bytes: u64) -> call::Memory {
        call::Memory { memory: memory::DEVICE, bytes, address, ..call::Memory::default() }
    }

    fn in_use(memory: &mut MemoryUse) -> Vec<(&'static str, u64, Option<u64>)> {
        let kinds = memory.kinds().map(|(name, kind)| (name, kind.in_use(), kind.freed));
        kinds
            .filter_map(|(name, used, freed)| {
                let freed = { freed }.report(crate::metrics::Temporality::Cumulative);
                Some((name, used?, freed))
            })
            .collect()
    }

    #[test]
    fn freed_memory_is_not_in_use_whatever_call_frees_it() {
        let mut memory = MemoryUse::default();
        follow(&mut memory, kind::ALLOC, &device(0x1000, 100), 10);
        follow(&mut memory, kind::ALLOC, &call::Memory { memory: memory::MANAGED, ..device(0x2000, 7) }, 11);
        follow(&mut memory, kind::ALLOC, &call::Memory { memory: memory::VIRTUAL, ..device(0x1000, 5) }, 12);
        // Managed memory is freed by the same call as device memory.
        follow(&mut memory, kind::FREE, &device(0x2000, 0), 20);
        follow(&mut memory, kind::FREE, &device(0, 0), 21);
        assert_eq!(
            in_use(&mut memory),
            [("device", 100, None), ("managed", 0, Some(7)), ("virtual", 5, None)]
        );
    }

    #[test]
    fn released_memory_is_in_use_while_it_is_mapped() {
        let mut memory = MemoryUse::default();
        let state = |memory: &mut MemoryUse, operation, object, value, start_ns| {
            let detail = Detail::MemoryState(call::MemoryState { operation, object, value, units: 0 });
            let call = HostCall { kind: kind::MEMORY, start_ns, detail, ..HostCall::default() };
            memory.follow(&call, &Definitions::default());
        };
        let physical = call::Memory { memory: memory::VIRTUAL, ..device(7, 100) };
        follow(&mut memory, kind::ALLOC, &physical, 10);
        state(&mut memory, call::operation::MAP, 0x1000, 7, 11);
        follow(&mut memory, kind::FREE, &physical, 12);
        assert_eq!(in_use(&mut memory), [("virtual", 100, None)]);
        state(&mut memory, call::operation::UNMAP, 0x1000, 0x1000, 13);
        assert_eq!(in_use(&mut memory), [("virtual", 0, Some(100))]);
        // One that another thread released before the call that made it arrives.
        follow(&mut memory, kind::FREE, &physical, 30);
        follow(&mut memory, kind::ALLOC, &physical, 20);
        assert_eq!(in_use(&mut memory), [("virtual", 0, Some(200))]);
    }

    #[test]
    fn pools_have_what_is_in_use_of_each() {
        let mut memory = MemoryUse::default();
        let of = |pool, address, bytes| call::Memory { memory: memory::POOL, pool, ..device(address, bytes) };
        let state = |memory: &mut MemoryUse, operation, object, value| {
            let detail = Detail::MemoryState(call::MemoryState { operation, object, value, units: 0 });
            let call = HostCall { kind: kind::MEMORY, detail, ..HostCall::default() };
            memory.follow(&call, &Definitions::default());
        };
        for pool in 0..20 {
            state(&mut memory, call::operation::CREATE, pool.into(), 0);
            follow(&mut memory, kind::ALLOC, &of(pool, 0x1000 * u64::from(pool), 10), 10);
        }
        follow(&mut memory, kind::FREE, &device(0x2000, 0), 20);
        state(&mut memory, call::operation::RESERVED, 1, 64);
        let pools = memory.pools();
        let found: Vec<_> =
            pools.iter().map(|pool| (pool.name.as_str(), pool.in_use, pool.reserved)).collect();
        assert_eq!(found[..3], [("own of a device", 10, None), ("0x1", 10, Some(64)), ("0x2", 0, None)]);
        assert_eq!((found.len(), found[16]), (17, ("other", 40, None)));
    }

    #[test]
    fn reused_addresses_are_distinguished_by_time() {
        let mut memory = MemoryUse::default();
        follow(&mut memory, kind::ALLOC, &device(0x1000, 100), 10);
        // Another thread gets the address again after the free, which arrives last.
        follow(&mut memory, kind::ALLOC, &device(0x1000, 40), 30);
        follow(&mut memory, kind::FREE, &device(0x1000, 0), 20);
        assert_eq!(in_use(&mut memory), [("device", 40, Some(100))]);
        // A free that comes before its allocation.
        follow(&mut memory, kind::FREE, &device(0x3000, 0), 50);
        follow(&mut memory, kind::ALLOC, &device(0x3000, 9), 60);
        assert_eq!(in_use(&mut memory), [("device", 49, Some(100))], "that free was of another allocation");
        follow(&mut memory, kind::ALLOC, &device(0x3000, 1), 45);
        assert_eq!(in_use(&mut memory), [("device", 49, Some(101))]);
    }

    #[test]
    fn usage_is_unknown_beyond_the_remembered_allocations() {
        let mut memory = MemoryUse::default();
        for at in 0..LIVE_MAX as u64 + 1 {
            follow(&mut memory, kind::ALLOC, &device(1 + at, 1), at);
        }
        assert!(!memory.is_known());
        assert_eq!(memory.forgotten, 1);
        for at in 0..3 * EARLY_MAX as u64 {
            follow(&mut memory, kind::FREE, &device(1 << 40 | at, 0), 5);
        }
        assert_eq!((memory.early_order.len(), memory.early.len()), (EARLY_MAX, EARLY_MAX));
    }

    #[test]
    fn early_frees_are_matched_after_many_unmatched_ones() {
        let mut memory = MemoryUse::default();
        for at in 0..2 * EARLY_MAX as u64 {
            follow(&mut memory, kind::FREE, &device(1 << 40 | at, 0), 5);
        }
        follow(&mut memory, kind::FREE, &device(0x1000, 0), 50);
        follow(&mut memory, kind::ALLOC, &device(0x1000, 9), 40);
        assert_eq!(in_use(&mut memory), [("device", 0, Some(9))]);
        assert_eq!(memory.early_order.len(), EARLY_MAX - 1);
        // The oldest free was dropped.
        follow(&mut memory, kind::ALLOC, &device(1 << 40, 3), 1);
        follow(&mut memory, kind::ALLOC, &device(1 << 40 | (2 * EARLY_MAX as u64 - 1), 5), 1);
        assert_eq!(in_use(&mut memory), [("device", 3, Some(14))]);
    }

    #[test]
    fn usage_is_unknown_after_a_context_ended_with_allocations() {
        let mut memory = MemoryUse::default();
        follow(&mut memory, kind::ALLOC, &device(0x1000, 100), 10);
        follow(&mut memory, kind::FREE, &device(0x1000, 0), 20);
        memory.context_ended(30);
        assert!(memory.is_known(), "no memory was in use");
        follow(&mut memory, kind::ALLOC, &device(0x1000, 100), 40);
        memory.context_ended(50);
        assert_eq!((memory.is_known(), memory.forgotten, memory.live_count), (false, 1, 0));
        // Another thread's allocation, from before the context ended.
        follow(&mut memory, kind::ALLOC, &device(0x2000, 1), 45);
        assert_eq!((memory.forgotten, memory.live_count), (2, 0));
        // What is freed is kinds all the same.
        follow(&mut memory, kind::ALLOC, &device(0x1000, 7), 60);
        follow(&mut memory, kind::FREE, &device(0x1000, 0), 70);
        assert_eq!(
            memory.kinds().nth(1).map(|(_, of)| of.freed.report(crate::metrics::Temporality::Cumulative)),
            Some(Some(107))
        );
    }
}
