//! Durations of one kind of thing: how many, how long in all, and how they spread.

use crate::histogram::{Histogram, Unit};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Durations(Histogram);

impl Default for Durations {
    fn default() -> Durations {
        Durations(Histogram::fixed(Unit::Nanoseconds))
    }
}

impl Durations {
    #[inline]
    pub fn add(&mut self, duration_ns: u64) {
        self.0.add(duration_ns);
    }

    pub fn merge(&mut self, other: &Durations) {
        self.0.merge(&other.0);
    }

    pub fn count(&self) -> u64 {
        self.0.count()
    }
    pub fn total_ns(&self) -> u64 {
        self.0.sum()
    }
    pub fn min_ns(&self) -> u64 {
        self.0.min()
    }
    pub fn max_ns(&self) -> u64 {
        self.0.max()
    }

    /// 0 without durations.
    pub fn mean_ns(&self) -> f64 {
        if self.count() == 0 { 0.0 } else { self.total_ns() as f64 / self.count() as f64 }
    }

    /// The standard deviation of a sample, to within 0.4 % of the durations. `None` for fewer than two.
    pub fn deviation_ns(&self) -> Option<f64> {
        self.0.deviation()
    }

    /// The quantile, within 0.4 % and never outside of what was seen.
    pub fn quantile_ns(&self, share: f64) -> u64 {
        (self.0.quantile(share).round() as u64).clamp(self.min_ns(), self.max_ns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_exact_and_merging_is_adding() {
        let mut left = Durations::default();
        let mut right = Durations::default();
        let mut whole = Durations::default();
        for (at, value) in [700, 3, 90_000, 1_000_001].into_iter().enumerate() {
            whole.add(value);
            if at % 2 == 0 { left.add(value) } else { right.add(value) }
        }
        left.merge(&right);
        left.merge(&Durations::default());
        assert_eq!(left, whole);
        let mut fresh = Durations::default();
        fresh.merge(&whole);
        assert_eq!(fresh, whole);
        assert_eq!(
            (whole.count(), whole.total_ns(), whole.min_ns(), whole.max_ns()),
            (4, 1_090_704, 3, 1_000_001)
        );
        assert_eq!(whole.mean_ns(), 272_676.0);
    }

    #[test]
    fn single_value_is_its_own_quantile() {
        let mut one = Durations::default();
        one.add(123_457);
        assert_eq!(one.quantile_ns(0.5), 123_457);
        assert_eq!(one.quantile_ns(0.99), 123_457);
        assert_eq!(Durations::default().quantile_ns(0.5), 0);
    }
}
