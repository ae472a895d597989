//! What is counted, by process and over all of them.

use gputrace_wire::cell::kind;

/// Kinds counted by number; the rest is [`Counts::unknown_kinds`].
const KINDS: usize = 96;

/// What was counted, by process or over all of them. The words mean the same everywhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Kernel launches that the driver took for execution.
    pub launches: u64,
    /// Launches, of kernels or graphs, on a stream that was being captured: they execute nothing.
    pub captured_launches: u64,
    pub graph_launches: u64,
    /// Copy and fill calls that the driver took for execution.
    pub copies: u64,
    pub fills: u64,
    /// Launches, copies and fills that the driver refused.
    pub failed: u64,
    /// Copies and fills on a stream that was being captured.
    pub captured_others: u64,
    /// Device records whose host call is not known.
    pub device_only: u64,
    /// Operations that a device executed or, without a record, was asked to execute.
    pub executed: u64,
    /// Executed operations with valid device times.
    pub timed: u64,
    /// The sum of those times.
    pub device_ns: u64,
    /// Executed copies that no device had a part in, so that there are no device times to be had: from host
    /// to host, or of no bytes. [`crate::model::host_copies`] has the rules.
    pub host_to_host: u64,
    /// Device records whose times cannot be used.
    pub invalid_timing: u64,
    /// Records of graph launches that came as a whole and by node, in the form that came second: the
    /// first one counts; a whole after some of its nodes is none of these, and has the time that they leave.
    pub doubled_graph_records: u64,
    /// Calls given up on because more were waiting for their records than are remembered.
    pub evicted_calls: u64,
    /// Records given up on because more were waiting for their calls than are remembered.
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
            invalid_timing: 0,
            doubled_graph_records: 0,
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

    /// A launch, copy or fill that the driver accepted.
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

    /// Entries of a kind, one of [`gputrace_wire::cell::kind`].
    pub fn entries(&self, kind: u16) -> u64 {
        self.by_kind.get(usize::from(kind)).copied().unwrap_or(0)
    }

    /// Entries that are host calls.
    pub fn host_calls(&self) -> u64 {
        (kind::LAUNCH..=kind::CALL).map(|kind| self.entries(kind)).sum()
    }

    /// Operations that a device had a part in.
    pub fn on_devices(&self) -> u64 {
        self.executed.saturating_sub(self.host_to_host)
    }

    /// Those of them with valid times over all of them; 1 if there are none.
    pub fn device_time_coverage(&self) -> f64 {
        if self.on_devices() == 0 { 1.0 } else { self.timed as f64 / self.on_devices() as f64 }
    }

    /// Adds another's counts.
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
        self.invalid_timing += other.invalid_timing;
        self.doubled_graph_records += other.doubled_graph_records;
        self.evicted_calls += other.evicted_calls;
        self.evicted_records += other.evicted_records;
        self.unknown_kinds += other.unknown_kinds;
        for (to, from) in self.by_kind.iter_mut().zip(other.by_kind) {
            *to += from;
        }
    }
}
