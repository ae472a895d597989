//! Copies by the CPU alone, for which CUPTI has no record, so that there are no device times.
//!
//! A copy without a record counts as one of them
//! - if its call names host memory for both ends, or 0 bytes;
//! - if its call does not name the memory (`cuMemcpy`, `cuMemcpyAsync`), nothing of the process was lost, and
//!   the record is not just late: a later operation of its stream has device times, or the host waited for
//!   the copy and the process then ended in order, after CUPTI had delivered all records.
//!
//! The hook does not ask the driver what the pointers of a copy point to: that would be one more call.

use gputrace_wire::call::{Detail, direction};
use gputrace_wire::counter::Counter;

use crate::batch::Counters;
use crate::model::operation::HostCall;

/// Losses that may include the record of a copy.
const RECORD_LOSSES: [Counter; 4] =
    [Counter::NoRing, Counter::RecordsDropped, Counter::RecordsRingFull, Counter::BuffersExhausted];

/// Counts of one process's copies without a record.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HostCopies {
    certain: u64,
    /// Copies counted by the second rule.
    concluded: u64,
}

impl HostCopies {
    /// Adds a call whose record did not come. `is_due`: whether it would have come from a device by now.
    pub fn add(&mut self, call: &HostCall, is_due: impl FnOnce() -> bool) {
        let Detail::Copy(copy) = call.detail else { return };
        if copy.count > 1 {
            return;
        }
        if copy.direction == direction::HOST_TO_HOST || copy.bytes == 0 {
            self.certain += 1;
        } else if copy.direction == direction::UNKNOWN && is_due() {
            self.concluded += 1;
        }
    }

    /// The number of such copies, once all losses are known.
    pub fn count(&self, counters: &Counters, has_losses: bool) -> u64 {
        let has_lost_records = RECORD_LOSSES.iter().any(|counter| counters.value(*counter) > 0);
        if has_losses || has_lost_records { self.certain } else { self.certain + self.concluded }
    }
}
