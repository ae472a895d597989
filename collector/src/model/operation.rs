//! What the model emits to its sinks: host calls, and operations that a device executed.

use gputrace_wire::call::{Detail, Launch};
use gputrace_wire::cell::flag;

use crate::model::before::Before;
use crate::model::definitions::Definitions;

/// A host call with its times on CLOCK_MONOTONIC. Every hooked call is emitted exactly once.
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
    /// In ticks of the process's clock, which orders calls exactly.
    pub start_ticks: u64,
    pub start_ns: u64,
    pub duration_ns: u64,
    pub correlation: u32,
    pub stack: u32,
    /// The ranges that were open, a node of the process's [`crate::model::Ranges`]; 0 for none.
    pub ranges: u32,
    /// The innermost open range instance with the same active span
    /// ([`crate::model::instances::RangeInstance::number`]); 0 for none.
    pub range: u32,
    /// The thread's active span, by the number that [`crate::model::sink::Sink::caller`] gave it; 0 for none.
    pub caller: u32,
    pub stream: u32,
    /// The vendor's status code; 0 is success.
    pub status: u16,
    /// The window of device times that it was made in, as in [`gputrace_wire::call::Call::window`].
    pub window: u32,
    pub detail: Detail,
    /// What the thread did before, for calls that execute something.
    pub before: Before,
}

impl HostCall {
    /// Whether the session was paused: the call is known only so that its device records are left out.
    pub fn is_paused(&self) -> bool {
        self.flags & flag::PAUSED != 0
    }
}

/// Something that a device executed (or, without device records, was asked to execute), after the join.
#[derive(Clone, PartialEq, Debug)]
pub struct Operation {
    pub process: u32,
    pub what: What,
    /// The call that caused it; `None` counts as `device_only`.
    pub call: Option<HostCall>,
    /// `None` if no valid device times are known.
    pub timing: Option<Timing>,
    /// Device ordinal.
    pub device: u32,
    /// CUPTI's numbers; 0 if there was no record.
    pub context: u32,
    pub stream: u32,
    /// Set for nodes of a graph launch, and for graph launches that were recorded as a whole.
    pub graph: Option<GraphNode>,
    /// Whether a kernel's duration is an outlier, if any sink wants that.
    pub verdict: Verdict,
}

/// How a kernel's duration compares with its earlier ones.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Verdict {
    /// Not a kernel, or no sink wants it.
    #[default]
    None,
    Usual,
    /// There are too many kernels to keep a history of this one.
    Unjudged,
    Outlier(Anomaly),
}

/// An outlier: a duration far above the kernel's median.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Anomaly {
    /// The distance from the median in robust standard deviations.
    pub sigmas: f64,
    pub median_ns: f64,
}

impl Anomaly {
    /// By how much a run of that duration exceeds the median.
    pub fn over_ns(&self, duration_ns: u64) -> u64 {
        (duration_ns as f64 - self.median_ns).max(0.0) as u64
    }
}

impl Verdict {
    pub fn anomaly(self) -> Option<Anomaly> {
        match self {
            Verdict::Outlier(anomaly) => Some(anomaly),
            _ => None,
        }
    }
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
    /// 0 for a launch recorded as a whole.
    pub node: u64,
    /// The number of nodes of a launch recorded as a whole; 0 if unknown.
    pub nodes: u32,
    /// The call that captured or built it, if known.
    pub made: Option<Made>,
}

/// The call that made a node of a graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Made {
    /// The call's stack, 0 for none.
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
        /// Of a copy between devices, from which and to which, as the process numbers them.
        devices: Option<[u16; 2]>,
    },
    Fill {
        bytes: u64,
    },
    /// A graph launch recorded as a whole, without its nodes.
    Graph,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Kernel {
    /// Name definition of the process (0: unknown).
    pub name: u32,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: [u32; 3],
    /// 0 if neither the record nor the driver gave it.
    pub registers: u32,
    pub static_shared_bytes: u32,
    pub dynamic_shared_bytes: u32,
}

impl Kernel {
    /// The kernel that a call launched, in the form of a record.
    pub(super) fn launched(launch: &Launch, definitions: &Definitions) -> Kernel {
        let function = definitions.function(launch.function);
        Kernel {
            name: function.map_or(0, |f| f.name_id),
            grid: launch.grid,
            block: launch.block.map(u32::from),
            cluster: launch.cluster.map(u32::from),
            registers: function.map_or(0, |f| f.registers),
            static_shared_bytes: function.map_or(0, |f| f.static_shared_bytes),
            dynamic_shared_bytes: launch.dynamic_shared_bytes,
        }
    }
}

/// Memory of the host that the device cannot read by itself: the driver copies it to pinned memory first.
pub const PAGEABLE: &str = "pageable";
pub const UNKNOWN_MEMORY: &str = "unknown";

/// The name of one of CUPTI's kinds of memory (`CUpti_ActivityMemoryKind`).
pub const fn memory_name(kind: u8) -> &'static str {
    match kind {
        1 => PAGEABLE,
        2 => "pinned",
        3 | 6 => "device",
        4 => "array",
        5 | 7 => "managed",
        _ => UNKNOWN_MEMORY,
    }
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
