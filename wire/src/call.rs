//! Host calls: what a hook writes after the original has returned. One cell each.
//!
//! ```text
//!  0  kind, cells, flags      8  start (ticks)      24  stack definition
//!  4  api definition         16  duration (ticks)   28  window
//!                            20  correlation id     32  stream definition
//! 36 … 59  by kind           60  status
//! ```
//!
//! Ids are definition ids; 0 is "undefined". The correlation id joins the call to its device
//! records; 0 means that there are none.

use core::hint::cold_path;

use crate::cell::{Cell, flag, kind};

/// The unit of a long duration is 2^16 ticks. A wait of a day is reported to within 22 µs of a 3 GHz
/// counter; the largest duration is 2^48 ticks, 26 hours, and a longer one is reported as that.
pub const LONG_DURATION_SHIFT: u32 = 16;

/// The part that all host calls share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Call {
    pub kind: u16,
    pub flags: u8,
    /// Definition of the driver function that was called.
    pub api: u32,
    pub start_ticks: u64,
    pub duration_ticks: u64,
    pub correlation: u32,
    pub stack: u32,
    pub stream: u32,
    /// The window of device times that the call was made in: 2 × its number in the process, plus 1 if
    /// something new triggered it; 0 for none. Only launches, copies and fills have one.
    pub window: u32,
    /// The vendor's status code, 0 for success. A code past 16 bits must be written as 0xffff, so that no
    /// failure looks like success.
    pub status: u16,
    pub detail: Detail,
}

/// What the call did, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    Launch(Launch),
    GraphLaunch {
        graph: u32,
    },
    Copy(Copy),
    Fill {
        bytes: u64,
        value: u32,
    },
    Memory(Memory),
    MemoryState(MemoryState),
    Wait {
        what: u8,
        handle: u64,
    },
    Module {
        module: u32,
        operation: u8,
    },
    Graph {
        graph: u32,
        source: u32,
        operation: u8,
    },
    /// Any other hooked function; `value` is its main argument, if it has one.
    Other {
        operation: u8,
        value: u64,
    },
}

impl Default for Detail {
    fn default() -> Self {
        Detail::Other { operation: 0, value: 0 }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Launch {
    pub function: u32,
    pub grid: [u32; 3],
    pub block: [u16; 3],
    /// Thread-block cluster in blocks; 0 if the launch gave none.
    pub cluster: [u8; 3],
    pub dynamic_shared_bytes: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Copy {
    pub direction: u8,
    pub bytes: u64,
    /// How many copies the call asked for (a batch), at least 1.
    pub count: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Memory {
    pub memory: u8,
    pub bytes: u64,
    pub address: u64,
    /// The low half of the pool's handle, which tells the pools of a process apart; 0 for none, or for the
    /// device's current pool.
    pub pool: u32,
    /// The call asked for memory, and how much is not known: `bytes` is 0.
    pub is_size_unknown: bool,
}

/// What a call did with memory, or found out about it, other than allocating or freeing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryState {
    pub operation: u8,
    /// An address, or the handle of a pool.
    pub object: u64,
    /// What the operation says: the mapped handle, a length, a limit, bytes that are in use, a device.
    pub value: u64,
    /// The length of a mapping in units of [`MAPPED_UNIT`]; 0 if it is not known.
    pub units: u32,
}

/// In the value of a `LOOK_UP` of a pool: it is the device's current pool, and else its own.
pub const CURRENT_POOL: u64 = 1 << 32;

/// Mappings are multiples of it: devices' granularity is 64 KiB or 2 MiB.
pub const MAPPED_UNIT: u64 = 4096;

/// Direction of a copy, as far as the call states it.
pub mod direction {
    pub const UNKNOWN: u8 = 0;
    pub const HOST_TO_DEVICE: u8 = 1;
    pub const DEVICE_TO_HOST: u8 = 2;
    pub const DEVICE_TO_DEVICE: u8 = 3;
    pub const PEER: u8 = 4;
    pub const HOST_TO_HOST: u8 = 5;
}

/// Kind of memory.
pub mod memory {
    pub const UNKNOWN: u8 = 0;
    pub const DEVICE: u8 = 1;
    pub const PINNED: u8 = 2;
    pub const MANAGED: u8 = 3;
    pub const POOL: u8 = 4;
    pub const REGISTERED: u8 = 5;
    pub const VIRTUAL: u8 = 6;
    pub const PAGEABLE: u8 = 7;
    pub const ARRAY: u8 = 8;
    /// Another process's, opened in this one.
    pub const IMPORTED: u8 = 9;
}

/// What a wait waited for.
pub mod wait {
    pub const STREAM: u8 = 1;
    pub const CONTEXT: u8 = 2;
    pub const EVENT: u8 = 3;
    /// The stream waits, not the host.
    pub const STREAM_ON_EVENT: u8 = 4;
    pub const STREAM_ON_VALUE: u8 = 5;
}

/// Operations of `Module`, `Graph` and `Other`.
pub mod operation {
    pub const LOAD: u8 = 1;
    pub const UNLOAD: u8 = 2;
    pub const CREATE: u8 = 3;
    pub const DESTROY: u8 = 4;
    pub const CAPTURE_BEGIN: u8 = 5;
    pub const CAPTURE_END: u8 = 6;
    pub const INSTANTIATE: u8 = 7;
    pub const UPDATE: u8 = 8;
    pub const SET_CURRENT: u8 = 9;
    pub const RECORD: u8 = 10;
    pub const HOST_FUNCTION: u8 = 11;
    pub const INITIALISE: u8 = 12;
    pub const LOOK_UP: u8 = 13;
    pub const ADD_NODE: u8 = 14;
    pub const CLONE: u8 = 15;
    pub const PREFETCH: u8 = 16;
    pub const MAP: u8 = 17;
    pub const UNMAP: u8 = 18;
    pub const QUERY: u8 = 19;
    pub const ENABLE: u8 = 20;
    /// A look-up that found no code for the device; `value` is the definition of the name looked up.
    pub const LOOK_UP_FAILED: u8 = 21;
    /// A pool gives back what it does not use, beyond `value` bytes.
    pub const TRIM: u8 = 22;
    /// A pool keeps up to `value` bytes that it does not use.
    pub const KEEP: u8 = 23;
    /// `object` is an address, and `value` one more handle of what is mapped there.
    pub const RETAIN: u8 = 24;
    /// `object` is a pool, and `value` the bytes that it has taken from the device.
    pub const RESERVED: u8 = 25;
}

impl Call {
    #[inline(always)]
    pub fn to_cell(&self) -> Cell {
        let mut cell = Cell::new(self.kind, 1, self.flags);
        let (duration, long) = match u32::try_from(self.duration_ticks) {
            Ok(ticks) => (ticks, 0),
            Err(_) => {
                cold_path();
                let units = self.duration_ticks >> LONG_DURATION_SHIFT;
                (u32::try_from(units).unwrap_or(u32::MAX), flag::LONG_DURATION)
            }
        };
        cell.set_flags(self.flags & !flag::LONG_DURATION | long);
        cell.put_u32(4, self.api);
        cell.put_u64(8, self.start_ticks);
        cell.put_u32(16, duration);
        cell.put_u32(20, self.correlation);
        cell.put_u32(24, self.stack);
        cell.put_u32(28, self.window);
        cell.put_u32(32, self.stream);
        match self.detail {
            Detail::Launch(l) => {
                cell.put_u32(36, l.function);
                cell.put_u32(40, l.grid[0]);
                cell.put_u16(44, l.grid[1].min(0xffff) as u16);
                cell.put_u16(46, l.grid[2].min(0xffff) as u16);
                cell.put_u16(48, l.block[0]);
                cell.put_u16(50, l.block[1]);
                cell.put_u8(52, l.block[2].min(255) as u8);
                cell.put_u8(53, l.cluster[0]);
                cell.put_u8(54, l.cluster[1]);
                cell.put_u8(55, l.cluster[2]);
                cell.put_u32(56, l.dynamic_shared_bytes);
            }
            Detail::GraphLaunch { graph } => cell.put_u32(36, graph),
            Detail::Copy(c) => {
                cell.put_u8(36, c.direction);
                cell.put_u64(40, c.bytes);
                cell.put_u32(48, c.count);
            }
            Detail::Fill { bytes, value } => {
                cell.put_u32(36, value);
                cell.put_u64(40, bytes);
            }
            Detail::Memory(m) => {
                cell.put_u8(36, m.memory);
                cell.put_u64(40, m.bytes);
                cell.put_u64(48, m.address);
                cell.put_u32(56, m.pool);
                cell.put_u8(37, u8::from(m.is_size_unknown));
            }
            Detail::MemoryState(m) => {
                cell.put_u8(36, m.operation);
                cell.put_u64(40, m.object);
                cell.put_u64(48, m.value);
                cell.put_u32(56, m.units);
            }
            Detail::Wait { what, handle } => {
                cell.put_u8(36, what);
                cell.put_u64(40, handle);
            }
            Detail::Module { module, operation } => {
                cell.put_u8(36, operation);
                cell.put_u32(40, module);
            }
            Detail::Graph { graph, source, operation } => {
                cell.put_u8(36, operation);
                cell.put_u32(40, graph);
                cell.put_u32(44, source);
            }
            Detail::Other { operation, value } => {
                cell.put_u8(36, operation);
                cell.put_u64(40, value);
            }
        }
        cell.put_u16(60, self.status);
        cell
    }

    /// Decodes a host call; `None` if the kind is not one.
    pub fn from_cell(cell: &Cell) -> Option<Call> {
        let detail = match cell.kind() {
            kind::LAUNCH => Detail::Launch(Launch {
                function: cell.u32_at(36),
                grid: [cell.u32_at(40), cell.u16_at(44).into(), cell.u16_at(46).into()],
                block: [cell.u16_at(48), cell.u16_at(50), cell.u8_at(52).into()],
                cluster: [cell.u8_at(53), cell.u8_at(54), cell.u8_at(55)],
                dynamic_shared_bytes: cell.u32_at(56),
            }),
            kind::GRAPH_LAUNCH => Detail::GraphLaunch { graph: cell.u32_at(36) },
            kind::COPY => Detail::Copy(Copy {
                direction: cell.u8_at(36),
                bytes: cell.u64_at(40),
                count: cell.u32_at(48),
            }),
            kind::FILL => Detail::Fill { bytes: cell.u64_at(40), value: cell.u32_at(36) },
            kind::ALLOC | kind::FREE => Detail::Memory(Memory {
                memory: cell.u8_at(36),
                bytes: cell.u64_at(40),
                address: cell.u64_at(48),
                pool: cell.u32_at(56),
                is_size_unknown: cell.u8_at(37) != 0,
            }),
            kind::MEMORY => Detail::MemoryState(MemoryState {
                operation: cell.u8_at(36),
                object: cell.u64_at(40),
                value: cell.u64_at(48),
                units: cell.u32_at(56),
            }),
            kind::WAIT => Detail::Wait { what: cell.u8_at(36), handle: cell.u64_at(40) },
            kind::MODULE => Detail::Module { module: cell.u32_at(40), operation: cell.u8_at(36) },
            kind::GRAPH => {
                Detail::Graph { graph: cell.u32_at(40), source: cell.u32_at(44), operation: cell.u8_at(36) }
            }
            kind::CALL => Detail::Other { operation: cell.u8_at(36), value: cell.u64_at(40) },
            _ => return None,
        };
        let shift = if cell.flags() & flag::LONG_DURATION != 0 { LONG_DURATION_SHIFT } else { 0 };
        Some(Call {
            kind: cell.kind(),
            flags: cell.flags(),
            api: cell.u32_at(4),
            start_ticks: cell.u64_at(8),
            duration_ticks: u64::from(cell.u32_at(16)) << shift,
            correlation: cell.u32_at(20),
            stack: cell.u32_at(24),
            stream: cell.u32_at(32),
            window: cell.u32_at(28),
            status: cell.u16_at(60),
            detail,
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn detail() -> impl Strategy<Value = (u16, Detail)> {
        prop_oneof![
            (
                any::<u32>(),
                any::<[u16; 3]>(),
                any::<[u16; 2]>(),
                any::<[u8; 4]>(),
                any::<u32>(),
                any::<u32>()
            )
                .prop_map(|(function, grid, block, small, gx, dynamic_shared_bytes)| {
                    let grid = [gx, grid[1].into(), grid[2].into()];
                    let block = [block[0], block[1], small[3].into()];
                    let cluster = [small[0], small[1], small[2]];
                    (
                        kind::LAUNCH,
                        Detail::Launch(Launch { function, grid, block, cluster, dynamic_shared_bytes }),
                    )
                }),
            any::<u32>().prop_map(|graph| (kind::GRAPH_LAUNCH, Detail::GraphLaunch { graph })),
            (any::<u8>(), any::<u64>(), any::<u32>()).prop_map(|(direction, bytes, count)| (
                kind::COPY,
                Detail::Copy(Copy { direction, bytes, count })
            )),
            (any::<u64>(), any::<u32>())
                .prop_map(|(bytes, value)| (kind::FILL, Detail::Fill { bytes, value })),
            (any::<u8>(), any::<u64>(), any::<u64>(), any::<u32>(), any::<[bool; 2]>()).prop_map(
                |(memory, bytes, address, pool, [free, is_size_unknown])| {
                    (
                        if free { kind::FREE } else { kind::ALLOC },
                        Detail::Memory(Memory { memory, bytes, address, pool, is_size_unknown }),
                    )
                }
            ),
            (any::<u8>(), any::<u64>(), any::<u64>(), any::<u32>()).prop_map(
                |(operation, object, value, units)| (
                    kind::MEMORY,
                    Detail::MemoryState(MemoryState { operation, object, value, units })
                )
            ),
            (any::<u8>(), any::<u64>())
                .prop_map(|(what, handle)| (kind::WAIT, Detail::Wait { what, handle })),
            (any::<u32>(), any::<u8>())
                .prop_map(|(module, operation)| (kind::MODULE, Detail::Module { module, operation })),
            (any::<u32>(), any::<u32>(), any::<u8>()).prop_map(|(graph, source, operation)| (
                kind::GRAPH,
                Detail::Graph { graph, source, operation }
            )),
            (any::<u8>(), any::<u64>())
                .prop_map(|(operation, value)| (kind::CALL, Detail::Other { operation, value })),
        ]
    }

    proptest! {
        #[test]
        fn calls_round_trip(
            (kind, detail) in detail(),
            flags in (0u8..16).prop_map(|f| f & !flag::LONG_DURATION),
            api: u32, start_ticks: u64, duration_ticks in 0u64..1 << 32,
            ids: [u32; 4], status: u16,
        ) {
            let [correlation, stack, stream, window] = ids;
            let call = Call { kind, flags, api, start_ticks, duration_ticks, correlation, stack, stream, window, status, detail };
            prop_assert_eq!(Call::from_cell(&call.to_cell()), Some(call));
        }

        #[test]
        fn long_durations_lose_their_low_bits_only(duration_ticks in 1u64 << 32..1 << 48) {
            let call = Call { kind: kind::WAIT, duration_ticks, detail: Detail::Wait { what: 1, handle: 0 }, ..Call::default() };
            let back = Call::from_cell(&call.to_cell()).unwrap();
            prop_assert_eq!(back.duration_ticks, duration_ticks >> LONG_DURATION_SHIFT << LONG_DURATION_SHIFT);
        }

        #[test]
        fn durations_past_the_limit_become_the_limit(duration_ticks in 1u64 << 48..) {
            let call = Call { kind: kind::WAIT, duration_ticks, detail: Detail::Wait { what: 1, handle: 0 }, ..Call::default() };
            let back = Call::from_cell(&call.to_cell()).unwrap();
            prop_assert_eq!(back.duration_ticks, u64::from(u32::MAX) << LONG_DURATION_SHIFT);
        }
    }
}
