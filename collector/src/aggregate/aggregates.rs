//! The sink: divides calls and operations among the aggregates.

use gputrace_wire::call::Detail;
use gputrace_wire::cell::{flag, kind};

use crate::aggregate::{
    Anomalies, CallClass, Calls, Devices, Estimates, Failures, GraphKey, Graphs, Kernels, LaunchStacks,
    LaunchTimes, Leaf, NO_DEVICE, Owner, PeerCopies, SampledDevices, StackKey, Stacks, StepWatch, Streams,
    Transfers,
};
use crate::batch::{DeviceSamples, ProcessBegin, SessionBegin};
use crate::memory::MemoryLedger;
use crate::model::block::BlockEvent;
use crate::model::counted::CountedLaunches;
use crate::model::definitions::Definitions;
use crate::model::operation::{HostCall, Made, Operation, What};
use crate::model::sink::Sink;

#[derive(Clone, Debug, Default)]
pub struct Aggregates {
    pub kernels: Kernels,
    pub anomalies: Anomalies,
    pub transfers: Transfers,
    pub peers: PeerCopies,
    /// Graph launches that were recorded as a whole.
    pub graphs: Graphs,
    pub devices: Devices,
    pub sampled_devices: SampledDevices,
    pub calls: Calls,
    pub failures: Failures,
    pub memory: MemoryLedger,
    pub streams: Streams,
    /// Executed operations and their device time by stack.
    pub device_stacks: Stacks,
    /// Host time of calls by stack.
    pub host_stacks: Stacks,
    /// Launches outside of graphs, by stack.
    pub launch_stacks: LaunchStacks,
    /// The slowest steps of threads.
    pub steps: StepWatch,
    /// Executed operations that were nodes of a graph launch.
    pub graph_node_calls: u64,
    /// What operations without device times may have taken; only where a part of the time had them.
    pub estimates: Option<Box<Estimates>>,
}

impl Sink for Aggregates {
    const JUDGES: bool = true;

    fn process_begins(&mut self, number: u32, process: &ProcessBegin, session: &SessionBegin) {
        self.memory.process_begins(number, process.start_monotonic_ns, session.monotonic_ns);
    }

    #[inline]
    fn host_call(&mut self, call: &HostCall, definitions: &Definitions) {
        self.calls.add(call);
        self.failures.add(call, definitions);
        self.memory.add(call, definitions);
        let begins = (call.kind == kind::LAUNCH || call.kind == kind::GRAPH_LAUNCH).then_some(call.start_ns);
        let key = StackKey::of_call(call, definitions);
        self.host_stacks.add_at(key, Some(call.duration_ns), begins);
        self.steps.call(call, CallClass::of(call), &key, &self.host_stacks);
        if call.window != 0 && self.estimates.is_none() {
            self.estimates = Some(Box::new(Estimates::new(&self.device_stacks)));
        }
        if let Some(estimates) = &mut self.estimates
            && call.kind == kind::GRAPH_LAUNCH
            && call.status == 0
            && call.flags & (flag::CAPTURED | flag::UNTIMED) == 0
        {
            estimates.graph_launch(call, definitions);
        }
    }

    #[inline]
    fn operation(&mut self, operation: &Operation, definitions: &Definitions) {
        let process = operation.process;
        let duration_ns = operation.timing.map(|timing| timing.duration_ns);
        let device = self.devices.add(operation, definitions);
        self.streams.add(operation, definitions);
        self.anomalies.passes(operation, device);
        let is_node = operation.graph.is_some() && operation.what != What::Graph;
        self.graph_node_calls += u64::from(is_node);
        let leaf = match operation.what {
            What::Kernel(kernel) => {
                let launch = LaunchTimes::of(operation);
                self.kernels.add(process, &kernel, device, duration_ns, launch);
                if let Some((times, call)) = launch.zip(operation.call.as_ref()) {
                    self.launch_stacks.add(process, call.stack, times);
                }
                self.anomalies.add(operation, device);
                Leaf::Kernel(kernel.name)
            }
            What::Copy { direction, bytes, source_memory, target_memory, devices } => {
                if let Some(devices) = devices {
                    self.peers.add(process, direction, devices, bytes, duration_ns, definitions);
                }
                self.transfers.copy(direction, bytes, [source_memory, target_memory], duration_ns);
                Leaf::of_copy(direction, [source_memory, target_memory])
            }
            What::Fill { bytes } => {
                self.transfers.fill(bytes, duration_ns);
                Leaf::Fill
            }
            What::Graph => {
                let (graph, nodes) = operation.graph.map_or((0, 0), |known| (known.graph, known.nodes));
                self.graphs.add(GraphKey { process, graph }, nodes, duration_ns);
                Leaf::Graph(graph)
            }
        };
        let key = key_of(operation, leaf);
        if self.estimates.is_none()
            && operation.call.as_ref().is_some_and(|call| call.flags & flag::UNTIMED != 0 || call.window != 0)
        {
            self.estimates = Some(Box::new(Estimates::new(&self.device_stacks)));
        }
        if let Some(estimates) = &mut self.estimates {
            estimates.operation(operation, key, definitions);
        }
        let is_unstacked = duration_ns.is_none()
            && operation.call.as_ref().is_some_and(|call| call.flags & flag::UNSTACKED != 0);
        let row = if is_unstacked { StackKey { owner: Owner::Unstacked, ..key } } else { key };
        self.device_stacks.add(row, duration_ns);
        self.steps.operation(operation);
    }

    fn counted(&mut self, counted: &CountedLaunches, definitions: &Definitions) {
        let CountedLaunches { process, function, kernel, stream, device, launches, .. } = *counted;
        self.kernels.add_counted(process, kernel.name, launches);
        self.streams.add_counted(counted, definitions);
        self.devices.add_counted(counted, definitions);
        let leaf = Leaf::Kernel(kernel.name);
        let key = StackKey { stream, ..StackKey::without_call(process, device, leaf) };
        let estimates = self.estimates.get_or_insert_with(|| Box::new(Estimates::new(&self.device_stacks)));
        estimates.counted(launches, function, key);
        self.device_stacks.add_untimed(StackKey { owner: Owner::Unstacked, ..key }, launches);
    }

    /// Puts launches without a stack where they probably were made.
    fn stream_ends(&mut self) {
        let mut left = self.device_stacks.take_unstacked();
        let placed = self.estimates.as_ref().filter(|_| left > 0).map(|estimates| estimates.placed());
        for row in placed.into_iter().flatten() {
            let calls = row.calls.min(left);
            self.device_stacks.add_untimed(row.key, calls);
            left -= calls;
        }
        let other = |process| StackKey::without_call(process, NO_DEVICE, Leaf::Other);
        self.device_stacks.add_untimed(other(0), left);
    }

    #[inline]
    fn block(&mut self, event: &BlockEvent, _: &Definitions) {
        self.memory.block(event);
    }

    fn device_samples(&mut self, samples: &DeviceSamples) {
        self.sampled_devices.add(samples);
        self.anomalies.explain(&self.devices, &self.sampled_devices);
    }

    fn process_ends(&mut self, process: u32, last_seen_ns: u64, _: &Definitions) {
        self.failures.process_ends(process);
        self.memory.process_ends(process, last_seen_ns);
        self.devices.process_ends(process);
        self.peers.process_ends(process);
    }
}

impl StackKey {
    /// The row that a call's host time is counted in, if there are not too many rows.
    #[inline]
    pub fn of_call(call: &HostCall, definitions: &Definitions) -> StackKey {
        let leaf = match &call.detail {
            Detail::Launch(launch) => Leaf::Function(launch.function),
            _ => Leaf::Call,
        };
        stack_key(call, device_of(call, definitions), leaf)
    }

    /// The row that an operation is counted in, if there are not too many rows.
    pub fn of_operation(operation: &Operation) -> StackKey {
        let leaf = match operation.what {
            What::Kernel(kernel) => Leaf::Kernel(kernel.name),
            What::Copy { direction, source_memory, target_memory, .. } => {
                Leaf::of_copy(direction, [source_memory, target_memory])
            }
            What::Fill { .. } => Leaf::Fill,
            What::Graph => Leaf::Graph(operation.graph.map_or(0, |known| known.graph)),
        };
        key_of(operation, leaf)
    }
}

#[inline]
fn key_of(operation: &Operation, leaf: Leaf) -> StackKey {
    let device = operation.device;
    match &operation.call {
        Some(call) => match operation.graph {
            Some(node) => node_key(call, device, node.made, leaf),
            _ => stack_key(call, device, leaf),
        },
        None => StackKey::without_call(operation.process, device, leaf),
    }
}

/// The device of the call's stream or context.
fn device_of(call: &HostCall, definitions: &Definitions) -> u32 {
    let stream = definitions.stream(call.stream);
    stream.and_then(|stream| definitions.ordinal_of_context(stream.context)).unwrap_or(NO_DEVICE)
}

fn stack_key(call: &HostCall, device: u32, leaf: Leaf) -> StackKey {
    StackKey {
        process: call.process,
        thread: call.thread,
        stack: call.stack,
        ranges: call.ranges,
        owner: Owner::Call,
        api: call.api,
        stream: call.stream,
        device,
        leaf,
    }
}

/// A node of a graph is charged to the call that captured or built it, or to the launch if that call is not
/// known, or has no stack while the launch has one.
fn node_key(launch: &HostCall, device: u32, made: Option<Made>, leaf: Leaf) -> StackKey {
    let key = stack_key(launch, device, leaf);
    let owner = Owner::Capture { replay_stack: launch.stack, replay_ranges: launch.ranges };
    match made {
        Some(Made { stack, ranges }) if stack != 0 || ranges != 0 && launch.stack == 0 => {
            StackKey { stack, ranges: if ranges != 0 { ranges } else { launch.ranges }, owner, ..key }
        }
        _ if launch.stack != 0 => StackKey { owner: Owner::Replay, ..key },
        _ => key,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use gputrace_wire::call::Launch;

    use super::*;
    use crate::aggregate::Cause;
    use crate::model::before::Before;
    use crate::model::operation::{Direction, GraphNode, Kernel, Timing, Verdict};

    fn operation() -> impl Strategy<Value = Operation> {
        let what = prop_oneof![
            (0u32..4, 1u32..3).prop_map(|(name, threads)| {
                What::Kernel(Kernel { name, block: [threads * 32, 1, 1], ..Kernel::default() })
            }),
            (0u64..5_000).prop_map(|bytes| What::Copy {
                direction: Direction::CpuToGpu,
                bytes,
                source_memory: 0,
                target_memory: 0,
                devices: None
            }),
            (0u64..500).prop_map(|bytes| What::Fill { bytes }),
            Just(What::Graph),
        ];
        let timing = prop::option::of((0u64..100_000, 0u64..3_000));
        (what, timing, 0u32..3, 0u32..2, any::<bool>(), prop::option::of(1u32..4)).prop_map(
            |(what, timing, process, device, node, thread)| Operation {
                process,
                what,
                call: thread.map(|thread| {
                    let before = Before { from: thread, to: device, ..Before::default() };
                    let start_ns = timing.map_or(0, |(start_ns, ns)| start_ns.saturating_sub(ns));
                    HostCall { start_ns, before, ..call(process, thread) }
                }),
                timing: timing.map(|(start_ns, duration_ns)| Timing { start_ns, duration_ns }),
                device,
                context: 0,
                stream: 0,
                graph: node.then_some(GraphNode { graph: 1, node: 2, nodes: 3, made: None }),
                verdict: Verdict::None,
            },
        )
    }

    fn call(process: u32, thread: u32) -> HostCall {
        HostCall {
            process,
            thread,
            kind: kind::LAUNCH,
            api: 9,
            duration_ns: 77,
            detail: Detail::Launch(Launch::default()),
            ..HostCall::default()
        }
    }

    fn of(operations: &[Operation]) -> Aggregates {
        let definitions = Definitions::default();
        let mut aggregates = Aggregates::default();
        for operation in operations {
            operation.call.iter().for_each(|call| aggregates.host_call(call, &definitions));
            aggregates.operation(operation, &definitions);
        }
        aggregates
    }

    #[test]
    fn graph_node_is_charged_to_its_capture_and_else_to_the_launch() {
        let launch = HostCall { stack: 5, ranges: 6, ..call(1, 2) };
        let without = call(1, 2);
        let made = |stack, ranges| Some(Made { stack, ranges });
        let of = |launch, made| {
            let key = node_key(launch, 0, made, Leaf::Fill);
            (key.stack, key.ranges, key.owner)
        };
        let captured = Owner::Capture { replay_stack: 5, replay_ranges: 6 };
        assert_eq!(of(&launch, made(7, 8)), (7, 8, captured));
        // The ranges of the launch are better than none.
        assert_eq!(of(&launch, made(7, 0)), (7, 6, captured));
        assert_eq!(of(&launch, None), (5, 6, Owner::Replay));
        assert_eq!(of(&launch, made(0, 8)), (5, 6, Owner::Replay));
        // A program without frames has its ranges, and nothing is marked.
        let captured = Owner::Capture { replay_stack: 0, replay_ranges: 0 };
        assert_eq!(of(&without, made(0, 8)), (0, 8, captured));
        assert_eq!(of(&without, None), (0, 0, Owner::Call));
        let key = node_key(&launch, 0, made(7, 8), Leaf::Fill).by_replay();
        assert_eq!((key.stack, key.ranges, key.owner), (5, 6, Owner::Call));
    }

    /// Everything in the aggregates as text, sorted.
    fn facts(aggregates: &Aggregates) -> Vec<String> {
        let mut facts: Vec<String> = Vec::new();
        for (key, kernel) in aggregates.kernels.iter() {
            let mut configs: Vec<_> =
                kernel.configs.iter().map(|(config, calls)| (config.kernel.block, *calls)).collect();
            configs.sort_unstable();
            // A configuration's device is an index into the list, which is by first use.
            let blocks = configs.chunk_by(|a, b| a.0 == b.0);
            let merged: Vec<_> =
                blocks.map(|same| (same[0].0, same.iter().map(|c| c.1).sum::<u64>())).collect();
            facts.push(format!("{key:?} {} {:?} {merged:?}", kernel.calls, kernel.durations));
        }
        for device in aggregates.devices.iter() {
            let (operations, timed, busy) = (device.operations, device.timed, device.busy.busy_ns());
            let (ordinal, span) = (device.device.ordinal, device.busy.span_ns());
            facts.push(format!("{ordinal} {operations} {timed} {busy} {span:?}"));
            let (_, idle) = device.busy.clone().into_sums();
            facts.push(format!("{:?}", Cause::ALL.map(|cause| idle.of(cause))));
            facts.push(format!("{:?}", idle.lines()));
        }
        facts.extend(aggregates.calls.iter().map(|entry| format!("{entry:?}")));
        facts.push(format!("{:?} {:?}", aggregates.transfers, aggregates.graphs.sorted()));
        facts.push(format!("{:?}", aggregates.device_stacks.sorted()));
        facts.push(format!("{:?}", aggregates.host_stacks.sorted()));
        facts.push(format!("{:?}", aggregates.launch_stacks.sorted()));
        facts.push(aggregates.graph_node_calls.to_string());
        facts.sort_unstable();
        facts
    }

    proptest! {
        #[test]
        fn aggregates_do_not_depend_on_the_order_of_records(
            (given, shuffled) in prop::collection::vec(operation(), 1..80)
                .prop_flat_map(|operations| (Just(operations.clone()), Just(operations).prop_shuffle())),
        ) {
            prop_assert_eq!(facts(&of(&given)), facts(&of(&shuffled)));
        }

        #[test]
        fn operations_are_counted_once_each(operations in prop::collection::vec(operation(), 0..80)) {
            let aggregates = of(&operations);
            let kernels: u64 = aggregates.kernels.iter().map(|(_, kernel)| kernel.calls).sum();
            let copies: u64 = aggregates.transfers.copies.values().map(|moved| moved.calls).sum();
            let whole = operations.iter().filter(|o| o.what == What::Graph).count() as u64;
            prop_assert_eq!(kernels + copies + aggregates.transfers.fills.calls + whole, operations.len() as u64);
            let timed = operations.iter().filter_map(|operation| operation.timing);
            prop_assert_eq!(aggregates.device_stacks.total_ns(), timed.map(|t| t.duration_ns).sum::<u64>());
        }
    }
}
