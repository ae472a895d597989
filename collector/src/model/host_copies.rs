//! Copies that no device had a part in: the CPU did them, so CUPTI has no record and there are no times.
//!
//! A copy without a record counts as one of them
//! - where its call says host memory for both ends, or no bytes;
//! - where its call does not say which memory is meant (`cuMemcpy`, `cuMemcpyAsync`), and its record is not
//!   just late or lost: an operation behind it in its stream has device times, or the host waited for it
//!   and the process then ended with a good-bye, by which time CUPTI had delivered all it had; and nothing
//!   of the process was lost.
//!
//! What the pointers of a copy point to is never asked: that would be a driver call more in the hook.

use gputrace_wire::call::{Detail, direction};
use gputrace_wire::counter::Counter;

use crate::batch::Counters;
use crate::model::operation::HostCall;

/// Losses by which the record of a copy may have gone.
const RECORD_LOSSES: [Counter; 4] =
    [Counter::NoRing, Counter::RecordsDropped, Counter::RecordsRingFull, Counter::BuffersExhausted];

/// What is counted of one process's copies that have no record.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HostCopies {
    certain: u64,
    /// Those that are concluded from the record that did not come.
    concluded: u64,
}

impl HostCopies {
    /// A call whose record did not come; `is_due`: whether it should have, had a device done it.
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

    /// How many there are, once all is known that was lost.
    pub fn count(&self, counters: &Counters, has_losses: bool) -> u64 {
        let has_lost_records = RECORD_LOSSES.iter().any(|counter| counters.value(*counter) > 0);
        if has_losses || has_lost_records { self.certain } else { self.certain + self.concluded }
    }
}
