//! What else a device executed while a kernel ran, and how long it had been idle before.
//!
//! Records of streams come buffer by buffer, some of them later than the kernel's. So a device's last
//! operations are kept, and a kernel is also compared with those that come after it.

use std::collections::VecDeque;

use crate::aggregate::KernelKey;
use crate::model::operation::{Operation, Timing};

/// Operations that are kept of a device.
const KEPT: usize = 256;
/// The latest kernels that are compared with what comes later.
const OPEN: usize = 16;
/// They are, until an operation comes that starts so long after them.
const LATER_NS: u64 = 10_000_000_000;
/// Streams that are distinguished beside one kernel.
const STREAMS: usize = 8;

/// When an operation ran, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ran {
    /// The process, and the stream's number in device records.
    stream: (u32, u32),
    start_ns: u64,
    end_ns: u64,
}

impl Ran {
    pub fn of(operation: &Operation) -> Option<Ran> {
        let Timing { start_ns, duration_ns } = operation.timing?;
        let stream = (operation.process, operation.stream);
        Some(Ran { stream, start_ns, end_ns: start_ns.saturating_add(duration_ns) })
    }
}

/// What surrounded the run of a kernel.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Surroundings {
    /// How long other streams executed something meanwhile.
    beside: Vec<((u32, u32), u64)>,
    /// From the last end of an operation before to the kernel's start; `None` if no such operation is known.
    pub idle_before_ns: Option<u64>,
}

impl Surroundings {
    /// The process and the number of the stream that executed something for the longest time meanwhile, and
    /// how long.
    pub fn busiest_beside(&self) -> Option<((u32, u32), u64)> {
        self.beside.iter().copied().max_by_key(|(stream, ns)| (*ns, std::cmp::Reverse(*stream)))
    }

    pub(super) fn add(&mut self, run: Ran, other: Ran) {
        if run == other {
            return;
        }
        if other.start_ns <= run.start_ns {
            let idle_ns = run.start_ns.saturating_sub(other.end_ns);
            self.idle_before_ns = Some(self.idle_before_ns.map_or(idle_ns, |known| known.min(idle_ns)));
        }
        let both_ns = run.end_ns.min(other.end_ns).saturating_sub(run.start_ns.max(other.start_ns));
        if other.stream == run.stream || both_ns == 0 {
            return;
        }
        if let Some((_, ns)) = self.beside.iter_mut().find(|(stream, _)| *stream == other.stream) {
            *ns = ns.saturating_add(both_ns);
        } else if self.beside.len() < STREAMS {
            self.beside.push((other.stream, both_ns));
        }
    }
}

/// The last operations of a device.
#[derive(Clone, Debug, Default)]
pub(super) struct LastOperations {
    last: VecDeque<Ran>,
    /// Kernels that are compared with what comes later.
    open: VecDeque<(KernelKey, Ran)>,
}

impl LastOperations {
    /// Adds an operation, and calls `meets` with each kernel whose surroundings it belongs to.
    #[inline]
    pub fn add(&mut self, other: Ran, mut meets: impl FnMut(KernelKey, Ran)) {
        if self.last.len() >= KEPT {
            self.last.pop_front();
        }
        self.last.push_back(other);
        if self.open.is_empty() {
            return;
        }
        self.open.retain(|(_, run)| other.start_ns < run.end_ns.saturating_add(LATER_NS));
        for (key, run) in &self.open {
            if other.start_ns < run.end_ns {
                meets(*key, *run);
            }
        }
    }

    /// What is known so far of the surroundings of a kernel that was just added. What comes later is reported
    /// by [`LastOperations::add`].
    pub fn around(&mut self, key: KernelKey, run: Ran) -> Surroundings {
        let mut found = Surroundings::default();
        self.last.iter().for_each(|other| found.add(run, *other));
        self.open.retain(|(known, _)| *known != key);
        if self.open.len() >= OPEN {
            self.open.pop_front();
        }
        self.open.push_back((key, run));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: KernelKey = KernelKey { process: 0, name: 7 };

    fn ran(stream: u32, start_ns: u64, end_ns: u64) -> Ran {
        Ran { stream: (0, stream), start_ns, end_ns }
    }

    /// The surroundings of a kernel on stream 1, in which these operations come before and after it.
    fn around(run: Ran, before: &[Ran], after: &[Ran]) -> Surroundings {
        let mut device = LastOperations::default();
        before.iter().for_each(|other| device.add(*other, |_, _| panic!("nothing is open")));
        device.add(run, |_, _| ());
        let mut found = device.around(KEY, run);
        for other in after {
            device.add(*other, |key, of| {
                assert_eq!((key, of), (KEY, run));
                found.add(of, *other);
            });
        }
        found
    }

    #[test]
    fn kernel_has_the_streams_beside_it_whenever_their_records_come() {
        let run = ran(1, 1_000, 2_000);
        let all = [ran(2, 500, 1_200), ran(3, 1_500, 1_600), ran(2, 1_900, 5_000), ran(1, 2_000, 9_000)];
        for split in 0..=all.len() {
            let found = around(run, &all[..split], &all[split..]);
            assert_eq!(found.busiest_beside(), Some(((0, 2), 300)), "{split}");
            assert_eq!(found.idle_before_ns, Some(0), "{split}");
        }
        assert_eq!(around(run, &[ran(1, 100, 400)], &[]).busiest_beside(), None);
    }

    #[test]
    fn idle_time_before_a_kernel_ends_with_the_last_operation_before_it() {
        let run = ran(1, 1_000_000, 2_000_000);
        assert_eq!(around(run, &[], &[ran(1, 2_000_000, 2_000_001)]).idle_before_ns, None);
        let before = [ran(1, 100, 400), ran(2, 300, 900)];
        assert_eq!(around(run, &before, &[]).idle_before_ns, Some(999_100));
        assert_eq!(around(run, &before, &[ran(3, 5_000, 400_000)]).idle_before_ns, Some(600_000));
    }

    #[test]
    fn memory_is_bounded() {
        let mut device = LastOperations::default();
        for index in 0..10_000 {
            let run = ran(1, index * 10, index * 10 + 5);
            device.add(run, |_, _| ());
            device.around(KernelKey { process: 0, name: index as u32 }, run);
            assert!(device.last.len() <= KEPT && device.open.len() <= OPEN);
        }
        device.add(ran(1, 2 * LATER_NS, 2 * LATER_NS), |_, _| panic!("it came too late"));
        assert!(device.open.is_empty());
    }
}
