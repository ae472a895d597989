//! Which calls change the memory in use, and how: the one rule for reports, metrics, exports and `top`.
//!
//! `cuMemFree` frees memory of the device, managed memory and memory of pools, so allocations are known by
//! address, and a free has no kind of its own.

use gputrace_wire::call::{CURRENT_POOL, Detail, MAPPED_UNIT, Memory, MemoryState, memory, operation};
use gputrace_wire::cell::{flag, kind};

use super::pools::{PoolChange, PoolOf};
use crate::model::definitions::Definitions;
use crate::model::operation::HostCall;

pub const KINDS: usize = 11;

/// What a caching allocator gives out of memory of the other kinds. No call is of this kind.
pub const BLOCK: usize = 10;

/// The program's own host memory.
pub const REGISTERED: &str = "registered";

/// The names of kinds of memory, by their numbers in [`memory`].
pub const NAMES: [&str; KINDS] = [
    "unknown", "device", "pinned", "managed", "pool", REGISTERED, "virtual", "pageable", "array", "imported",
    "block",
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
        from: PoolOf,
        /// How many bytes the call asked for is not known; they count as none.
        is_size_unknown: bool,
    },
    Freed {
        key: AllocationKey,
    },
    /// Physical memory is mapped at an address. It then lasts as long as the mapping at least.
    Mapped {
        address: u64,
        handle: u64,
        /// 0 if they are not known.
        bytes: u64,
    },
    Unmapped {
        address: u64,
        bytes: u64,
    },
    /// One more handle of what is mapped at an address.
    Retained {
        address: u64,
        handle: u64,
    },
    Pool {
        handle: u64,
        change: PoolChange,
    },
    /// What the driver told the program about the current device.
    Observed {
        total_bytes: u64,
        free_bytes: u64,
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
                Detail::MemoryState(_) => true,
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
                let is_handle = || definitions.api(call.api).is_some_and(makes_handle);
                let key = match what.memory {
                    memory::IMPORTED | memory::PINNED if is_handle() => (Space::Handles, what.address),
                    memory::IMPORTED if what.pool != 0 => (Space::Addresses, what.address),
                    _ => key(what),
                };
                let from = match (what.memory, what.pool) {
                    (memory::POOL, 0) => PoolOf::Device(device_of(call, definitions)),
                    (memory::POOL, low) => PoolOf::Handle(low),
                    _ => PoolOf::Nothing,
                };
                let (kind, bytes, is_size_unknown) = (kind_of(what), what.bytes, what.is_size_unknown);
                Some((returned_ns, MemoryChange::Allocated { key, kind, bytes, from, is_size_unknown }))
            }
            // The driver accepts a free of nothing.
            Detail::Memory(what) if what.address == 0 => None,
            Detail::Memory(what) => Some((call.start_ns, MemoryChange::Freed { key: key(what) })),
            Detail::MemoryState(what) => {
                let returned_ns = call.start_ns.saturating_add(call.duration_ns);
                let change = MemoryChange::of_state(what)?;
                // As with allocations, what takes something away is done from the beginning on.
                let takes = matches!(what.operation, operation::UNMAP | operation::DESTROY);
                Some((if takes { call.start_ns } else { returned_ns }, change))
            }
            _ => definitions
                .api(call.api)
                .is_some_and(ends_context)
                .then_some((call.start_ns, MemoryChange::ContextEnded)),
        }
    }
}

impl MemoryChange {
    fn of_state(what: &MemoryState) -> Option<MemoryChange> {
        let MemoryState { operation, object, value, units } = *what;
        let pool = |change| Some(MemoryChange::Pool { handle: object, change });
        let device = || {
            let number = (value & !CURRENT_POOL).checked_sub(1)?;
            u32::try_from(number).ok()
        };
        match operation {
            operation::MAP => Some(MemoryChange::Mapped {
                address: object,
                handle: value,
                bytes: u64::from(units) * MAPPED_UNIT,
            }),
            operation::UNMAP => Some(MemoryChange::Unmapped { address: object, bytes: value }),
            operation::RETAIN => Some(MemoryChange::Retained { address: object, handle: value }),
            operation::QUERY => Some(MemoryChange::Observed { total_bytes: object, free_bytes: value }),
            operation::CREATE => pool(PoolChange::Created(Some(value).filter(|limit| *limit > 0))),
            operation::DESTROY => pool(PoolChange::Destroyed),
            operation::KEEP => pool(PoolChange::Keeps(value)),
            operation::TRIM => pool(PoolChange::Trimmed),
            operation::RESERVED => pool(PoolChange::Reserved(value)),
            operation::LOOK_UP if value & CURRENT_POOL != 0 => pool(PoolChange::FoundCurrent(device())),
            operation::LOOK_UP => pool(PoolChange::IsDefault(device())),
            operation::SET_CURRENT => pool(PoolChange::IsCurrent(device())),
            _ => None,
        }
    }
}

/// The ordinal of the device of a call's stream.
fn device_of(call: &HostCall, definitions: &Definitions) -> Option<u32> {
    definitions.ordinal_of_context(definitions.stream(call.stream)?.context)
}

/// Whether the call gives a handle of physical memory, whatever memory that is.
fn makes_handle(api: &str) -> bool {
    ["cuMemCreate", "cuMemImportFromShareableHandle"].contains(&api)
}

/// The kind of the memory that a call asked for, below [`BLOCK`].
pub(super) fn kind_of(what: &Memory) -> usize {
    Some(usize::from(what.memory)).filter(|kind| *kind < BLOCK).unwrap_or(0)
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
