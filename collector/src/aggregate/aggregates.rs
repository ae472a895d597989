//! The sink: divides calls and operations among the aggregates.

use gputrace_wire::call::Detail;

use crate::aggregate::{Calls, Devices, Durations, Kernels, Leaf, StackKey, Stacks, Transfers};
use crate::model::definitions::Definitions;
use crate::model::operation::{HostCall, Operation, Sink, What};

#[derive(Clone, Debug, Default)]
pub struct Aggregates {
    pub kernels: Kernels,
    pub transfers: Transfers,
    /// Graph launches that were recorded as a whole.
    pub graphs: Durations,
    pub devices: Devices,
    pub calls: Calls,
    /// Device time by stack.
    pub device_stacks: Stacks,
    /// Host time of calls by stack.
    pub host_stacks: Stacks,
    /// Executed operations that were nodes of a graph launch.
    pub graph_node_calls: u64,
}

impl Sink for Aggregates {
    #[inline]
    fn host_call(&mut self, call: &HostCall, _: &Definitions) {
        self.calls.add(call);
        let leaf = match &call.detail {
            Detail::Launch(launch) => Leaf::Function(launch.function),
            _ => Leaf::Call,
        };
        self.host_stacks.add(stack_key(call, leaf), call.duration_ns);
    }

    #[inline]
    fn operation(&mut self, operation: &Operation, definitions: &Definitions) {
        let process = operation.process;
        let duration_ns = operation.timing.map(|timing| timing.duration_ns);
        let device = self.devices.add(process, operation.device, operation.timing, definitions);
        self.graph_node_calls += u64::from(operation.graph.is_some());
        let leaf = match operation.what {
            What::Kernel(kernel) => {
                self.kernels.add(process, &kernel, device, duration_ns);
                Leaf::Kernel(kernel.name)
            }
            What::Copy { direction, bytes, .. } => {
                self.transfers.copy(direction, bytes, duration_ns);
                Leaf::Copy(direction)
            }
            What::Fill { bytes } => {
                self.transfers.fill(bytes, duration_ns);
                Leaf::Fill
            }
            What::Graph => {
                if let Some(duration_ns) = duration_ns {
                    self.graphs.add(duration_ns);
                }
                Leaf::Graph
            }
        };
        let Some(duration_ns) = duration_ns else { return };
        let key = match &operation.call {
            Some(call) => stack_key(call, leaf),
            None => StackKey { process, thread: 0, stack: 0, api: 0, leaf },
        };
        self.device_stacks.add(key, duration_ns);
    }
}

fn stack_key(call: &HostCall, leaf: Leaf) -> StackKey {
    StackKey { process: call.process, thread: call.thread, stack: call.stack, api: call.api, leaf }
}
