//! Counters: what was lost and what tracing cost, stored where they survive the process.
//!
//! Process-wide counters are an array of words in the primary segment; any thread adds to them. The
//! frequent ones (events, drops for a full ring, sampled cost) are in each ring's header instead, where
//! only the owning thread writes.

/// Process-wide counters by index. New ones go at the end; the names are those that users see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Counter {
    /// Events of threads that got no ring (too many threads at once, or no memory for one).
    NoRing = 0,
    /// Hooks that ran inside another hook of the same thread and passed through.
    Nested = 1,
    /// Definitions that did not fit the definitions area or an intern table.
    DefinitionsFull = 2,
    /// Driver functions asked for in an ABI newer than the table knows; passed through unhooked.
    UnknownAbi = 3,
    /// Device records that the vendor library reports as dropped.
    RecordsDropped = 4,
    /// Device records of a kind that was not requested.
    RecordsUnknown = 5,
    /// Device records lost because their ring stayed full for the bounded wait.
    RecordsRingFull = 6,
    /// Buffers that the vendor library filled after their pool was used up; their records are lost.
    BuffersExhausted = 7,
    /// Calls whose handle had no definition.
    UnknownHandle = 8,
    /// Faults inside the tracer that turned a part of it off.
    Faults = 9,
    /// Device records delivered, for the comparison at the end.
    RecordsDelivered = 10,
    /// Ticks spent converting device records, off the program's threads.
    RecordTicks = 11,
    /// The longest time from the end of an operation to the delivery of its record, in nanoseconds: the
    /// device time that a killed process can lose. The largest value seen, not a sum.
    RecordLagMaxNs = 12,
    /// Events that waited for space in their ring (`--on-full wait`), with or without success.
    Waits = 13,
    /// The total time of these waits, in nanoseconds.
    WaitedNs = 14,
    /// Calls without their stack because the stack tables were full.
    StacksFull = 15,
    /// Calls without their Python stack because its frames were inconsistent.
    StacksUnread = 16,
    /// Ranges whose name did not fit the table of names.
    RangesUnnamed = 17,
    /// Ranges pushed while more ranges were open on their thread than are recorded.
    RangesTooDeep = 18,
    /// Calls without their span because the objects that lead to it were inconsistent.
    CallersUnread = 19,
    /// Calls that came while another thread of the process was starting the session.
    BeforeSession = 20,
    /// Calls that succeeded while the session was paused, by what they did. They are in no other count.
    PausedLaunches = 21,
    PausedGraphLaunches = 22,
    PausedCopies = 23,
    PausedFills = 24,
    PausedWaits = 25,
    /// Capture ranges that the process was to record, that began, and that ended.
    CaptureRangesWanted = 26,
    CaptureRangesBegun = 27,
    CaptureRangesEnded = 28,
    /// Windows of device times that opened, and those of them that something new triggered.
    Windows = 29,
    WindowsTriggered = 30,
    /// How long CUPTI took to switch on and off for them, in all.
    SwitchOnNs = 31,
    SwitchOffNs = 32,
    /// The time over which a budget was kept, or not, and what tracing was allowed to cost in it.
    BudgetWallNs = 33,
    BudgetAllowedNs = 34,
    /// What tracing cost in it, as measured: hooks and CUPTI's callbacks, CUPTI's records, switches.
    BudgetHooksNs = 35,
    BudgetRecordsNs = 36,
    BudgetSwitchesNs = 37,
    /// The time in which windows had the least part of the time that they can have.
    BudgetLeastNs = 38,
    /// Intervals in which the cost was measured, the sum of their costs in millionths of their length, and
    /// the sum of these numbers' squares: what the error of the whole cost is made of.
    BudgetIntervals = 39,
    BudgetCostPpm = 40,
    BudgetCostPpmSquares = 41,
    /// The time in which all kernels had device times; in which launches outside of windows had no stack; and
    /// in which they were only counted.
    BudgetFullNs = 42,
    BudgetUnstackedNs = 43,
    BudgetCountedNs = 44,
}

impl Counter {
    /// Those of calls that a paused session only counts.
    pub const PAUSED: [Counter; 5] = [
        Counter::PausedLaunches,
        Counter::PausedGraphLaunches,
        Counter::PausedCopies,
        Counter::PausedFills,
        Counter::PausedWaits,
    ];

    pub const COUNT: usize = 45;

    pub const ALL: [Counter; Self::COUNT] = [
        Counter::NoRing,
        Counter::Nested,
        Counter::DefinitionsFull,
        Counter::UnknownAbi,
        Counter::RecordsDropped,
        Counter::RecordsUnknown,
        Counter::RecordsRingFull,
        Counter::BuffersExhausted,
        Counter::UnknownHandle,
        Counter::Faults,
        Counter::RecordsDelivered,
        Counter::RecordTicks,
        Counter::RecordLagMaxNs,
        Counter::Waits,
        Counter::WaitedNs,
        Counter::StacksFull,
        Counter::StacksUnread,
        Counter::RangesUnnamed,
        Counter::RangesTooDeep,
        Counter::CallersUnread,
        Counter::BeforeSession,
        Counter::PausedLaunches,
        Counter::PausedGraphLaunches,
        Counter::PausedCopies,
        Counter::PausedFills,
        Counter::PausedWaits,
        Counter::CaptureRangesWanted,
        Counter::CaptureRangesBegun,
        Counter::CaptureRangesEnded,
        Counter::Windows,
        Counter::WindowsTriggered,
        Counter::SwitchOnNs,
        Counter::SwitchOffNs,
        Counter::BudgetWallNs,
        Counter::BudgetAllowedNs,
        Counter::BudgetHooksNs,
        Counter::BudgetRecordsNs,
        Counter::BudgetSwitchesNs,
        Counter::BudgetLeastNs,
        Counter::BudgetIntervals,
        Counter::BudgetCostPpm,
        Counter::BudgetCostPpmSquares,
        Counter::BudgetFullNs,
        Counter::BudgetUnstackedNs,
        Counter::BudgetCountedNs,
    ];

    /// The reason as reports print it.
    pub const fn name(self) -> &'static str {
        match self {
            Counter::NoRing => "no_ring",
            Counter::Nested => "nested_calls",
            Counter::DefinitionsFull => "definitions_full",
            Counter::UnknownAbi => "unknown_abi",
            Counter::RecordsDropped => "cupti_dropped",
            Counter::RecordsUnknown => "records_unknown",
            Counter::RecordsRingFull => "records_ring_full",
            Counter::BuffersExhausted => "buffers_exhausted",
            Counter::UnknownHandle => "unknown_handle",
            Counter::Faults => "tracer_faults",
            Counter::RecordsDelivered => "records_delivered",
            Counter::RecordTicks => "record_ticks",
            Counter::RecordLagMaxNs => "record_lag_max_ns",
            Counter::Waits => "waits_for_room",
            Counter::WaitedNs => "waited_ns",
            Counter::StacksFull => "stacks_full",
            Counter::StacksUnread => "stacks_unread",
            Counter::RangesUnnamed => "ranges_unnamed",
            Counter::RangesTooDeep => "ranges_too_deep",
            Counter::CallersUnread => "callers_unread",
            Counter::BeforeSession => "before_session",
            Counter::PausedLaunches => "paused_launches",
            Counter::PausedGraphLaunches => "paused_graph_launches",
            Counter::PausedCopies => "paused_copies",
            Counter::PausedFills => "paused_memsets",
            Counter::PausedWaits => "paused_waits",
            Counter::CaptureRangesWanted => "capture_ranges_wanted",
            Counter::CaptureRangesBegun => "capture_ranges_begun",
            Counter::CaptureRangesEnded => "capture_ranges_ended",
            Counter::Windows => "windows",
            Counter::WindowsTriggered => "windows_triggered",
            Counter::SwitchOnNs => "switch_on_ns",
            Counter::SwitchOffNs => "switch_off_ns",
            Counter::BudgetWallNs => "budget_wall_ns",
            Counter::BudgetAllowedNs => "budget_allowed_ns",
            Counter::BudgetHooksNs => "budget_hooks_ns",
            Counter::BudgetRecordsNs => "budget_records_ns",
            Counter::BudgetSwitchesNs => "budget_switches_ns",
            Counter::BudgetLeastNs => "budget_least_ns",
            Counter::BudgetIntervals => "budget_intervals",
            Counter::BudgetCostPpm => "budget_cost_ppm",
            Counter::BudgetCostPpmSquares => "budget_cost_ppm_squares",
            Counter::BudgetFullNs => "budget_full_ns",
            Counter::BudgetUnstackedNs => "budget_unstacked_ns",
            Counter::BudgetCountedNs => "budget_counted_ns",
        }
    }

    /// Whether a non-zero value means that something is missing from the trace.
    pub const fn is_loss(self) -> bool {
        !matches!(
            self,
            Counter::RecordsDelivered
                | Counter::RecordTicks
                | Counter::RecordLagMaxNs
                | Counter::Waits
                | Counter::WaitedNs
                | Counter::UnknownAbi
                | Counter::UnknownHandle
                | Counter::PausedLaunches
                | Counter::PausedGraphLaunches
                | Counter::PausedCopies
                | Counter::PausedFills
                | Counter::PausedWaits
                | Counter::CaptureRangesWanted
                | Counter::CaptureRangesBegun
                | Counter::CaptureRangesEnded
                | Counter::Windows
                | Counter::WindowsTriggered
                | Counter::SwitchOnNs
                | Counter::SwitchOffNs
                | Counter::BudgetWallNs
                | Counter::BudgetAllowedNs
                | Counter::BudgetHooksNs
                | Counter::BudgetRecordsNs
                | Counter::BudgetSwitchesNs
                | Counter::BudgetLeastNs
                | Counter::BudgetIntervals
                | Counter::BudgetCostPpm
                | Counter::BudgetCostPpmSquares
                | Counter::BudgetFullNs
                | Counter::BudgetUnstackedNs
                | Counter::BudgetCountedNs
        )
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn indices_are_dense_and_names_distinct() {
        for (index, counter) in Counter::ALL.into_iter().enumerate() {
            assert_eq!(counter as usize, index);
        }
        let mut names: Vec<_> = Counter::ALL.iter().map(|c| c.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Counter::COUNT);
    }
}
