//! Executed operations: what the join handed on, completed and counted on its way to the sink.

use gputrace_wire::call::{Detail, direction};

use crate::model::correlate::Outcome;
use crate::model::counts::Counts;
use crate::model::definitions::Definitions;
use crate::model::graphs::Graphs;
use crate::model::history::{Histories, Verdict};
use crate::model::host_copies::HostCopies;
use crate::model::in_flight::Progress;
use crate::model::operation::{Direction, GraphNode, HostCall, Kernel, Operation, What};
use crate::model::sink::Sink;
use crate::model::unidentified::{Unidentified, fits};

/// Where results go while one batch is looked at.
pub(super) struct Out<'a, S> {
    pub definitions: &'a Definitions,
    pub graphs: &'a Graphs,
    pub counts: &'a mut Counts,
    pub unidentified: &'a mut Unidentified,
    pub progress: &'a mut Progress,
    pub host_copies: &'a mut HostCopies,
    pub histories: &'a mut Histories,
    pub sink: &'a mut S,
}

impl<S: Sink> Out<'_, S> {
    pub fn outcome(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Record(record) => self.record(record),
            Outcome::Alone(call) => self.without_record(call),
            Outcome::Double => self.counts.doubled_graph_records += 1,
        }
    }

    /// A record, with its call if that is known.
    fn record(&mut self, mut operation: Operation) {
        operation.call = match operation.call.take() {
            Some(call) if fits(&operation, &call) => Some(call),
            _ => self.unidentified.take(&operation),
        };
        if let Some(call) = &operation.call {
            operation.what = complete(operation.what, &call.detail, self.definitions);
        } else {
            self.counts.device_only += 1;
        }
        if operation.what == What::Graph {
            let number = operation.graph.map_or(0, |known| known.graph);
            operation.graph = Some(self.whole_graph(number, operation.call.as_ref()));
        } else if let Some(node) = &mut operation.graph {
            let launch_ticks = operation.call.as_ref().map_or(u64::MAX, |call| call.start_ticks);
            node.made = self.graphs.find(node.node, launch_ticks, self.definitions);
        }
        self.progress.record(&operation);
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
        self.sink.operation(&operation, self.definitions);
    }

    /// What is known of a launch that was recorded as a whole; `number` is what the record calls the graph.
    fn whole_graph(&self, number: u32, call: Option<&HostCall>) -> GraphNode {
        let named = match call.map(|call| &call.detail) {
            Some(Detail::GraphLaunch { graph }) => self.definitions.graph(*graph),
            _ => None,
        };
        let graph = named.map(|graph| graph.record_id).filter(|named| *named != 0).unwrap_or(number);
        let launch_ticks = call.map_or(u64::MAX, |call| call.start_ticks);
        let (made, nodes) = self.graphs.whole(graph, launch_ticks, self.definitions);
        GraphNode { graph, node: 0, nodes, made }
    }

    /// The ordinal of the device that a call's stream, or else its context, is on.
    fn device_of(&self, call: &HostCall) -> u32 {
        let context = match self.definitions.stream(call.stream) {
            Some(stream) if call.context == 0 => stream.context,
            _ => call.context,
        };
        self.definitions.ordinal_of_context(context).unwrap_or(0)
    }

    /// A call whose record is not waited for, or not any longer, while more may come.
    pub fn without_record(&mut self, call: HostCall) {
        self.progress.without_record(&call);
        self.call_alone(call);
    }

    /// A call that executed something of which no record is known.
    pub fn call_alone(&mut self, call: HostCall) {
        self.host_copies.add(&call, || self.progress.has_passed(&call, self.definitions));
        let what = match &call.detail {
            Detail::Launch(launch) => What::Kernel(Kernel::launched(launch, self.definitions)),
            Detail::Copy(copy) => What::Copy {
                direction: direction_of_call(copy.direction),
                bytes: copy.bytes,
                source_memory: 0,
                target_memory: 0,
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
                .then(|| self.whole_graph(0, Some(&call))),
            timing: None,
            verdict: Verdict::None,
            call: Some(call),
        };
        self.counts.executed += 1;
        self.sink.operation(&operation, self.definitions);
    }
}

/// Fills in what the record left open and the call knows.
fn complete(what: What, detail: &Detail, definitions: &Definitions) -> What {
    match (what, detail) {
        (What::Kernel(kernel), Detail::Launch(launch)) if kernel.name == 0 => What::Kernel(Kernel {
            name: definitions.function(launch.function).map_or(0, |f| f.name_id),
            ..kernel
        }),
        (
            What::Copy { direction: Direction::Unknown, bytes, source_memory, target_memory },
            Detail::Copy(copy),
        ) => What::Copy { direction: direction_of_call(copy.direction), bytes, source_memory, target_memory },
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

/// By CUPTI's numbers for kinds of copies; arrays are device memory.
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
