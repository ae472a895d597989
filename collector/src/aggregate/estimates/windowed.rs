//! A sink before another one: gives it a recording as windows would have recorded it.

use std::collections::BTreeMap;

use gputrace_wire::call::Detail;
use gputrace_wire::caller::Caller;
use gputrace_wire::cell::{flag, kind};
use rustc_hash::FxHashSet;

use super::drawn::{DrawnWindows, OutsideWindows, WindowPlan};
use crate::batch::{DeviceSamples, ProcessBegin, SessionBegin};
use crate::model::Counts;
use crate::model::block::BlockEvent;
use crate::model::counted::CountedLaunches;
use crate::model::definitions::Definitions;
use crate::model::instances::RangeInstance;
use crate::model::operation::{HostCall, Operation, Verdict, What};
use crate::model::sink::Sink;

/// Takes the device times of what was called outside of windows. Nodes of a graph that was launched outside
/// become one operation, since without device records only the launch is known.
#[derive(Debug)]
pub struct Windowed<S> {
    windows: DrawnWindows,
    /// Graph launches outside of windows whose nodes came, by process and start.
    launches: FxHashSet<(u32, u64)>,
    /// What was passed on, by process.
    pub counts: BTreeMap<u32, Counts>,
    pub sink: S,
}

impl<S: Sink> Windowed<S> {
    pub fn new(plan: WindowPlan, sink: S) -> Windowed<S> {
        let windows = DrawnWindows::new(plan);
        Windowed { windows, launches: FxHashSet::default(), counts: BTreeMap::new(), sink }
    }

    fn pass_on(&mut self, operation: &Operation, definitions: &Definitions) {
        self.counts.entry(operation.process).or_default().select_operation(operation);
        self.sink.operation(operation, definitions);
    }
}

fn lose_stack(call: &mut HostCall) {
    call.flags |= flag::UNSTACKED;
    call.stack = 0;
}

impl<S: Sink> Sink for Windowed<S> {
    const JUDGES: bool = S::JUDGES;

    fn process_begins(&mut self, number: u32, process: &ProcessBegin, session: &SessionBegin) {
        self.windows.process_begins(number, process.start_monotonic_ns);
        self.sink.process_begins(number, process, session);
    }

    fn defines(&mut self, number: u32, definitions: &Definitions) {
        self.sink.defines(number, definitions);
    }

    fn host_call(&mut self, call: &HostCall, definitions: &Definitions) {
        let mut call = call.clone();
        let outside = self.windows.plan().outside;
        let records_less = outside != OutsideWindows::Whole && call.kind == kind::LAUNCH;
        let is_plain = call.status == 0 && call.flags & flag::CAPTURED == 0;
        if matches!(call.detail, Detail::GraphLaunch { .. }) || records_less && is_plain {
            self.windows.mark(&mut call);
        }
        if records_less && is_plain && call.window == 0 {
            if outside == OutsideWindows::Counted {
                return;
            }
            lose_stack(&mut call);
        }
        self.sink.host_call(&call, definitions);
    }

    fn operation(&mut self, operation: &Operation, definitions: &Definitions) {
        let mut operation = operation.clone();
        self.windows.apply(&mut operation);
        let is_node = operation.graph.is_some() && operation.what != What::Graph;
        if let (true, Some(call)) = (is_node, &operation.call)
            && call.flags & flag::UNTIMED != 0
        {
            if !self.launches.insert((call.process, call.start_ticks)) {
                return;
            }
            operation.what = What::Graph;
            operation.verdict = Verdict::None;
        }
        let outside = self.windows.plan().outside;
        if let Some(call) = operation.call.as_mut().filter(|call| call.window == 0 && !is_node)
            && let (Detail::Launch(launch), What::Kernel(kernel)) = (&call.detail, operation.what)
        {
            match outside {
                OutsideWindows::Whole => {}
                OutsideWindows::Unstacked => lose_stack(call),
                OutsideWindows::Counted => {
                    let counted = CountedLaunches {
                        process: operation.process,
                        function: launch.function,
                        kernel,
                        stream: call.stream,
                        device: operation.device,
                        begin_ns: call.start_ns,
                        end_ns: call.start_ns.saturating_add(call.duration_ns),
                        launches: 1,
                    };
                    self.counts.entry(operation.process).or_default().counted_launches(1);
                    self.sink.counted(&counted, definitions);
                    return;
                }
            }
        }
        self.pass_on(&operation, definitions);
    }

    fn counted(&mut self, launches: &CountedLaunches, definitions: &Definitions) {
        self.counts.entry(launches.process).or_default().counted_launches(launches.launches);
        self.sink.counted(launches, definitions);
    }

    fn stream_ends(&mut self) {
        self.sink.stream_ends();
    }

    fn block(&mut self, event: &BlockEvent, definitions: &Definitions) {
        self.sink.block(event, definitions);
    }

    fn caller(&mut self, process: u32, number: u32, caller: &Caller, definitions: &Definitions) {
        self.sink.caller(process, number, caller, definitions);
    }

    fn range_begins(&mut self, range: &RangeInstance, definitions: &Definitions) {
        self.sink.range_begins(range, definitions);
    }

    fn range_ends(&mut self, range: &RangeInstance, definitions: &Definitions) {
        self.sink.range_ends(range, definitions);
    }

    fn process_ends(&mut self, number: u32, last_seen_ns: u64, definitions: &Definitions) {
        self.sink.process_ends(number, last_seen_ns, definitions);
    }

    fn device_samples(&mut self, samples: &DeviceSamples) {
        self.sink.device_samples(samples);
    }
}
