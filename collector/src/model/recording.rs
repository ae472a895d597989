//! When a process recorded: a session can be paused and go on.

use crate::model::Totals;

/// Changes that are kept of a process. Where there are more, the later ones count as one interval.
const CHANGES_MAX: usize = 1 << 13;

/// The intervals in which a process recorded, by CLOCK_MONOTONIC. A process that was never paused has none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecordingIntervals {
    /// Whether it records from then on, in the order of time.
    changes: Vec<(bool, u64)>,
    /// Changes beyond those that are kept.
    pub left_out: u64,
    /// Since when the window lasts that is not kept, and how long those did that ended.
    window_since: Option<u64>,
    pub beyond_ns: u64,
}

impl RecordingIntervals {
    pub(super) fn changes(&mut self, is_on: bool, at_ns: u64) {
        if self.changes.len() >= CHANGES_MAX {
            self.left_out += 1;
            return;
        }
        // Threads that switch have a ring each, so a change may come after a later one.
        let index = self.changes.partition_point(|(_, earlier_ns)| *earlier_ns <= at_ns);
        self.changes.insert(index, (is_on, at_ns));
    }

    /// The same of windows. Those beyond the ones that are kept are summed.
    pub(super) fn window_changes(&mut self, is_on: bool, at_ns: u64) {
        let is_full = self.changes.len() + 2 > CHANGES_MAX;
        match self.window_since {
            Some(since_ns) if !is_on => {
                self.window_since = None;
                self.left_out += 1;
                self.beyond_ns = self.beyond_ns.saturating_add(at_ns.saturating_sub(since_ns));
            }
            _ if is_on && is_full => {
                self.left_out += 1;
                self.window_since = Some(at_ns);
            }
            _ => self.changes(is_on, at_ns),
        }
    }

    pub fn was_paused(&self) -> bool {
        self.changes.iter().any(|(is_on, _)| !is_on)
    }

    /// A number for the interval that contains `at_ns`, which no other interval has.
    pub fn number_at(&self, at_ns: u64) -> u32 {
        self.changes.partition_point(|(_, change_ns)| *change_ns <= at_ns) as u32
    }

    /// The intervals of a process that was traced from `begin_ns` to `end_ns`.
    pub fn between(&self, begin_ns: u64, end_ns: u64) -> Vec<(u64, u64)> {
        let mut intervals = Vec::new();
        let mut since = Some(begin_ns);
        for (is_on, at_ns) in &self.changes {
            match (is_on, since) {
                (true, None) => since = Some(*at_ns),
                (false, Some(from)) => {
                    intervals.push((from, (*at_ns).max(from)));
                    since = None;
                }
                _ => {}
            }
        }
        intervals.extend(since.map(|from| (from, end_ns.max(from))));
        intervals.retain(|(from, to)| from < to);
        intervals
    }
}

/// Whether every process recorded all the time, with device times if with any: only then what lies between
/// two operations is known.
pub fn is_without_gaps(totals: &Totals) -> bool {
    recorded_intervals(totals).is_none() && timed_intervals(totals).is_none()
}

/// When any process recorded; `None` if all recorded all the time.
pub fn recorded_intervals(totals: &Totals) -> Option<Vec<(u64, u64)>> {
    let was_paused = totals.processes.iter().any(|process| process.definitions.recorded.was_paused());
    was_paused.then(|| all_intervals(totals))
}

/// When any process recorded.
pub fn all_intervals(totals: &Totals) -> Vec<(u64, u64)> {
    let of_each = totals.processes.iter().flat_map(|process| {
        process.definitions.recorded.between(process.begin.start_monotonic_ns, process.last_seen_ns)
    });
    union(of_each.collect())
}

/// When any process recorded with device times; `None` if these were never switched.
pub fn timed_intervals(totals: &Totals) -> Option<Vec<(u64, u64)>> {
    let was_switched = totals.processes.iter().any(|process| process.definitions.timed.was_paused());
    let of_each = totals.processes.iter().flat_map(|process| {
        let (from, to) = (process.begin.start_monotonic_ns, process.last_seen_ns);
        let definitions = &process.definitions;
        common(&definitions.recorded.between(from, to), &definitions.timed.between(from, to))
    });
    was_switched.then(|| union(of_each.collect()))
}

/// What two lists of intervals have in common.
fn common(some: &[(u64, u64)], others: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let pairs = some.iter().flat_map(|one| {
        // Both are in order.
        let first = others.partition_point(|(_, to)| *to <= one.0);
        let near = others.iter().skip(first).take_while(|(from, _)| *from < one.1);
        near.map(|other| (one.0.max(other.0), one.1.min(other.1)))
    });
    pairs.collect()
}

/// The intervals in which any of several processes recorded, in order, those that touch as one.
fn union(mut intervals: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    intervals.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (from, to) in intervals {
        match merged.last_mut() {
            Some((_, last)) if from <= *last => *last = to.max(*last),
            _ => merged.push((from, to)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_part_of_intervals() {
        let some = [(10, 20), (30, 60), (70, 80)];
        assert_eq!(
            common(&some, &[(0, 12), (15, 40), (50, 75)]),
            [(10, 12), (15, 20), (30, 40), (50, 60), (70, 75)]
        );
        assert_eq!(common(&some, &[]), []);
    }

    #[test]
    fn intervals_begin_and_end_with_the_changes() {
        let mut recording = RecordingIntervals::default();
        assert_eq!(recording.between(10, 100), [(10, 100)]);
        for (is_on, at_ns) in [(true, 5), (false, 20), (false, 25), (true, 40), (false, 70)] {
            recording.changes(is_on, at_ns);
        }
        assert!(recording.was_paused());
        assert_eq!(recording.between(10, 100), [(10, 20), (40, 70)]);
        recording.changes(true, 90);
        assert_eq!(recording.between(10, 100), [(10, 20), (40, 70), (90, 100)]);
    }

    #[test]
    fn windows_beyond_those_that_are_kept_are_summed() {
        let mut timed = RecordingIntervals::default();
        timed.window_changes(false, 0);
        for window in 1..=CHANGES_MAX as u64 {
            timed.window_changes(true, window * 100);
            timed.window_changes(false, window * 100 + 10);
        }
        let kept = timed.between(0, u64::MAX);
        let all_ns = kept.iter().map(|(from, to)| to - from).sum::<u64>() + timed.beyond_ns;
        assert_eq!(all_ns, CHANGES_MAX as u64 * 10);
        assert_eq!(kept.len() as u64 + timed.left_out / 2, CHANGES_MAX as u64);
        assert!(timed.changes.len() <= CHANGES_MAX);
    }

    #[test]
    fn process_that_begins_paused_has_no_first_interval() {
        let mut recording = RecordingIntervals::default();
        recording.changes(false, 10);
        assert_eq!(recording.between(10, 100), []);
    }

    #[test]
    fn changes_may_come_out_of_order() {
        let mut recording = RecordingIntervals::default();
        for (is_on, at_ns) in [(false, 10), (false, 60), (true, 40), (true, 80)] {
            recording.changes(is_on, at_ns);
        }
        assert_eq!(recording.between(10, 100), [(40, 60), (80, 100)]);
    }

    #[test]
    fn intervals_that_touch_are_one() {
        assert_eq!(union(vec![(40, 50), (10, 20), (20, 30), (12, 15)]), [(10, 30), (40, 50)]);
    }
}
