//! The arguments of a failed call, as far as the trace has them.

use gputrace_wire::call::{Detail, direction, memory, operation, wait};
use serde::Serialize;

use crate::model::definitions::Definitions;
use crate::model::operation::HostCall;
use crate::names;

/// The arguments of a call. Those that it does not have are absent.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Arguments {
    // `Arguments::of` leaves it to its caller.
    /// The short name of the kernel that was launched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Sides beyond the trace format's range, longer than any device accepts, are its maximum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grid: Option<[u32; 3]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<[u16; 3]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<[u8; 3]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dynamic_shared_bytes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waited_for: Option<&'static str>,
    /// The file of device code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

impl Arguments {
    pub fn of(call: &HostCall, definitions: &Definitions) -> Arguments {
        let mut all = Arguments::default();
        match call.detail {
            Detail::Launch(launch) => {
                all.grid = Some(launch.grid);
                all.block = Some(launch.block);
                all.cluster = Some(launch.cluster).filter(|sides| *sides != [0; 3]);
                all.dynamic_shared_bytes = Some(launch.dynamic_shared_bytes);
            }
            Detail::Copy(copy) => {
                all.bytes = Some(copy.bytes);
                all.direction = direction_name(copy.direction);
            }
            Detail::Fill { bytes, .. } => all.bytes = Some(bytes),
            Detail::Memory(memory) => {
                all.bytes = Some(memory.bytes).filter(|bytes| *bytes > 0);
                all.memory = memory_name(memory.memory);
            }
            Detail::Wait { what, .. } => all.waited_for = Some(wait_name(what)),
            Detail::Module { module, .. } => {
                all.file = Some(definitions.text(module).to_owned()).filter(|file| !file.is_empty());
            }
            Detail::Other { .. } => {
                let name = asked_name(call, definitions);
                all.kernel = name.map(|name| names::short(&names::demangle(name.as_bytes())));
            }
            Detail::MemoryState(state) => {
                all.bytes = Some(state.value).filter(|_| state.operation == operation::UNMAP);
            }
            Detail::GraphLaunch { .. } | Detail::Graph { .. } => {}
        }
        all
    }
}

/// The mangled name of the function that a call looked up, if the trace has it.
pub fn asked_name<'d>(call: &HostCall, definitions: &'d Definitions) -> Option<&'d str> {
    match call.detail {
        Detail::Other { operation: operation::LOOK_UP_FAILED, value } => {
            definitions.name(u32::try_from(value).ok()?)
        }
        _ => None,
    }
}

pub const fn wait_name(what: u8) -> &'static str {
    match what {
        wait::STREAM => "stream",
        wait::CONTEXT => "context",
        wait::EVENT => "event",
        wait::STREAM_ON_EVENT => "stream on event",
        wait::STREAM_ON_VALUE => "stream on value",
        _ => "unknown",
    }
}

const fn direction_name(of: u8) -> Option<&'static str> {
    Some(match of {
        direction::HOST_TO_DEVICE => "cpu_to_gpu",
        direction::DEVICE_TO_HOST => "gpu_to_cpu",
        direction::DEVICE_TO_DEVICE => "gpu_to_gpu",
        direction::PEER => "peer_to_peer",
        direction::HOST_TO_HOST => "cpu_to_cpu",
        _ => return None,
    })
}

const fn memory_name(of: u8) -> Option<&'static str> {
    Some(match of {
        memory::DEVICE => "device",
        memory::PINNED => "pinned",
        memory::MANAGED => "managed",
        memory::POOL => "pool",
        memory::REGISTERED => "registered",
        memory::VIRTUAL => "virtual",
        memory::PAGEABLE => "pageable",
        memory::ARRAY => "array",
        memory::IMPORTED => "imported",
        _ => return None,
    })
}
