//! Sums of evicted processes: they exited, and the report does not list them, since too many did.

use crate::model::counts::Counts;
use crate::model::process_totals::Process;
use crate::model::ranges::Spans;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Evicted {
    pub processes: u64,
    /// Those of them that lost a context.
    pub failed: u64,
    pub counts: Counts,
    /// What was lost of them, for any reason.
    pub lost: u64,
    /// Of all their ranges.
    pub ranges: Spans,
}

impl Evicted {
    pub(super) fn add(&mut self, process: &Process) {
        self.processes += 1;
        self.failed += u64::from(process.failure.is_some());
        self.counts.add(&process.counts);
        self.lost = process.lost().fold(self.lost, |sum, (_, count)| sum.saturating_add(count));
        process.ranges.spans_by_name().for_each(|(_, spans)| self.ranges.add(&spans));
    }
}
