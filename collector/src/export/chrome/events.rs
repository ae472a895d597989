//! Events of the Chrome JSON format, with the keys that PyTorch's profiler writes.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::model::operation::{Direction, Operation, What};

/// Something with a begin and a length, both in microseconds.
#[derive(Serialize)]
pub struct Complete<'e, A> {
    pub ph: &'static str,
    pub cat: &'static str,
    pub name: &'e str,
    pub pid: u32,
    pub tid: u32,
    pub ts: f64,
    pub dur: f64,
    pub args: A,
}

/// Values at one moment: one by its unit, or several by what they are.
#[derive(Serialize)]
pub struct CounterEvent {
    pub ph: &'static str,
    pub name: &'static str,
    pub pid: u32,
    pub tid: u32,
    pub ts: f64,
    pub args: BTreeMap<&'static str, f64>,
}

/// Bytes of memory at one moment, by what they are.
#[derive(Serialize)]
pub struct MemoryEvent<'e> {
    pub ph: &'static str,
    pub name: &'static str,
    pub pid: u32,
    pub tid: u32,
    pub ts: f64,
    pub args: &'e BTreeMap<String, u64>,
}

#[derive(Serialize)]
pub struct CallArgs<'e> {
    /// The driver's function that was called.
    pub driver: &'e str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation: Option<u64>,
    /// The vendor's status code, if the call failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
}

#[derive(Serialize)]
pub struct OperationArgs {
    pub device: u32,
    pub context: u32,
    /// The `tid`: readers match it.
    pub stream: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation: Option<u64>,
    #[serde(flatten)]
    pub what: WhatArgs,
    #[serde(rename = "graph node id", skip_serializing_if = "Option::is_none")]
    pub graph_node: Option<u64>,
}

#[derive(Serialize)]
#[serde(untagged)]
pub enum WhatArgs {
    Kernel {
        grid: [u32; 3],
        block: [u32; 3],
        #[serde(rename = "registers per thread")]
        registers: u32,
        #[serde(rename = "shared memory")]
        shared_bytes: u64,
    },
    Moved {
        bytes: u64,
        /// Bytes by nanoseconds.
        #[serde(rename = "memory bandwidth (GB/s)")]
        bandwidth: f64,
    },
    Graph {
        nodes: u32,
    },
}

impl WhatArgs {
    pub fn new(operation: &Operation, duration_ns: u64) -> WhatArgs {
        match operation.what {
            What::Kernel(kernel) => WhatArgs::Kernel {
                grid: kernel.grid,
                block: kernel.block,
                registers: kernel.registers,
                shared_bytes: u64::from(kernel.static_shared_bytes) + u64::from(kernel.dynamic_shared_bytes),
            },
            What::Copy { bytes, .. } | What::Fill { bytes } => {
                WhatArgs::Moved { bytes, bandwidth: bytes as f64 / duration_ns.max(1) as f64 }
            }
            What::Graph => WhatArgs::Graph { nodes: operation.graph.map_or(0, |graph| graph.nodes) },
        }
    }
}

#[derive(Serialize)]
pub struct RangeArgs {
    /// Set if the range had not ended when the entries of its thread stopped.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
}

/// One end of an arrow from a call to what it launched.
#[derive(Serialize)]
pub struct Flow {
    /// `s` at the call, `f` at the operation.
    pub ph: &'static str,
    pub id: u64,
    pub pid: u32,
    pub tid: u32,
    pub ts: f64,
    pub cat: &'static str,
    pub name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bp: Option<&'static str>,
}

/// One end of something that need not nest with the others of its thread: `b` at its begin, `e` at its end.
#[derive(Serialize)]
pub struct Async<'e> {
    pub ph: &'static str,
    pub cat: &'static str,
    pub name: &'e str,
    pub id: u64,
    pub pid: u32,
    pub tid: u32,
    pub ts: f64,
}

/// A name of a process or thread.
#[derive(Serialize)]
pub struct Metadata<A> {
    pub ph: &'static str,
    pub name: &'static str,
    pub pid: u32,
    pub tid: u32,
    pub args: A,
}

#[derive(Serialize)]
pub struct NameArgs<'e> {
    pub name: &'e str,
}

#[derive(Serialize)]
pub struct LabelArgs<'e> {
    pub labels: &'e str,
}

/// A device as the head of the file lists it.
#[derive(Serialize)]
pub struct DeviceProperties {
    pub id: u32,
    pub name: String,
    #[serde(rename = "totalGlobalMem")]
    pub memory_bytes: u64,
    #[serde(rename = "computeMajor")]
    pub compute_major: u32,
    #[serde(rename = "computeMinor")]
    pub compute_minor: u32,
    #[serde(rename = "numSms")]
    pub multiprocessors: u32,
    #[serde(rename = "warpSize")]
    pub warp_size: u32,
}

/// The name of a copy, `Memcpy HtoD (Pageable -> Device)`: readers compare its begin.
pub fn copy_name(direction: Direction, source_memory: u8, target_memory: u8) -> String {
    let short = match direction {
        Direction::CpuToGpu => "HtoD",
        Direction::GpuToCpu => "DtoH",
        Direction::GpuToGpu => "DtoD",
        Direction::PeerToPeer => "PtoP",
        Direction::CpuToCpu => "HtoH",
        Direction::Unknown => "Unknown",
    };
    format!("Memcpy {short} ({} -> {})", memory_name(source_memory), memory_name(target_memory))
}

/// By the number in a copy's record.
fn memory_name(memory: u8) -> &'static str {
    match memory {
        1 => "Pageable",
        2 => "Pinned",
        3 | 6 => "Device",
        4 => "Array",
        5 | 7 => "Managed",
        _ => "Unknown",
    }
}

/// The function of the CUDA runtime that does what a driver function does: analyses of PyTorch's traces match
/// these names. `None` if there is none among those that are matched.
pub fn runtime_name(entry: &str) -> Option<&'static str> {
    Some(match entry {
        "cuLaunchKernel" => "cudaLaunchKernel",
        "cuLaunchKernelEx" => "cudaLaunchKernelExC",
        "cuLaunchCooperativeKernel" => "cudaLaunchCooperativeKernel",
        "cuGraphLaunch" => "cudaGraphLaunch",
        "cuStreamSynchronize" => "cudaStreamSynchronize",
        "cuCtxSynchronize" => "cudaDeviceSynchronize",
        "cuStreamWaitEvent" => "cudaStreamWaitEvent",
        "cuEventSynchronize" => "cudaEventSynchronize",
        "cuEventRecord" => "cudaEventRecord",
        "cuEventQuery" => "cudaEventQuery",
        _ if entry.starts_with("cuMemcpy") && entry.ends_with("Async") => "cudaMemcpyAsync",
        _ if entry.starts_with("cuMemcpy") => "cudaMemcpy",
        _ if entry.starts_with("cuMemset") && entry.ends_with("Async") => "cudaMemsetAsync",
        _ if entry.starts_with("cuMemset") => "cudaMemset",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_named_as_pytorch_names_them() {
        assert_eq!(copy_name(Direction::CpuToGpu, 1, 3), "Memcpy HtoD (Pageable -> Device)");
        assert_eq!(copy_name(Direction::GpuToCpu, 3, 2), "Memcpy DtoH (Device -> Pinned)");
    }

    #[test]
    fn runtime_names_are_those_that_analyses_match() {
        for (entry, expected) in [
            ("cuLaunchKernel", Some("cudaLaunchKernel")),
            ("cuMemcpyHtoDAsync", Some("cudaMemcpyAsync")),
            ("cuMemcpy2D", Some("cudaMemcpy")),
            ("cuMemsetD8Async", Some("cudaMemsetAsync")),
            ("cuMemAlloc", None),
        ] {
            assert_eq!(runtime_name(entry), expected, "{entry}");
        }
    }
}
