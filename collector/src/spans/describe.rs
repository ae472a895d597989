//! Names and attributes of spans. docs/SPANS.md is their table.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use gputrace_wire::call::Detail;

use crate::aggregate::occupancy;
use crate::failed_calls::{self, Arguments, Category};
use crate::label::{KernelTable, uuid};
use crate::model::RangeName;
use crate::model::definitions::{Definitions, Device};
use crate::model::instances::RangeInstance;
use crate::model::operation::{
    Anomaly, Direction, HostCall, Kernel, Operation, UNKNOWN_MEMORY, What, memory_name,
};
use crate::model::sticky::is_sticky;
use crate::names::demangle;
use crate::source::{KernelSource, KernelSources};
use crate::spans::sampling::Sampling;
use crate::spans::span::{Attribute, Value};

/// Looks up kernel names, sources and devices once for all spans of a process.
#[derive(Debug, Default)]
pub struct Describer {
    kernels: KernelTable,
    sources: KernelSources,
    devices: FxHashMap<u32, KnownDevice>,
}

#[derive(Debug)]
struct KnownDevice {
    device: Option<Device>,
    uuid: Arc<str>,
}

/// A span's name and attributes.
pub type Described = (String, Vec<Attribute>);

impl Describer {
    pub fn operation(
        &mut self,
        operation: &Operation,
        duration_ns: u64,
        anomaly: Option<Anomaly>,
        sampling: &Sampling,
        definitions: &Definitions,
    ) -> Described {
        let is_slow = Value::Flag(sampling.is_slow(duration_ns));
        let threshold = Value::us(sampling.threshold_ns);
        let mut attributes = Vec::with_capacity(28);
        attributes.extend([
            ("gpu.backend", text("cuda")),
            ("gpu.cuda.device_id", Value::number(operation.device)),
            ("gpu.cuda.context_id", Value::number(operation.context)),
            ("gpu.cuda.stream_id", Value::number(operation.stream)),
        ]);
        let known = self.device(operation.device, definitions);
        if !known.uuid.is_empty() {
            attributes.push(("cuda.device.uuid", Value::Text(known.uuid.clone())));
        }
        let name = match operation.what {
            What::Kernel(kernel) => {
                if let Some(device) = &known.device {
                    let sms = device.multiprocessors;
                    attributes.extend((sms > 0).then(|| ("gpu.cuda.sm_count", Value::number(sms))));
                    let occupancy = occupancy(&kernel, device);
                    attributes
                        .extend(occupancy.map(|known| ("gpu.cuda.occupancy", Value::Real(known.share))));
                }
                let name = self.kernels.name(0, kernel.name, Some(definitions));
                attributes.push(("gpu.kernel", Value::shared(name.full)));
                attributes.extend(self.source(operation.call.as_ref(), kernel.name, definitions));
                attributes.extend(shape(&kernel));
                format!("cuda_kernel: {}", name.short)
            }
            What::Copy { direction, bytes, source_memory, target_memory, .. } => {
                attributes.extend(transfer(direction, bytes, duration_ns));
                attributes.push(("gpu_transfer.is_slow", is_slow.clone()));
                attributes.push(("gpu_transfer.threshold_us", threshold.clone()));
                attributes.extend(memories(direction, source_memory, target_memory));
                format!("gpu_transfer: {}", direction.name())
            }
            What::Fill { bytes } => {
                attributes.push(("gpu.memset.bytes", Value::number(bytes)));
                "gpu_memset".to_owned()
            }
            What::Graph => {
                let nodes = operation.graph.map_or(0, |graph| graph.nodes);
                attributes.extend((nodes > 0).then(|| ("gpu.graph.nodes", Value::number(nodes))));
                "cuda_graph".to_owned()
            }
        };
        if let Some(graph) = operation.graph {
            attributes.push(("gpu.graph.id", Value::number(graph.graph)));
            attributes.extend((graph.node != 0).then(|| ("gpu.graph.node_id", Value::number(graph.node))));
        }
        attributes.push(("gpu.duration_us", Value::us(duration_ns)));
        attributes.push(("gpu.is_slow", is_slow));
        attributes.push(("gpu.threshold_us", threshold));
        if let Some(anomaly) = anomaly {
            attributes.push(("gpu.is_anomaly", Value::Flag(true)));
            attributes.push(("gpu.anomaly.sigmas", Value::Real(anomaly.sigmas)));
            attributes.push(("gpu.anomaly.median_us", Value::Real(anomaly.median_ns / 1e3)));
        }
        if let Some(call) = &operation.call {
            attributes.push(("gpu.launch.api", text(definitions.call_name(call.api))));
            attributes.push(("gpu.launch.duration_us", Value::us(call.duration_ns)));
            let launched_ns = call.start_ns.saturating_add(call.duration_ns);
            let start_ns = operation.timing.map_or(0, |timing| timing.start_ns);
            attributes.push(("gpu.queue_us", Value::us(start_ns.saturating_sub(launched_ns))));
            attributes.extend(thread(call.thread, definitions));
        }
        (name, attributes)
    }

    /// The kernel's source line. A graph node does not name its function: it has a line only if all kernels
    /// of its name have the same.
    fn source(
        &mut self,
        call: Option<&HostCall>,
        name: u32,
        definitions: &Definitions,
    ) -> impl Iterator<Item = Attribute> + use<> {
        let found = match call.map(|call| call.detail) {
            Some(Detail::Launch(launch)) => self.sources.of_function(definitions, launch.function),
            _ => {
                let name = definitions.name(name);
                name.and_then(|name| self.sources.of_name(definitions, name).only().cloned())
            }
        };
        let pair = |source: KernelSource| {
            let path = ("gpu.code.file.path", Value::text(&source.path));
            [path, ("gpu.code.line.number", Value::number(source.line))]
        };
        found.map(pair).into_iter().flatten()
    }

    fn device(&mut self, ordinal: u32, definitions: &Definitions) -> &KnownDevice {
        self.devices.entry(ordinal).or_insert_with(|| {
            let device = definitions.device_by_ordinal(ordinal);
            let uuid = device.as_ref().map_or_else(String::new, |device| uuid(device.uuid));
            KnownDevice { device, uuid: uuid.into() }
        })
    }
}

/// Describes a host call.
pub fn call(call: &HostCall, sampling: &Sampling, definitions: &Definitions) -> Described {
    let api = definitions.call_name(call.api);
    let mut attributes = vec![
        ("gpu.backend", text("cuda")),
        ("gpu.api", text(api)),
        ("gpu.duration_us", Value::us(call.duration_ns)),
        ("gpu.is_slow", Value::Flag(sampling.is_slow(call.duration_ns))),
        ("gpu.threshold_us", Value::us(sampling.threshold_ns)),
    ];
    attributes.extend(thread(call.thread, definitions));
    let stream = definitions.stream(call.stream).map_or(0, |stream| stream.record_id);
    attributes.extend((stream != 0).then(|| ("gpu.cuda.stream_id", Value::number(stream))));
    let name = match call.detail {
        Detail::Wait { what, handle } => {
            let waited_for = failed_calls::wait_name(what);
            attributes.push(("gpu.sync.waited_for", text(waited_for)));
            attributes.push(("gpu.sync.handle", Value::text(&format!("{handle:#x}"))));
            format!("cuda_sync: {waited_for}")
        }
        Detail::Memory(memory) => {
            attributes.push(("gpu.memory.bytes", Value::number(memory.bytes)));
            format!("cuda_memory: {api}")
        }
        Detail::Module { .. } => format!("cuda_module: {api}"),
        _ => format!("cuda_call: {api}"),
    };
    if failed_calls::has_failed(call, definitions) {
        attributes.extend(error(call, definitions));
    }
    (name, attributes)
}

/// The attributes that only a failed call has: the error, and the arguments that caused it.
fn error(call: &HostCall, definitions: &Definitions) -> Vec<Attribute> {
    let mut attributes = vec![
        ("error.type", text(failed_calls::name(call.status))),
        ("gpu.cuda.status", Value::number(call.status)),
        ("gpu.error.category", text(Category::of(call, definitions).name())),
    ];
    attributes.extend(
        failed_calls::advice(call, definitions).map(|advice| ("gpu.error.advice", Value::text(&advice))),
    );
    attributes.extend(is_sticky(call.status).then_some(("gpu.error.is_sticky", Value::Flag(true))));
    if let Detail::Launch(launch) = call.detail {
        let full = definitions.function(launch.function).map(|function| demangle(function.name.as_bytes()));
        attributes.extend(full.map(|name| ("gpu.kernel", Value::text(&name))));
        attributes.push(("gpu.cuda.grid_dim", sides(launch.grid)));
        attributes.push(("gpu.cuda.block_dim", sides(launch.block.map(u32::from))));
        if launch.cluster != [0; 3] {
            attributes.push(("gpu.cuda.cluster_dim", sides(launch.cluster.map(u32::from))));
        }
        attributes.push(("gpu.cuda.dynamic_shared_mem_bytes", Value::number(launch.dynamic_shared_bytes)));
    }
    let asked = Arguments::of(call, definitions);
    if matches!(call.detail, Detail::Copy(_)) {
        attributes.extend(asked.direction.map(|direction| ("gpu_transfer.direction", text(direction))));
        attributes.extend(asked.bytes.map(|bytes| ("gpu_transfer.bytes", Value::number(bytes))));
    }
    if let Detail::Fill { bytes, .. } = call.detail {
        attributes.push(("gpu.memset.bytes", Value::number(bytes)));
    }
    attributes.extend(asked.kernel.map(|kernel| ("gpu.kernel", Value::text(&kernel))));
    attributes.extend(asked.memory.map(|memory| ("gpu.memory.kind", text(memory))));
    attributes.extend(asked.file.map(|file| ("gpu.module.file", Value::text(&file))));
    attributes
}

/// The error message of a failed call.
pub fn failure(call: &HostCall, definitions: &Definitions) -> String {
    let api = definitions.call_name(call.api);
    format!("{api} returned {} ({})", failed_calls::name(call.status), call.status)
}

pub fn range(range: &RangeInstance, definitions: &Definitions) -> Described {
    let (domain, name) = definitions.range(range.range).unwrap_or(("", "(unknown range)"));
    let mut attributes =
        vec![("gpu.range.duration_us", Value::us(range.end_ns.saturating_sub(range.start_ns)))];
    attributes.extend((!domain.is_empty()).then(|| ("gpu.range.domain", Value::text(domain))));
    attributes.extend((!range.is_whole).then_some(("gpu.range.is_cut_off", Value::Flag(true))));
    attributes.extend(thread(range.thread, definitions));
    (RangeName { domain: domain.into(), name: name.into() }.text(), attributes)
}

fn thread(thread: u32, definitions: &Definitions) -> impl Iterator<Item = Attribute> {
    let known = definitions.thread(thread);
    let name = known.map(|thread| thread.name).filter(|name| !name.is_empty());
    let id = known.map(|thread| ("thread.id", Value::number(thread.tid)));
    id.into_iter().chain(name.map(|name| ("thread.name", Value::text(name))))
}

fn sides([x, y, z]: [u32; 3]) -> Value {
    Value::text(&format!("[{x},{y},{z}]"))
}

fn shape(kernel: &Kernel) -> impl Iterator<Item = Attribute> {
    let shared = u64::from(kernel.static_shared_bytes) + u64::from(kernel.dynamic_shared_bytes);
    let always = [
        ("gpu.cuda.grid_dim", sides(kernel.grid)),
        ("gpu.cuda.block_dim", sides(kernel.block)),
        ("gpu.cuda.shared_mem_bytes", Value::number(shared)),
    ];
    // An unknown number is left out, not 0.
    let registers =
        (kernel.registers > 0).then(|| ("gpu.cuda.registers_per_thread", Value::number(kernel.registers)));
    let cluster = kernel.cluster.iter().any(|side| *side > 0);
    let cluster = cluster.then(|| ("gpu.cuda.cluster_dim", sides(kernel.cluster)));
    always.into_iter().chain(registers).chain(cluster)
}

fn transfer(direction: Direction, bytes: u64, duration_ns: u64) -> [Attribute; 5] {
    [
        ("gpu_transfer.direction", text(direction.name())),
        ("gpu_transfer.bytes", Value::number(bytes)),
        ("gpu_transfer.duration_us", Value::us(duration_ns)),
        ("gpu_transfer.bandwidth_mbps", Value::Real(bandwidth_mbps(bytes, duration_ns))),
        ("cuda.memcpy.kind", text(memcpy_kind(direction))),
    ]
}

/// The direction's name in OpenTelemetry's eBPF instrumentation.
pub(crate) fn memcpy_kind(direction: Direction) -> &'static str {
    match direction {
        Direction::CpuToGpu => "HtoD",
        Direction::GpuToCpu => "DtoH",
        Direction::GpuToGpu => "DtoD",
        Direction::PeerToPeer => "PtoP",
        Direction::CpuToCpu => "HtoH",
        Direction::Unknown => "unknown",
    }
}

/// Millions of bytes a second; 0 if the duration is 0.
fn bandwidth_mbps(bytes: u64, duration_ns: u64) -> f64 {
    if duration_ns == 0 { 0.0 } else { bytes as f64 * 1e3 / duration_ns as f64 }
}

/// The kinds of memory at both ends. `memory_kind` is the host's, which decides how fast a transfer is.
fn memories(direction: Direction, source: u8, target: u8) -> impl Iterator<Item = Attribute> {
    let (source, target) = (memory(source), memory(target));
    let host = if direction == Direction::GpuToCpu { target } else { source };
    let named = [
        ("gpu_transfer.memory_kind", host),
        ("gpu_transfer.source_memory", source),
        ("gpu_transfer.target_memory", target),
    ];
    named.into_iter().filter_map(|(key, memory)| Some((key, text(memory?))))
}

fn memory(kind: u8) -> Option<&'static str> {
    Some(memory_name(kind)).filter(|name| *name != UNKNOWN_MEMORY)
}

fn text(text: &str) -> Value {
    Value::text(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidth_is_in_millions_of_bytes_a_second() {
        assert!((bandwidth_mbps(10_485_760, 25_000_000) - 419.4).abs() < 0.05);
        assert_eq!(bandwidth_mbps(10_485_760, 0), 0.0);
    }

    #[test]
    fn graph_nodes_have_the_source_that_all_kernels_of_their_name_share() {
        use crate::batch::Definition;
        use crate::source::kernels_tests::{called, joined};
        use gputrace_wire::definition::kind;

        let mut definitions = Definitions::default();
        let mut define = |kind, id, fields: &[u64], text: &[u8]| {
            definitions.add(&Definition { kind, id, fields: fields.to_vec(), text: text.to_vec() });
        };
        define(kind::NAME, 1, &[], b"fused");
        let lines = called(&joined("add_one.cubin"), "fused");
        define(kind::LINES, 2, &[0], &lines);
        define(kind::MODULE, 3, &[0, 0, 2, lines.len() as u64], b"");
        define(kind::FUNCTION, 4, &[0, 1, 3], b"");
        let line = ("gpu.code.line.number", Value::number(7u32));
        let mut describer = Describer::default();
        let found: Vec<_> = describer.source(None, 1, &definitions).collect();
        assert_eq!(found.last(), Some(&line));
        // The node may be of another kernel of that name, whose line is not known.
        let without = Definition { kind: kind::FUNCTION, id: 5, fields: vec![0, 1, 0], text: Vec::new() };
        definitions.add(&without);
        assert_eq!(describer.source(None, 1, &definitions).count(), 0);
        let launch = gputrace_wire::call::Launch { function: 4, ..Default::default() };
        let call = HostCall { detail: Detail::Launch(launch), ..HostCall::default() };
        let found: Vec<_> = describer.source(Some(&call), 1, &definitions).collect();
        assert_eq!(found.last(), Some(&line), "the launch names its function");
    }

    #[test]
    fn transfers_name_the_memory_of_the_host() {
        let kinds =
            |direction, source, target| -> Vec<Attribute> { memories(direction, source, target).collect() };
        assert_eq!(kinds(Direction::GpuToCpu, 3, 1)[0], ("gpu_transfer.memory_kind", text("pageable")));
        assert_eq!(kinds(Direction::CpuToGpu, 2, 3)[0], ("gpu_transfer.memory_kind", text("pinned")));
        assert_eq!(kinds(Direction::CpuToGpu, 0, 0), []);
    }
}
