//! Counts of one process or of all processes.

use gputrace_wire::cell::{flag, kind};

use crate::model::operation::{Direction, HostCall, Operation, What};

/// Kinds of entries with a count of their own; other kinds are in [`Counts::unknown_kinds`].
const KINDS: usize = 96;

/// Counts of one process or of all. The names mean the same in all outputs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Kernel launches that the driver accepted for execution.
    pub launches: u64,
    /// Launches, of kernels or graphs, on a stream that was being captured: they execute nothing.
    pub captured_launches: u64,
    pub graph_launches: u64,
    /// Copy and fill calls that the driver accepted for execution.
    pub copies: u64,
    pub fills: u64,
    /// Launches, copies and fills that returned an error.
    pub failed: u64,
    /// Copies and fills on a stream that was being captured.
    pub captured_others: u64,
    /// Device records whose host call is not known.
    pub device_only: u64,
    /// Operations with a device record, and accepted calls without one.
    pub executed: u64,
    /// Executed operations with valid device times.
    pub timed: u64,
    /// The sum of those times.
    pub device_ns: u64,
    /// Executed copies without a device (from host to host, or of 0 bytes), which have no device times. For
    /// the rules see [`crate::model::host_copies`].
    pub host_to_host: u64,
    /// Executed operations without device times because these were switched off.
    pub switched_off: u64,
    /// Launches that were only counted, which are in `launches` too.
    pub counted: u64,
    /// Launches that were recorded without a stack, to keep a budget.
    pub unstacked: u64,
    /// Device records without valid times.
    pub invalid_timing: u64,
    /// Records that were dropped because their graph launch was recorded both as a whole and by node: the
    /// form that came first counts. A whole-launch record after some nodes is kept, reduced by the time of
    /// these nodes.
    pub doubled_graph_records: u64,
    /// Records of calls that were made while the session was paused; they are in no other count.
    pub paused_records: u64,
    /// Calls that were emitted without device times because too many calls waited for records.
    pub evicted_calls: u64,
    /// Records that were emitted without their call because too many records waited for calls.
    pub evicted_records: u64,
    /// Entries of kinds that this version does not know.
    pub unknown_kinds: u64,
    by_kind: [u64; KINDS],
}

impl Default for Counts {
    fn default() -> Self {
        Counts {
            launches: 0,
            captured_launches: 0,
            graph_launches: 0,
            copies: 0,
            fills: 0,
            failed: 0,
            captured_others: 0,
            device_only: 0,
            executed: 0,
            timed: 0,
            device_ns: 0,
            host_to_host: 0,
            switched_off: 0,
            counted: 0,
            unstacked: 0,
            invalid_timing: 0,
            doubled_graph_records: 0,
            paused_records: 0,
            evicted_calls: 0,
            evicted_records: 0,
            unknown_kinds: 0,
            by_kind: [0; KINDS],
        }
    }
}

impl Counts {
    pub(super) fn entry(&mut self, kind: u16) {
        if let Some(count) = self.by_kind.get_mut(usize::from(kind)) {
            *count += 1;
        }
    }

    /// Counts launches of kernels that are in no entry of their own.
    pub fn counted_launches(&mut self, launches: u64) {
        self.launches += launches;
        self.executed += launches;
        self.switched_off += launches;
        self.counted += launches;
    }

    /// Counts a launch, copy or fill that the driver accepted.
    #[inline]
    pub(super) fn accepted(&mut self, kind: u16, captured: bool) {
        let count = match (kind, captured) {
            (kind::LAUNCH, false) => &mut self.launches,
            (kind::GRAPH_LAUNCH, false) => &mut self.graph_launches,
            (kind::COPY, false) => &mut self.copies,
            (kind::FILL, false) => &mut self.fills,
            (kind::LAUNCH | kind::GRAPH_LAUNCH, true) => &mut self.captured_launches,
            _ => &mut self.captured_others,
        };
        *count += 1;
    }

    /// Counts a call that a selection takes.
    pub fn select_call(&mut self, call: &HostCall) {
        self.entry(call.kind);
        match call.kind {
            kind::LAUNCH | kind::GRAPH_LAUNCH | kind::COPY | kind::FILL if call.status != 0 => {
                self.failed += 1
            }
            kind::LAUNCH | kind::GRAPH_LAUNCH | kind::COPY | kind::FILL => {
                self.accepted(call.kind, call.flags & flag::CAPTURED != 0);
            }
            _ => {}
        }
    }

    /// Counts an operation that a selection takes. Of copies from host to host those are known whose record
    /// or call says so.
    pub fn select_operation(&mut self, operation: &Operation) {
        self.executed += 1;
        self.device_only += u64::from(operation.call.is_none());
        let call_flags = operation.call.as_ref().map_or(0, |call| call.flags);
        self.unstacked += u64::from(call_flags & flag::UNSTACKED != 0);
        let is_switched_off = call_flags & flag::UNTIMED != 0;
        match operation.timing {
            None if is_switched_off => self.switched_off += 1,
            Some(timing) => {
                self.timed += 1;
                self.device_ns = self.device_ns.saturating_add(timing.duration_ns);
            }
            None => {
                let on_host = match operation.what {
                    What::Copy { direction, bytes, .. } => direction == Direction::CpuToCpu || bytes == 0,
                    _ => false,
                };
                self.host_to_host += u64::from(on_host);
            }
        }
    }

    /// Counts the operations of `new` where those of `old` were counted.
    pub(super) fn replace_operations(&mut self, old: &Counts, new: &Counts) {
        let counts = [
            (&mut self.executed, old.executed, new.executed),
            (&mut self.timed, old.timed, new.timed),
            (&mut self.device_ns, old.device_ns, new.device_ns),
            (&mut self.switched_off, old.switched_off, new.switched_off),
            (&mut self.counted, old.counted, new.counted),
            (&mut self.unstacked, old.unstacked, new.unstacked),
            (&mut self.device_only, old.device_only, new.device_only),
        ];
        for (count, old, new) in counts {
            *count = count.saturating_sub(old).saturating_add(new);
        }
    }

    /// The number of entries of a kind, one of [`gputrace_wire::cell::kind`].
    pub fn entries(&self, kind: u16) -> u64 {
        self.by_kind.get(usize::from(kind)).copied().unwrap_or(0)
    }

    /// Blocks of caching allocators that were given out or taken back: hooks, and no calls.
    pub fn blocks(&self) -> u64 {
        self.entries(kind::BLOCK)
    }

    /// The number of hooks that recorded or counted something while the session was not paused. Those of a
    /// pause are in the [counters](crate::batch::Counters::paused_calls).
    pub fn hooks(&self) -> u64 {
        self.host_calls() + self.blocks() + self.counted
    }

    /// The number of host calls.
    pub fn host_calls(&self) -> u64 {
        (kind::LAUNCH..=kind::CALL).chain([kind::MEMORY]).map(|kind| self.entries(kind)).sum()
    }

    /// The number of operations that a device executed.
    pub fn on_devices(&self) -> u64 {
        self.executed.saturating_sub(self.host_to_host)
    }

    /// The share of these operations that have valid times; 1 if there are none.
    pub fn device_time_coverage(&self) -> f64 {
        if self.on_devices() == 0 { 1.0 } else { self.timed as f64 / self.on_devices() as f64 }
    }

    /// Adds the counts of another process.
    pub fn add(&mut self, other: &Counts) {
        self.launches += other.launches;
        self.captured_launches += other.captured_launches;
        self.graph_launches += other.graph_launches;
        self.copies += other.copies;
        self.fills += other.fills;
        self.failed += other.failed;
        self.captured_others += other.captured_others;
        self.device_only += other.device_only;
        self.executed += other.executed;
        self.timed += other.timed;
        self.device_ns = self.device_ns.saturating_add(other.device_ns);
        self.host_to_host += other.host_to_host;
        self.switched_off += other.switched_off;
        self.counted += other.counted;
        self.unstacked += other.unstacked;
        self.invalid_timing += other.invalid_timing;
        self.paused_records += other.paused_records;
        self.doubled_graph_records += other.doubled_graph_records;
        self.evicted_calls += other.evicted_calls;
        self.evicted_records += other.evicted_records;
        self.unknown_kinds += other.unknown_kinds;
        for (to, from) in self.by_kind.iter_mut().zip(other.by_kind) {
            *to += from;
        }
    }
}
