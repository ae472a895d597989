//! How many records a buffer is to have, so that none waits long for the others in it.
//!
//! CUPTI hands a buffer over once everything in it has ended, and what was launched at one go stays together. Records of kernels,
//! copies and fills are read before that ([`super::open`]); those of whole graphs CUPTI writes too late. A
//! buffer costs the launching thread some 30 µs, so where graphs are short, or there are none, they are large
//! (`scripts/bench-cupti-buffers`).
//! Owned here: how long whole graphs take, learned from what is delivered.

use core::sync::atomic::{AtomicU64, Ordering};

use gputrace_wire::device::Place;

/// The device time that is to be in one buffer at most. With the time between two flushes it is far below the
/// 250 ms that are promised.
const SPAN_NS: u64 = 50_000_000;
/// Before anything is known.
const AT_FIRST: u64 = 64;
/// The estimate goes up at once, and down by this share a delivery: long operations come back.
const SHARE_DOWN: u64 = 32;

/// What an operation takes; 0 while that is not known.
static EACH_NS: AtomicU64 = AtomicU64::new(0);

/// Operations that are looked at together. What comes in a cluster among many short ones is queued in a cluster
/// too: the mean of a whole buffer would hide it.
const RUN: u64 = 64;

/// Operations that came one after the other.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    first_start_ns: u64,
    last_end_ns: u64,
    longest_ns: u64,
    count: u64,
}

impl Run {
    fn note(&mut self, start_ns: u64, end_ns: u64) {
        if self.count == 0 || start_ns < self.first_start_ns {
            self.first_start_ns = start_ns;
        }
        self.last_end_ns = self.last_end_ns.max(end_ns);
        self.longest_ns = self.longest_ns.max(end_ns.saturating_sub(start_ns));
        self.count += 1;
    }

    /// One of so many. Time between them counts too, as the device may have been busy with something else, but no more than the
    /// longest took: a device that has nothing to do keeps nobody waiting.
    fn each_ns(&self, of: u64) -> u64 {
        let span_ns = self.last_end_ns.saturating_sub(self.first_start_ns);
        span_ns.checked_div(of).unwrap_or(0).min(self.longest_ns)
    }
}

/// What the operations of one delivery took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Taken {
    run: Run,
    runs: u64,
    /// Of the slowest run.
    each_ns: u64,
    /// Whether there were records that need no small buffers.
    has_others: bool,
}

impl Taken {
    pub fn note(&mut self, place: &Place) {
        if !place.has_timing() {
            return;
        }
        self.run.note(place.start_ns, place.end_ns);
        if self.run.count == RUN {
            self.each_ns = self.each_ns.max(self.run.each_ns(RUN));
            self.run = Run::default();
            self.runs += 1;
        }
    }

    pub fn note_other(&mut self) {
        self.has_others = true;
    }

    /// One operation of the slowest run; those left over after whole runs are one with nothing behind them.
    fn each_ns(&self) -> Option<u64> {
        let of = if self.runs == 0 { self.run.count } else { RUN };
        (of > 0).then(|| self.each_ns.max(self.run.each_ns(of)).max(1))
    }

    /// The delivery is over: the next buffers are by this.
    pub fn learn(&self) {
        // Of two deliveries at the same time one may be forgotten.
        let before_ns = EACH_NS.load(Ordering::Relaxed);
        let each_ns = match self.each_ns() {
            Some(each_ns) => each_ns,
            None if self.has_others => 1,
            None => return,
        };
        EACH_NS.store(after(before_ns, each_ns), Ordering::Relaxed);
    }
}

fn after(before_ns: u64, each_ns: u64) -> u64 {
    each_ns.max(before_ns - before_ns.div_ceil(SHARE_DOWN))
}

/// Records of the next buffer.
pub fn most_records() -> usize {
    let most = SPAN_NS.checked_div(EACH_NS.load(Ordering::Relaxed)).unwrap_or(AT_FIRST);
    usize::try_from(most.max(1)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(times_us: &[(u64, u64)]) -> Taken {
        let mut taken = Taken::default();
        for (start_us, end_us) in times_us {
            taken.note(&Place { start_ns: start_us * 1000, end_ns: end_us * 1000, ..Place::default() });
        }
        taken
    }

    #[test]
    fn what_one_takes_is_neither_the_idle_time_nor_less_than_was_waited() {
        assert_eq!(taken(&[]).each_ns(), None);
        assert_eq!(taken(&[(0, 0)]).each_ns(), None, "without times");
        assert_eq!(taken(&[(10, 20), (20, 30), (30, 40)]).each_ns(), Some(10_000));
        assert_eq!(taken(&[(10, 20), (90_000, 90_004)]).each_ns(), Some(10_000), "idle between them");
        assert_eq!(taken(&[(20, 30), (10, 40)]).each_ns(), Some(15_000), "at the same time");
        assert_eq!(taken(&[(10, 11), (11, 911), (911, 912), (912, 1010)]).each_ns(), Some(250_000));
    }

    #[test]
    fn a_cluster_of_long_ones_counts_among_however_many_short_ones() {
        let mut times: Vec<(u64, u64)> = (1..4_001).map(|at| (at, at + 1)).collect();
        assert_eq!(taken(&times).each_ns(), Some(1_000));
        times.extend((0..50).map(|at| (4_001 + at * 2_000, 6_001 + at * 2_000)));
        assert!(taken(&times).each_ns().is_some_and(|each_ns| each_ns > 700_000));
        // One beside many is little of it: a long kernel at the side of a loop of launches must not cost that its buffers.
        assert!(taken(&times[..4_001]).each_ns().is_some_and(|each_ns| each_ns < 33_000));
    }

    #[test]
    fn buffers_follow_long_operations_at_once_and_short_ones_slowly() {
        assert_eq!(most_records(), 64);
        taken(&[(1, 2_001)]).learn();
        assert_eq!(most_records(), 25);
        taken(&[(1, 100_001)]).learn();
        assert_eq!(most_records(), 1);
        let mut each_ns = 2_000_000;
        let turns = (1..).find(|_| {
            each_ns = after(each_ns, 5_000);
            each_ns == 5_000
        });
        assert!(
            turns.is_some_and(|turns| turns < 200),
            "{turns:?}: some milliseconds in buffers that are too small"
        );
        assert_eq!(after(1, 1), 1);
        assert_eq!(after(0, 7), 7);

        let delivered_of_others = || {
            let mut others = Taken::default();
            others.note_other();
            others.learn();
        };
        taken(&[]).learn();
        assert_eq!(most_records(), 1, "nothing was delivered");
        let turns = (1..2_000).find(|_| {
            delivered_of_others();
            most_records() >= 4_000
        });
        assert!(turns.is_some_and(|turns| turns > 50), "{turns:?}: calls alone, slowly");
        (0..2_000).for_each(|_| delivered_of_others());
        assert_eq!(most_records() as u64, SPAN_NS, "still known");
        taken(&[(1, 100_001)]).learn();
        assert_eq!(most_records(), 1);
    }
}
