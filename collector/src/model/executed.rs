//! Executed operations: completes and counts what the join emits, and passes it to the sink.

use gputrace_wire::call::{Detail, direction};
use gputrace_wire::cell::flag;
use gputrace_wire::device::DeviceCopy;

use crate::model::correlate::JoinOutcome;
use crate::model::counts::Counts;
use crate::model::definitions::Definitions;
use crate::model::graphs::GraphTable;
use crate::model::history::Histories;
use crate::model::host_copies::HostCopies;
use crate::model::in_flight::Progress;
use crate::model::operation::{Direction, GraphNode, HostCall, Kernel, Operation, Verdict, What};
use crate::model::sink::Sink;
use crate::model::unidentified::{Unidentified, fits};

/// Where results go while a batch is processed.
pub(super) struct Out<'a, S> {
    pub definitions: &'a Definitions,
    pub graphs: &'a GraphTable,
    pub counts: &'a mut Counts,
    pub unidentified: &'a mut Unidentified,
    pub progress: &'a mut Progress,
    pub host_copies: &'a mut HostCopies,
    pub histories: &'a mut Histories,
    pub sink: &'a mut S,
}

impl<S: Sink> Out<'_, S> {
    pub fn outcome(&mut self, mut outcome: JoinOutcome) {
        match outcome {
            JoinOutcome::Record(Operation { call: Some(ref call), .. }) if call.is_paused() => {
                self.counts.paused_records += 1;
            }
            JoinOutcome::Alone(ref call) if call.is_paused() => {}
            JoinOutcome::Record(ref mut record) => self.record(record),
            JoinOutcome::Alone(call) => self.without_record(call),
            JoinOutcome::LeftOut => self.counts.paused_records += 1,
            JoinOutcome::Double => self.counts.doubled_graph_records += 1,
        }
    }

    /// Emits a record, with its call if the call is known.
    fn record(&mut self, operation: &mut Operation) {
        if !operation.call.as_ref().is_some_and(|call| fits(operation, call)) {
            operation.call = self.unidentified.take(operation);
        }
        if let Some(call) = &operation.call {
            operation.what = complete(operation.what, &call.detail, self.definitions);
        } else {
            self.counts.device_only += 1;
        }
        if operation.what == What::Graph {
            let number = operation.graph.map_or(0, |known| known.graph);
            operation.graph = Some(self.graph_level(number, operation.call.as_ref()));
        } else if let Some(node) = &mut operation.graph {
            let launch_ticks = operation.call.as_ref().map_or(u64::MAX, |call| call.start_ticks);
            node.made = self.graphs.find(node.node, launch_ticks, self.definitions);
        }
        self.progress.record(operation);
        if S::JUDGES
            && let (What::Kernel(kernel), Some(timing)) = (&operation.what, operation.timing)
        {
            operation.verdict = self.histories.judge(kernel, timing.duration_ns);
        }
        self.counts.executed += 1;
        if let Some(timing) = operation.timing {
            self.counts.timed += 1;
            self.counts.device_ns = self.counts.device_ns.saturating_add(timing.duration_ns);
        }
        self.sink.operation(operation, self.definitions);
    }

    /// The graph of a launch that was recorded as a whole. `number`: the graph's number in the record.
    fn graph_level(&self, number: u32, call: Option<&HostCall>) -> GraphNode {
        let named = match call.map(|call| &call.detail) {
            Some(Detail::GraphLaunch { graph }) => self.definitions.graph(*graph),
            _ => None,
        };
        let graph = named.map(|graph| graph.record_id).filter(|named| *named != 0).unwrap_or(number);
        let launch_ticks = call.map_or(u64::MAX, |call| call.start_ticks);
        let (made, nodes) = self.graphs.whole(graph, launch_ticks, self.definitions);
        GraphNode { graph, node: 0, nodes, made }
    }

    /// The ordinal of the device that a call's stream is on.
    fn device_of(&self, call: &HostCall) -> u32 {
        let stream = self.definitions.stream(call.stream);
        stream.and_then(|stream| self.definitions.ordinal_of_context(stream.context)).unwrap_or(0)
    }

    /// Emits a call that does not wait for a record (any longer), while the process runs.
    pub fn without_record(&mut self, call: HostCall) {
        self.progress.without_record(&call);
        self.call_alone(call);
    }

    /// Emits a call without a record as an executed operation.
    pub fn call_alone(&mut self, call: HostCall) {
        // A record that was left out says nothing of where a copy was made.
        if call.flags & flag::UNTIMED == 0 {
            self.host_copies.add(&call, || self.progress.has_passed(&call, self.definitions));
        }
        let what = match &call.detail {
            Detail::Launch(launch) => What::Kernel(Kernel::launched(launch, self.definitions)),
            Detail::Copy(copy) => What::Copy {
                direction: direction_of_call(copy.direction),
                bytes: copy.bytes,
                source_memory: 0,
                target_memory: 0,
                devices: None,
            },
            Detail::Fill { bytes, .. } => What::Fill { bytes: *bytes },
            _ => What::Graph,
        };
        let operation = Operation {
            process: call.process,
            what,
            device: self.device_of(&call),
            context: 0,
            stream: 0,
            graph: matches!(call.detail, Detail::GraphLaunch { .. })
                .then(|| self.graph_level(0, Some(&call))),
            timing: None,
            verdict: Verdict::None,
            call: Some(call),
        };
        self.counts.executed += 1;
        self.sink.operation(&operation, self.definitions);
    }
}

/// Adds to a record what only the call knows. A copy's bytes stay the record's.
fn complete(what: What, detail: &Detail, definitions: &Definitions) -> What {
    match (what, detail) {
        (What::Kernel(kernel), Detail::Launch(launch)) if kernel.name == 0 => What::Kernel(Kernel {
            name: definitions.function(launch.function).map_or(0, |f| f.name_id),
            ..kernel
        }),
        (
            What::Copy { direction: Direction::Unknown, bytes, source_memory, target_memory, devices },
            Detail::Copy(copy),
        ) => {
            let direction = direction_of_call(copy.direction);
            What::Copy { direction, bytes, source_memory, target_memory, devices }
        }
        _ => what,
    }
}

fn direction_of_call(from: u8) -> Direction {
    match from {
        direction::HOST_TO_DEVICE => Direction::CpuToGpu,
        direction::DEVICE_TO_HOST => Direction::GpuToCpu,
        direction::DEVICE_TO_DEVICE => Direction::GpuToGpu,
        direction::PEER => Direction::PeerToPeer,
        direction::HOST_TO_HOST => Direction::CpuToCpu,
        _ => Direction::Unknown,
    }
}

/// The devices at either end, of a copy between devices. The records of other copies have 0 for both.
pub(super) fn peers_of_record(copy: &DeviceCopy) -> Option<[u16; 2]> {
    let devices = [copy.source_device, copy.target_device];
    let is_peer = direction_of_record(copy.copy_kind) == Direction::PeerToPeer;
    (is_peer || copy.source_device != copy.target_device).then_some(devices)
}

/// The direction by CUPTI's kind of copy. Arrays count as device memory.
pub(super) fn direction_of_record(copy_kind: u8) -> Direction {
    match copy_kind {
        1 | 3 => Direction::CpuToGpu,
        2 | 4 => Direction::GpuToCpu,
        5..=8 => Direction::GpuToGpu,
        9 => Direction::CpuToCpu,
        10 => Direction::PeerToPeer,
        _ => Direction::Unknown,
    }
}
