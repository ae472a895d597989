//! Decides which of the last calls of a killed process had certainly ended.
//!
//! A record mostly comes some 50 to 200 ms after the operation's end, so the last calls of a killed process
//! have no records even if the device was idle. Such a call counts as ended only if all of this holds:
//! - It was made so shortly before the end that its record may not have been delivered yet. An earlier call
//!   without a record did not end: the kernel hangs or waits.
//! - All calls before it, on all streams, are known to be done or count as ended by these rules.
//! - By its own clock, the process lived on for much longer than such operations have taken so far.
//!
//! The rules do not apply if the device may have waited for something that no record shows: a value in
//! memory, a host function, an event of another process.

use gputrace_wire::call::Detail;

use crate::model::definitions::Definitions;
use crate::model::history::Histories;
use crate::model::operation::{HostCall, Kernel};

/// A call without a record counts as recent if it was made at most twice the longest lag of a record ago, or
/// at most this long ago. This covers the time between two deliveries and the time until the collector
/// notices that a process was killed, which includes the release of its GPU memory.
const RECORD_LATE_NS: u64 = 500_000_000;
/// A call that was made longer ago than this is never recent: the longest lag may be that of a single record,
/// behind a long kernel.
const RECORD_LATE_MOST_NS: u64 = 5_000_000_000;
/// An operation may take this many times its longest time so far.
const PATIENCE: u64 = 10;
/// Added once: the latency of a launch on an idle device with low clocks.
const LATENCY_NS: u64 = 1_000_000;
/// The time that a copy or fill may take, and more per byte: 1 GB/s is slower than any bus.
const TRANSFER_NS: u64 = 20_000;
const TRANSFER_NS_PER_BYTE: u64 = 1;

/// What is known about a killed process at its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Elapsed<'a> {
    /// The latest time in the entries of the process.
    pub alive_ns: u64,
    /// When the collector noticed its end.
    pub noticed_ns: u64,
    /// The longest time so far between an operation's end and its record.
    pub record_lag_max_ns: u64,
    pub histories: &'a Histories,
    pub definitions: &'a Definitions,
}

impl Elapsed<'_> {
    /// Removes the oldest calls until one may still run. `calls` holds the calls that no record and no wait
    /// shows as done, newest first.
    pub fn take_ended(&self, calls: &mut Vec<HostCall>) {
        let mut free_ns = 0;
        let lag_ns = self.record_lag_max_ns.saturating_mul(2);
        let late_ns = lag_ns.clamp(RECORD_LATE_NS, RECORD_LATE_MOST_NS);
        while let Some(call) = calls.last() {
            let Some(longest_ns) = self.longest_ns(call) else { return };
            let returned_ns = call.start_ns.saturating_add(call.duration_ns);
            let end_ns = returned_ns.max(free_ns).saturating_add(longest_ns.saturating_mul(PATIENCE));
            let is_recent = self.noticed_ns.saturating_sub(call.start_ns) <= late_ns;
            if !is_recent || end_ns.saturating_add(LATENCY_NS) > self.alive_ns {
                return;
            }
            free_ns = end_ns;
            calls.pop();
        }
    }

    /// The longest time so far of operations like this one; `None` if there is no history.
    fn longest_ns(&self, call: &HostCall) -> Option<u64> {
        let transfer = |bytes: u64| bytes.saturating_mul(TRANSFER_NS_PER_BYTE).saturating_add(TRANSFER_NS);
        match &call.detail {
            Detail::Launch(launch) => self.histories.longest_ns(&Kernel::launched(launch, self.definitions)),
            Detail::Copy(copy) if copy.count == 1 => Some(transfer(copy.bytes)),
            Detail::Fill { bytes, .. } => Some(transfer(*bytes)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use gputrace_wire::call::{Copy, Launch};

    use super::*;

    const MS: u64 = 1_000_000;
    /// Long after all calls in these tests.
    const NOW: u64 = 10_000 * MS;

    fn launch(ms_before: u64) -> HostCall {
        HostCall {
            start_ns: NOW - ms_before * MS,
            duration_ns: 1_000,
            detail: Detail::Launch(Launch::default()),
            ..HostCall::default()
        }
    }

    fn copy(ms_before: u64, bytes: u64) -> HostCall {
        let detail = Detail::Copy(Copy { direction: 1, bytes, count: 1 });
        HostCall { detail, ..launch(ms_before) }
    }

    /// How many of the calls may still run if their kernel took `kernel_ns` `times` times.
    fn left(times: u32, kernel_ns: u64, alive_ns: u64, noticed_ns: u64, calls: Vec<HostCall>) -> usize {
        left_late(0, times, kernel_ns, alive_ns, noticed_ns, calls)
    }

    fn left_late(
        record_lag_max_ns: u64,
        times: u32,
        kernel_ns: u64,
        alive_ns: u64,
        noticed_ns: u64,
        mut calls: Vec<HostCall>,
    ) -> usize {
        let mut histories = Histories::default();
        (0..times).for_each(|_| _ = histories.judge(&Kernel::default(), kernel_ns));
        let definitions = Definitions::default();
        Elapsed { alive_ns, noticed_ns, record_lag_max_ns, histories: &histories, definitions: &definitions }
            .take_ended(&mut calls);
        calls.len()
    }

    #[test]
    fn short_kernels_long_before_the_end_have_ended_and_the_last_one_is_not_known_to() {
        let calls: Vec<_> = (0..25).map(|at| launch(at * 2)).collect();
        assert_eq!(left(100, 2_000, NOW, NOW, calls), 1);
    }

    #[test]
    fn kernels_that_took_longer_before_may_still_run() {
        let calls = || (0..25).map(|at| launch(at * 2)).collect();
        assert_eq!(left(100, 10 * MS, NOW, NOW, calls()), 25);
        // One after the other: 24 of them may take 48 ms.
        assert_eq!(left(100, 190_000, NOW, NOW, calls()), 2);
        assert_eq!(left(5, 2_000, NOW, NOW, calls()), 25, "too few times to go by");
    }

    #[test]
    fn call_whose_record_should_have_come_hangs_and_all_after_it_wait() {
        let calls = || vec![launch(10), launch(20), launch(501)];
        assert_eq!(left(100, 2_000, NOW, NOW, calls()), 3);
        assert_eq!(left(100, 2_000, NOW, NOW + 490 * MS, vec![launch(5), launch(20)]), 2);
        assert_eq!(left(100, 2_000, NOW, NOW, vec![launch(10), launch(20)]), 0);
    }

    #[test]
    fn records_that_have_come_late_may_do_so_again() {
        let calls = || vec![launch(10), launch(20), launch(501)];
        assert_eq!(left_late(400 * MS, 100, 2_000, NOW, NOW, calls()), 0);
        assert_eq!(left_late(250 * MS, 100, 2_000, NOW, NOW, calls()), 3);
        let old = || vec![launch(10), launch(5_001)];
        assert_eq!(left_late(20_000 * MS, 100, 2_000, NOW, NOW, old()), 2, "it hangs all the same");
    }

    #[test]
    fn calls_after_the_last_sign_of_life_may_still_run() {
        assert_eq!(left(100, 2_000, NOW - 20 * MS, NOW, vec![launch(10), launch(20)]), 2);
    }

    #[test]
    fn copies_have_the_time_of_a_slow_bus_and_graphs_none() {
        assert_eq!(left(0, 0, NOW, NOW, vec![copy(10, 1 << 10)]), 0);
        assert_eq!(left(0, 0, NOW, NOW, vec![copy(10, 1 << 30)]), 1);
        let graph = HostCall { detail: Detail::GraphLaunch { graph: 1 }, ..launch(10) };
        assert_eq!(left(100, 2_000, NOW, NOW, vec![launch(5), graph]), 2);
    }
}
