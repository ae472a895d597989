//! What a process allocated and freed, in the order of time, in bounded memory.

use std::collections::BTreeMap;

use gputrace_wire::block::Block;
use gputrace_wire::call::Detail;
use gputrace_wire::cell::{flag, kind};

use crate::memory::{AllocationKey, BLOCK, MemoryChange, Space, is_of_host};
use crate::model::block::{BlockEvent, BlockWhat};
use crate::model::definitions::Definitions;
use crate::model::operation::HostCall;

/// Entries that are kept of a process: the last ones. PyTorch's own snapshots have as many by its example.
pub const ENTRIES_MAX: usize = 100_000;
/// Live allocations that are followed.
const LIVE_MAX: usize = 1 << 20;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: u16 = 2;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Action {
    Freed,
    Allocated,
    Refused,
    /// Physical memory is mapped at an address.
    Mapped,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryStep {
    pub at_ns: u64,
    pub action: Action,
    /// None of a refusal.
    pub key: Option<AllocationKey>,
    pub kind: usize,
    /// Of a free those of the allocation, once it is known. Of a mapping the address.
    pub bytes: u64,
    /// Where physical memory is mapped; 0 where it is not, and of other memory.
    pub mapped_at: u64,
    pub stack: u32,
    pub api: u32,
    /// What was held on devices after it.
    pub held_bytes: u64,
}

#[derive(Debug, Default)]
pub struct MemoryHistory {
    /// In the order of arrival: calls of several threads are not sorted.
    arrived: Vec<MemoryStep>,
    /// The last ones, in the order of time.
    entries: Vec<MemoryStep>,
    pub live: BTreeMap<AllocationKey, MemoryStep>,
    held_bytes: u64,
    /// Earlier entries that are not kept.
    pub dropped: u64,
    /// Allocations beyond those that are followed.
    pub not_followed: u64,
}

impl MemoryHistory {
    pub fn add(&mut self, call: &HostCall, definitions: &Definitions) {
        if let Some(entry) = entry(call, definitions) {
            self.push(entry);
        }
    }

    /// A block of a caching allocator.
    pub fn add_block(&mut self, event: &BlockEvent) {
        let action = match event.what {
            BlockWhat::Changed(Block { bytes: 1.., .. }) => Action::Allocated,
            BlockWhat::Changed(_) => Action::Freed,
            // Which blocks are still there is not known.
            BlockWhat::Switched { is_on } => {
                if is_on {
                    self.push(step(event.at_ns, Action::Freed, None));
                }
                return;
            }
        };
        let BlockWhat::Changed(block) = event.what else { return };
        let key = Some((Space::Addresses, block.address));
        let bytes = block.bytes.unsigned_abs();
        self.push(MemoryStep { kind: BLOCK, bytes, stack: block.stack, ..step(event.at_ns, action, key) });
    }

    fn push(&mut self, step: MemoryStep) {
        self.arrived.push(step);
        // Twice as many: calls that arrive later may be earlier than the last of these.
        if self.arrived.len() >= 2 * ENTRIES_MAX {
            self.follow(ENTRIES_MAX);
        }
    }

    /// Follows the earliest of what arrived, so many.
    fn follow(&mut self, count: usize) {
        self.arrived.sort_by_key(|entry| (entry.at_ns, entry.action));
        let rest = self.arrived.split_off(count.min(self.arrived.len()));
        for entry in std::mem::replace(&mut self.arrived, rest) {
            self.apply(entry);
        }
        let surplus = self.entries.len().saturating_sub(ENTRIES_MAX);
        self.entries.drain(..surplus);
        self.dropped += surplus as u64;
    }

    fn apply(&mut self, mut entry: MemoryStep) {
        match (entry.action, entry.key) {
            (Action::Allocated, Some(key)) => {
                if self.live.len() >= LIVE_MAX {
                    self.not_followed += 1;
                    return;
                }
                // What had the address before was freed by a call that is not known.
                self.end(key, entry.at_ns);
                self.held_bytes = self.held_bytes.saturating_add(entry.bytes);
                self.live.insert(key, entry);
            }
            (Action::Freed, Some(key)) => return self.end(key, entry.at_ns),
            // A context ended, and no call says whose memory went with it: what it may be ends here.
            (Action::Freed, None) => {
                let keys: Vec<_> = self
                    .live
                    .keys()
                    .copied()
                    .filter(|(space, _)| matches!(space, Space::Addresses | Space::Arrays))
                    .collect();
                return keys.into_iter().for_each(|key| self.end(key, entry.at_ns));
            }
            (Action::Mapped, Some(key)) => {
                self.live.get_mut(&key).into_iter().for_each(|live| live.mapped_at = entry.bytes);
                return;
            }
            _ => {}
        }
        entry.held_bytes = self.held_bytes;
        self.entries.push(entry);
    }

    fn end(&mut self, key: AllocationKey, at_ns: u64) {
        let Some(before) = self.live.remove(&key) else { return };
        self.held_bytes = self.held_bytes.saturating_sub(before.bytes);
        self.entries.push(MemoryStep { at_ns, action: Action::Freed, held_bytes: self.held_bytes, ..before });
    }

    /// The last entries, in the order of time.
    pub fn finish(&mut self) -> Vec<MemoryStep> {
        self.follow(usize::MAX);
        std::mem::take(&mut self.entries)
    }
}

/// What a call changed of the memory of devices, or was refused of it.
fn entry(call: &HostCall, definitions: &Definitions) -> Option<MemoryStep> {
    let HostCall { stack, api, .. } = *call;
    let of =
        |at_ns, action, key, kind, bytes| MemoryStep { kind, bytes, stack, api, ..step(at_ns, action, key) };
    if let Some((at_ns, change)) = MemoryChange::of(call, definitions) {
        return match change {
            MemoryChange::Allocated { kind, .. } if is_of_host(kind) || is_imported(kind) => None,
            MemoryChange::Allocated { key, kind, bytes, .. } => {
                Some(of(at_ns, Action::Allocated, Some(key), kind, bytes))
            }
            MemoryChange::Freed { key } => Some(of(at_ns, Action::Freed, Some(key), 0, 0)),
            MemoryChange::ContextEnded => Some(of(at_ns, Action::Freed, None, 0, 0)),
            MemoryChange::Mapped { address, handle, .. } => {
                Some(of(at_ns, Action::Mapped, Some((Space::Handles, handle)), 0, address))
            }
            // Physical memory ends at its release here, also where it is mapped still.
            MemoryChange::Unmapped { .. }
            | MemoryChange::Retained { .. }
            | MemoryChange::Pool { .. }
            | MemoryChange::Observed { .. } => None,
        };
    }
    let Detail::Memory(what) = &call.detail else { return None };
    let is_refused =
        call.kind == kind::ALLOC && call.status == OUT_OF_MEMORY && call.flags & flag::CAPTURED == 0;
    let kind = usize::from(what.memory);
    let returned_ns = call.start_ns.saturating_add(call.duration_ns);
    (is_refused && !is_of_host(kind)).then(|| of(returned_ns, Action::Refused, None, kind, what.bytes))
}

fn step(at_ns: u64, action: Action, key: Option<AllocationKey>) -> MemoryStep {
    MemoryStep { at_ns, action, key, kind: 0, bytes: 0, mapped_at: 0, stack: 0, api: 0, held_bytes: 0 }
}

fn is_imported(kind: usize) -> bool {
    kind == usize::from(gputrace_wire::call::memory::IMPORTED)
}
