//! A counter as a sum of steps, which arrive in any order and are written in the order of their times.

use std::collections::BTreeMap;

/// So many times wait for earlier steps. A step before the last written value counts from that value on.
const TIMES_MAX: usize = 1 << 13;

#[derive(Debug)]
pub struct Steps {
    pub track: u64,
    /// The value is written at multiples of this, as it is then.
    grid_ns: u64,
    /// The sum of the steps up to each multiple, since the one before.
    steps: BTreeMap<u64, i64>,
    value: i64,
    /// The last multiple up to which the value was taken.
    taken: u64,
}

impl Steps {
    pub fn new(track: u64, grid_ns: u64) -> Steps {
        Steps { track, grid_ns, steps: BTreeMap::new(), value: 0, taken: 0 }
    }

    #[inline]
    pub fn add(&mut self, at_ns: u64, step: i64) {
        let sum = self.steps.entry(at_ns.div_ceil(self.grid_ns).max(self.taken)).or_default();
        *sum = sum.saturating_add(step);
    }

    /// The next value to be written and its time, once there are too many; or any, at the end.
    pub fn take(&mut self, is_end: bool) -> Option<(u64, i64)> {
        while is_end || self.steps.len() > TIMES_MAX {
            let (at, step) = self.steps.pop_first()?;
            self.taken = at;
            if step != 0 {
                self.value = self.value.saturating_add(step);
                return Some((at.saturating_mul(self.grid_ns), self.value));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(steps: &mut Steps) -> Vec<(u64, i64)> {
        std::iter::from_fn(|| steps.take(true)).collect()
    }

    #[test]
    fn steps_of_one_moment_are_one_value() {
        let mut steps = Steps::new(1, 100);
        for (at_ns, step) in [(250, 2), (90, 1), (210, -1), (300, 4), (301, -6), (501, 1), (590, -1)] {
            steps.add(at_ns, step);
        }
        assert_eq!(all(&mut steps), [(100, 1), (300, 6), (400, 0)]);
    }

    #[test]
    fn late_step_counts_from_the_last_value_on() {
        let mut steps = Steps::new(1, 1);
        (0..=TIMES_MAX as u64).for_each(|at| steps.add(1_000 + at, 1));
        assert_eq!(steps.take(false), Some((1_000, 1)));
        assert_eq!(steps.take(false), None);
        steps.add(7, 10);
        assert_eq!(steps.take(true), Some((1_000, 11)));
    }

    proptest! {
        #[test]
        fn values_are_those_of_the_sorted_steps(mut added in proptest::collection::vec((0u64..50, -9i64..9), 0..200)) {
            let mut steps = Steps::new(1, 1);
            added.iter().for_each(|(at_ns, step)| steps.add(*at_ns, *step));
            let values = all(&mut steps);
            prop_assert!(values.is_sorted_by(|a, b| a.0 < b.0 && a.1 != b.1));
            added.sort_by_key(|(at_ns, _)| *at_ns);
            for (at_ns, value) in values {
                let sum: i64 = added.iter().filter(|(other, _)| *other <= at_ns).map(|(_, step)| step).sum();
                prop_assert_eq!(value, sum, "at {}", at_ns);
            }
        }
    }
}
