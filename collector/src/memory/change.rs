//! Which calls change the memory in use, and how: the one rule for reports, metrics, exports and `top`.
//!
//! `cuMemFree` frees memory of the device, managed memory and memory of pools, so allocations are known by
//! address, and a free has no kind of its own.

use gputrace_wire::call::{Detail, Memory, memory, operation};
use gputrace_wire::cell::{flag, kind};

use crate::model::definitions::Definitions;
use crate::model::operation::HostCall;

pub const KINDS: usize = 10;

/// The program's own host memory.
pub const REGISTERED: &str = "registered";

/// The names of kinds of memory, by their numbers in [`memory`].
pub const NAMES: [&str; KINDS] = [
    "unknown", "device", "pinned", "managed", "pool", REGISTERED, "virtual", "pageable", "array", "imported",
];

/// An address or handle; equal numbers of different spaces are different allocations.
pub type AllocationKey = (Space, u64);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Space {
    Addresses,
    Registered,
    Handles,
    Arrays,
    Imported,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryChange {
    /// `kind` is below [`KINDS`].
    Allocated {
        key: AllocationKey,
        kind: usize,
        bytes: u64,
    },
    Freed {
        key: AllocationKey,
    },
    /// A context ended, and its allocations with it. No call says which these are, so any may be gone.
    ContextEnded,
}

impl MemoryChange {
    /// Whether a call may change the memory in use. Cheap, for callers that prepare something for it.
    #[inline]
    pub fn concerns(call: &HostCall) -> bool {
        let is_accepted = call.status == 0 && call.flags & flag::CAPTURED == 0;
        is_accepted
            && match &call.detail {
                Detail::Memory(_) => matches!(call.kind, kind::ALLOC | kind::FREE),
                Detail::Other { operation, .. } => *operation == operation::DESTROY,
                _ => false,
            }
    }

    /// What an accepted call changed, and when: an allocation is there once its call has returned, and a free
    /// is done from the beginning of its call on, after which another thread may get the address.
    #[inline]
    pub fn of(call: &HostCall, definitions: &Definitions) -> Option<(u64, MemoryChange)> {
        if !MemoryChange::concerns(call) {
            return None;
        }
        match &call.detail {
            Detail::Memory(what) if call.kind == kind::ALLOC => {
                let returned_ns = call.start_ns.saturating_add(call.duration_ns);
                let (key, kind) = (key(what), kind_of(what));
                Some((returned_ns, MemoryChange::Allocated { key, kind, bytes: what.bytes }))
            }
            // The driver accepts a free of nothing.
            Detail::Memory(what) if what.address == 0 => None,
            Detail::Memory(what) => Some((call.start_ns, MemoryChange::Freed { key: key(what) })),
            _ => definitions
                .api(call.api)
                .is_some_and(ends_context)
                .then_some((call.start_ns, MemoryChange::ContextEnded)),
        }
    }
}

/// The kind of the memory that a call asked for, below [`KINDS`].
pub(super) fn kind_of(what: &Memory) -> usize {
    Some(usize::from(what.memory)).filter(|kind| *kind < KINDS).unwrap_or(0)
}

/// Whether memory of the kind is the host's. Imported memory is another process's, and counts there.
pub fn is_of_host(kind: usize) -> bool {
    [memory::PINNED, memory::REGISTERED, memory::PAGEABLE].map(usize::from).contains(&kind)
}

/// Whether a call frees all memory of a context. `cuDevicePrimaryCtxRelease` does so only for the last holder
/// of the context, and no call says who that is.
fn ends_context(api: &str) -> bool {
    ["cuCtxDestroy", "cuDevicePrimaryCtxReset"]
        .iter()
        .any(|name| api.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("_v")))
}

pub(super) fn key(what: &Memory) -> AllocationKey {
    let space = match what.memory {
        memory::REGISTERED => Space::Registered,
        memory::VIRTUAL => Space::Handles,
        memory::ARRAY => Space::Arrays,
        memory::IMPORTED => Space::Imported,
        _ => Space::Addresses,
    };
    (space, what.address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_end_a_context_are_known_in_every_version() {
        for api in
            ["cuCtxDestroy", "cuCtxDestroy_v2", "cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2"]
        {
            assert!(ends_context(api), "{api}");
        }
        for api in
            ["cuStreamDestroy_v2", "cuEventDestroy", "cuDevicePrimaryCtxRelease_v2", "cuGreenCtxDestroy", ""]
        {
            assert!(!ends_context(api), "{api}");
        }
    }
}
