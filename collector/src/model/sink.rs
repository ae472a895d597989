//! The trait of everything that consumes the model's output: host calls, operations, ranges.

use gputrace_wire::caller::Caller;

use crate::batch::{DeviceSamples, ProcessBegin, SessionBegin};
use crate::model::block::BlockEvent;
use crate::model::counted::CountedLaunches;
use crate::model::definitions::Definitions;
use crate::model::instances::RangeInstance;
use crate::model::operation::{HostCall, Operation};
use crate::model::process_snapshot::ProcessSnapshot;

/// A consumer of the model's output: aggregates, spans, metrics.
///
/// The model calls `host_call` once for every host call, in ring order, and `operation` once for every
/// executed operation, when its record was joined with its call (or cannot be any more). A launch without a
/// record has `timing: None` and its call.
///
/// `process_begins` is a process's first call and `process_ends` its last. `range_ends` is called once for
/// every range, before its process's end; for a pushed range, `range_begins` is called before the calls made
/// in it.
pub trait Sink {
    /// Whether the sink uses [`Operation::verdict`].
    const JUDGES: bool = false;

    fn process_begins(&mut self, _number: u32, _process: &ProcessBegin, _session: &SessionBegin) {}
    /// Definitions were added.
    fn defines(&mut self, _number: u32, _definitions: &Definitions) {}
    fn host_call(&mut self, call: &HostCall, definitions: &Definitions);
    fn operation(&mut self, operation: &Operation, definitions: &Definitions);
    /// Launches that are neither calls nor operations of their own.
    fn counted(&mut self, _launches: &CountedLaunches, _definitions: &Definitions) {}
    /// A caching allocator gave out or took back a block, or such events are recorded from now on, or not.
    fn block(&mut self, _event: &BlockEvent, _definitions: &Definitions) {}
    /// Calls and ranges of this process use `number` for this active span from now on.
    fn caller(&mut self, _process: u32, _number: u32, _caller: &Caller, _definitions: &Definitions) {}
    fn range_begins(&mut self, _range: &RangeInstance, _definitions: &Definitions) {}
    fn range_ends(&mut self, _range: &RangeInstance, _definitions: &Definitions) {}
    /// The process's counters so far: about once a second, and once before its end.
    fn snapshot(&mut self, _number: u32, _snapshot: &ProcessSnapshot<'_>, _definitions: &Definitions) {}
    fn process_ends(&mut self, _number: u32, _last_seen_ns: u64, _definitions: &Definitions) {}
    /// Nothing comes after it.
    fn stream_ends(&mut self) {}
    /// What a device did, about each half second. Samples may come before or after the operations of their
    /// time.
    fn device_samples(&mut self, _samples: &DeviceSamples) {}
    /// The current time on CLOCK_MONOTONIC, about every half second for each running process; not called when
    /// a file is read.
    fn time_passes(&mut self, _number: u32, _now_ns: u64, _definitions: &Definitions) {}
}
