//! A counter as a sum of steps, which arrive in any order and are written in the order of their times.

use std::collections::VecDeque;

/// So many times wait for earlier steps. A step before the last written value counts from that value on.
const TIMES_MAX: usize = 1 << 13;
/// So many neighbours of the last step are looked at before a search among all.
const NEAR_MAX: usize = 8;

#[derive(Debug)]
pub struct Steps {
    pub track: u64,
    /// The value is written at multiples of this, as it is then.
    grid_ns: u64,
    /// The multiples with steps in order, and the sum of the steps up to each since the one before.
    steps: VecDeque<(u64, i64)>,
    /// After the last step up, and after the last one down.
    near: [usize; 2],
    value: i64,
    /// The last multiple up to which the value was taken.
    taken: u64,
}

impl Steps {
    pub fn new(track: u64, grid_ns: u64) -> Steps {
        Steps { track, grid_ns, steps: VecDeque::new(), near: [0; 2], value: 0, taken: 0 }
    }

    #[inline]
    pub fn add(&mut self, at_ns: u64, step: i64) {
        let at = at_ns.div_ceil(self.grid_ns).max(self.taken);
        // Steps up come nearly in order, as steps down do.
        let near = usize::from(step < 0);
        let mut index = self.near.get(near).copied().unwrap_or(0).min(self.steps.len());
        let is_before = |index: usize| self.steps.get(index).is_some_and(|(known, _)| *known <= at);
        for _ in 0..NEAR_MAX {
            match index.checked_sub(1) {
                _ if is_before(index) => index += 1,
                Some(before) if !is_before(before) => index = before,
                _ => break,
            }
        }
        if is_before(index) || index > 0 && !is_before(index - 1) {
            index = self.steps.partition_point(|(known, _)| *known <= at);
        }
        match index.checked_sub(1).and_then(|last| self.steps.get_mut(last)) {
            Some((known, sum)) if *known == at => *sum = sum.saturating_add(step),
            _ => {
                self.steps.insert(index, (at, step));
                index += 1;
            }
        }
        self.near.get_mut(near).into_iter().for_each(|near| *near = index);
    }

    /// The next value to be written and its time, once there are too many; or any, at the end.
    pub fn take(&mut self, is_end: bool) -> Option<(u64, i64)> {
        while is_end || self.steps.len() > TIMES_MAX {
            let (at, step) = self.steps.pop_front()?;
            self.taken = at;
            self.near = self.near.map(|near| near.saturating_sub(1));
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
