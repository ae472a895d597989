//! What the model gives to its sinks: host calls, and operations that a device executed.

use gputrace_wire::call::Detail;
use gputrace_wire::caller::Caller;

use crate::batch::{ProcessBegin, SessionBegin};
use crate::model::definitions::Definitions;
use crate::model::history::Verdict;
use crate::model::instances::RangeInstance;
use crate::model::namesakes::Renumbering;
use crate::model::standing::Standing;

/// A host call with its times on CLOCK_MONOTONIC. Every hooked call comes by exactly once.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct HostCall {
    /// Number of the process within the session.
    pub process: u32,
    /// Thread definition.
    pub thread: u32,
    /// Entry kind, one of [`gputrace_wire::cell::kind`].
    pub kind: u16,
    pub flags: u8,
    /// API definition.
    pub api: u32,
    /// As the process's clock has it: what tells which of two calls came first.
    pub start_ticks: u64,
    pub start_ns: u64,
    pub duration_ns: u64,
    pub correlation: u32,
    pub stack: u32,
    /// The ranges that were open, a node of the process's [`crate::model::Ranges`]; 0 for none.
    pub ranges: u32,
    /// The innermost of them that is of the same caller, this very time that it was open ([`RangeInstance::number`]); 0
    /// for none.
    pub range: u32,
    /// For whom it was made, as [`Sink::caller`] says it; 0 for nobody.
    pub caller: u32,
    pub context: u32,
    pub stream: u32,
    /// The vendor's status code; 0 is success.
    pub status: u16,
    pub detail: Detail,
}

/// Something a device executed (or, in the hooks rung, was asked to execute), after correlation.
#[derive(Clone, PartialEq, Debug)]
pub struct Operation {
    pub process: u32,
    pub what: What,
    /// The call that caused it; `None` counts as `device_only`.
    pub call: Option<HostCall>,
    /// `None`: executed, but no valid device times are known.
    pub timing: Option<Timing>,
    /// Device ordinal.
    pub device: u32,
    /// The record library's numbers; 0 where there was no record.
    pub context: u32,
    pub stream: u32,
    /// Set for nodes of a graph launch, and for launches that were recorded as a whole.
    pub graph: Option<GraphNode>,
    /// What a kernel's time is among those before it, if any sink wants that.
    pub verdict: Verdict,
}

/// Device times on CLOCK_MONOTONIC. The duration is the device clock's own, not a difference of
/// mapped times, so that totals do not depend on the fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    pub start_ns: u64,
    pub duration_ns: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GraphNode {
    pub graph: u32,
    /// 0 of a whole launch.
    pub node: u64,
    /// How many a whole launch has; 0 where nobody told.
    pub nodes: u32,
    /// Where it was captured or built, if that is known.
    pub made: Option<Made>,
}

/// The call that made a node of a graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Made {
    /// Its stack, 0 for none.
    pub stack: u32,
    /// The ranges that were open, as in [`HostCall::ranges`].
    pub ranges: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    Kernel(Kernel),
    Copy {
        direction: Direction,
        bytes: u64,
        source_memory: u8,
        target_memory: u8,
    },
    Fill {
        bytes: u64,
    },
    /// A whole graph launch, where nodes are not recorded.
    Graph,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Kernel {
    /// Name definition of the process (0: unknown).
    pub name: u32,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: [u32; 3],
    /// 0 where neither record nor driver said.
    pub registers: u32,
    pub static_shared_bytes: u32,
    pub dynamic_shared_bytes: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    CpuToGpu,
    GpuToCpu,
    GpuToGpu,
    PeerToPeer,
    CpuToCpu,
    Unknown,
}

impl Direction {
    /// The name in reports and spans.
    pub const fn name(self) -> &'static str {
        match self {
            Direction::CpuToGpu => "cpu_to_gpu",
            Direction::GpuToCpu => "gpu_to_cpu",
            Direction::GpuToGpu => "gpu_to_gpu",
            Direction::PeerToPeer => "peer_to_peer",
            Direction::CpuToCpu => "cpu_to_cpu",
            Direction::Unknown => "unknown",
        }
    }
}

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
    /// Whether processes that ended should be told together, since each by itself has no room.
    fn is_short_of_room(&self) -> bool {
        false
    }
    /// Those processes ended, and are told together with others of their name from now on.
    fn tell_together(&mut self, _together: &mut Renumbering<'_>) {}
    /// Of a process that runs, while it does: a moment of CLOCK_MONOTONIC that has come, every half second or so. From a
    /// file nobody hears of time.
    fn time_passes(&mut self, _number: u32, _now_ns: u64, _definitions: &Definitions) {}
}
