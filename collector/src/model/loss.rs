//! Reasons why something is missing in the totals.

use crate::batch::{Gap, GapReason};

/// Losses that the collector finds; the process counts others itself
/// ([`gputrace_wire::counter::Counter::name`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Loss {
    /// Entries that did not fit their ring.
    RingFull,
    /// Rings with invalid contents; such a ring is not read further.
    DamagedRing,
    /// Definitions areas with invalid contents.
    DamagedDefinitions,
    /// Definitions that a thread was writing when it was killed.
    UnfinishedDefinitions,
    /// Segments that could not be used.
    RefusedSegment,
    /// Definitions with impossible ids or beyond the limit.
    RefusedDefinitions,
    /// Entries with fewer cells than their length.
    DamagedEntries,
    /// Batches of processes that have not begun or that have ended.
    UnknownProcess,
    /// Processes that are in the sums, and not told of by themselves: more ended than are kept.
    ProcessesNotKept,
    /// Device records that came after their call was evicted.
    LateRecords,
    /// Cells that a collector had read and not yet stored when it was killed.
    LostWithCollector,
    /// Nodes of graphs beyond the limit: their kernels count for the stack of the launch.
    RefusedGraphNodes,
    /// Entries that the trace file could not take. Live, only the file lacks them.
    NotInTrace,
    /// Launches that a process had counted and not written yet when it was killed. They are in the counts;
    /// their kernels are not known.
    UnknownKernels,
}

impl Loss {
    pub const fn name(self) -> &'static str {
        match self {
            Loss::RingFull => "ring_full",
            Loss::DamagedRing => "damaged_rings",
            Loss::DamagedDefinitions => "damaged_definitions",
            Loss::UnfinishedDefinitions => "unfinished_definitions",
            Loss::RefusedSegment => "refused_segments",
            Loss::RefusedDefinitions => "refused_definitions",
            Loss::DamagedEntries => "damaged_entries",
            Loss::UnknownProcess => "unknown_process",
            Loss::ProcessesNotKept => "processes_not_kept",
            Loss::LateRecords => "late_records",
            Loss::LostWithCollector => "lost_with_collector",
            Loss::RefusedGraphNodes => "refused_graph_nodes",
            Loss::NotInTrace => "not_in_trace",
            Loss::UnknownKernels => "launches_of_unknown_kernels",
        }
    }
}

impl Gap {
    /// The loss that the gap means, if any.
    pub fn loss(&self) -> Option<Loss> {
        match self.reason {
            GapReason::DamagedRing => Some(Loss::DamagedRing),
            GapReason::DamagedDefinitions => Some(Loss::DamagedDefinitions),
            GapReason::UnfinishedDefinitions => Some(Loss::UnfinishedDefinitions),
            GapReason::RefusedSegment => Some(Loss::RefusedSegment),
            GapReason::TakenOver => None,
            GapReason::NotStored => Some(Loss::NotInTrace),
        }
    }
}
