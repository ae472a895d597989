//! The trait of everything that consumes the model's output: host calls, operations, ranges.

use gputrace_wire::caller::Caller;

use crate::batch::{ProcessBegin, SessionBegin};
use crate::model::definitions::Definitions;
use crate::model::instances::RangeInstance;
use crate::model::operation::{HostCall, Operation};
use crate::model::standing::Standing;

/// Whoever wants the stream of facts: aggregates, spans.
///
/// Every host call comes once by `host_call`, in ring order. Every executed operation comes once
/// by `operation`, when its record has met its call (or cannot any more); a launch whose record
/// never came arrives with `timing: None` and the call set.
///
/// Every process comes first by `process_begins` and last by `process_ends`. Every range comes by
/// `range_ends` once, all of them before their process's end; those that were pushed come by
/// `range_begins` before anything that was done in them.
pub trait Sink {
    /// Whether it wants [`Operation::verdict`].
    const JUDGES: bool = false;

    fn process_begins(&mut self, _number: u32, _process: &ProcessBegin, _session: &SessionBegin) {}
    /// More is defined than before.
    fn defines(&mut self, _number: u32, _definitions: &Definitions) {}
    fn host_call(&mut self, call: &HostCall, definitions: &Definitions);
    fn operation(&mut self, operation: &Operation, definitions: &Definitions);
    /// That number stands for that span of somebody else's from now on, in what is for it.
    fn caller(&mut self, _process: u32, _number: u32, _caller: &Caller, _definitions: &Definitions) {}
    fn range_begins(&mut self, _range: &RangeInstance, _definitions: &Definitions) {}
    fn range_ends(&mut self, _range: &RangeInstance, _definitions: &Definitions) {}
    /// What is known of a process beside its events, up to now: about once a second, and once before its end.
    fn stands(&mut self, _number: u32, _standing: &Standing<'_>, _definitions: &Definitions) {}
    fn process_ends(&mut self, _number: u32, _last_seen_ns: u64, _definitions: &Definitions) {}
    /// Of a process that runs, while it does: a moment of CLOCK_MONOTONIC that has come, every half second or
    /// so. From a file nobody hears of time.
    fn time_passes(&mut self, _number: u32, _now_ns: u64, _definitions: &Definitions) {}
}
