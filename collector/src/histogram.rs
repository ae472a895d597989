//! An exponential histogram by OpenTelemetry's data model: buckets of base 2^(2^-scale). A value on a
//! boundary belongs to the bucket below it.
//!
//! Metrics use [`Histogram::new`]: at most 160 buckets, at the finest scale at which all values fit. Reports
//! use [`Histogram::fixed`]: the scale never changes, so that quantiles stay within 0.4 % of the true ones,
//! whatever the order of the values and of merges.

use std::borrow::Cow;
use std::sync::LazyLock;

/// As OpenTelemetry's SDKs have it.
const BUCKETS_MAX: u32 = 160;
const SCALE_MAX: i32 = 20;
const SCALE_MIN: i32 = -10;

/// Up to this scale buckets are found in a table, beyond it by a logarithm.
const TABLE_SCALE: i32 = 7;
const TABLE: usize = 1 << TABLE_SCALE;
const MANTISSA_BITS: u32 = 52;
const MANTISSA: u64 = (1 << MANTISSA_BITS) - 1;

/// The bounds of buckets within a power of two at that scale, as mantissas; and, by the first bits of a
/// mantissa, the number of bounds below all mantissas with these first bits.
static BOUNDS: LazyLock<([u64; TABLE + 1], [u8; 2 * TABLE])> = LazyLock::new(|| {
    let mut bounds = [u64::MAX; TABLE + 1];
    for (at, bound) in bounds.iter_mut().enumerate().take(TABLE) {
        *bound = (at as f64 / TABLE as f64).exp2().to_bits() & MANTISSA;
    }
    let mut first = [0; 2 * TABLE];
    for (begin, first) in first.iter_mut().enumerate() {
        let lowest = (begin as u64) << (MANTISSA_BITS - TABLE_SCALE as u32 - 1);
        let below = bounds.iter().filter(|bound| **bound < lowest).count();
        *first = u8::try_from(below).unwrap_or(u8::MAX);
    }
    (bounds, first)
});

/// The unit in which values are reported. They are measured in whole nanoseconds or bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Unit {
    /// Measured in nanoseconds, reported in seconds.
    #[default]
    Seconds,
    Nanoseconds,
    Bytes,
}

impl Unit {
    pub fn in_unit(self, value: u64) -> f64 {
        match self {
            Unit::Seconds => value as f64 / 1e9,
            Unit::Nanoseconds | Unit::Bytes => value as f64,
        }
    }
}

/// Count, sum and extremes are exact.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Histogram {
    unit: Unit,
    scale: i32,
    buckets_max: u32,
    zeroes: u64,
    /// Index of the first bucket.
    first: i32,
    counts: Vec<u64>,
    count: u64,
    sum: u64,
    min: u64,
    max: u64,
}

impl Histogram {
    pub fn new(unit: Unit) -> Histogram {
        Histogram::empty(unit, SCALE_MAX, BUCKETS_MAX)
    }

    /// 128 buckets for each power of two, at most 8193 for all values.
    pub fn fixed(unit: Unit) -> Histogram {
        Histogram::empty(unit, TABLE_SCALE, u32::MAX)
    }

    fn empty(unit: Unit, scale: i32, buckets_max: u32) -> Histogram {
        Histogram {
            unit,
            scale,
            buckets_max,
            zeroes: 0,
            first: 0,
            counts: Vec::new(),
            count: 0,
            sum: 0,
            min: 0,
            max: 0,
        }
    }

    #[inline]
    pub fn add(&mut self, value: u64) {
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
        if value == 0 {
            self.zeroes += 1;
            return;
        }
        let index = index(self.unit.in_unit(value), self.scale);
        let slot = i64::from(index) - i64::from(self.first);
        match usize::try_from(slot).ok().and_then(|slot| self.counts.get_mut(slot)) {
            Some(count) => *count += 1,
            None => self.add_outside(index, 1),
        }
    }

    /// Adds to a bucket that does not exist yet.
    #[cold]
    fn add_outside(&mut self, mut index: i32, count: u64) {
        if self.counts.is_empty() {
            self.first = index;
        }
        loop {
            let last = self.first.saturating_add(self.counts.len().max(1) as i32 - 1);
            let span = i64::from(last.max(index)) - i64::from(self.first.min(index));
            if span < i64::from(self.buckets_max) || self.scale <= SCALE_MIN {
                break;
            }
            self.coarsen();
            index >>= 1;
        }
        if index < self.first {
            let missing = (self.first - index) as usize;
            self.counts.splice(0..0, std::iter::repeat_n(0, missing));
            self.first = index;
        }
        let slot = (index - self.first) as usize;
        if slot >= self.counts.len() {
            self.counts.resize(slot + 1, 0);
        }
        if let Some(held) = self.counts.get_mut(slot) {
            *held += count;
        }
    }

    /// Merges each two buckets into one.
    fn coarsen(&mut self) {
        let first = self.first >> 1;
        let mut merged: Vec<u64> = Vec::new();
        for (slot, count) in self.counts.iter().enumerate() {
            let to = ((self.first + slot as i32) >> 1) - first;
            merged.resize(to as usize + 1, 0);
            if let Some(held) = merged.last_mut() {
                *held += count;
            }
        }
        (self.first, self.counts) = (first, merged);
        self.scale -= 1;
    }

    /// Adds the values of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        if other.count == 0 {
            return;
        }
        let mut other = Cow::Borrowed(other);
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.zeroes += other.zeroes;
        while other.scale > self.scale {
            other.to_mut().coarsen();
        }
        while self.scale > other.scale {
            self.coarsen();
        }
        let (scale, first) = (other.scale, other.first);
        for (slot, count) in other.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            // Adding the bucket before may have made this histogram coarser.
            let index = (first + slot as i32) >> (scale - self.scale);
            let at = i64::from(index) - i64::from(self.first);
            match usize::try_from(at).ok().and_then(|at| self.counts.get_mut(at)) {
                Some(held) => *held += count,
                None => self.add_outside(index, *count),
            }
        }
    }

    /// The quantile at `share` (0 to 1) by linear interpolation between neighbouring ranks, as in numpy, in
    /// the unit of reports. 0 without values.
    pub fn quantile(&self, share: f64) -> f64 {
        let Some(last) = self.count.checked_sub(1) else { return 0.0 };
        let rank = last as f64 * share.clamp(0.0, 1.0);
        let below = rank.floor();
        let low = self.at_rank(below as u64);
        if rank == below {
            return low;
        }
        low + (self.at_rank(below as u64 + 1) - low) * (rank - below)
    }

    /// About the value of that rank, counted from 0: the middle of its bucket.
    fn at_rank(&self, rank: u64) -> f64 {
        let mut seen = self.zeroes;
        if rank < seen {
            return 0.0;
        }
        let mut index = self.first;
        for count in &self.counts {
            seen += count;
            if rank < seen {
                break;
            }
            index += 1;
        }
        self.middle(index)
    }

    fn middle(&self, index: i32) -> f64 {
        let bound = |index: i32| (f64::from(index) * f64::from(-self.scale).exp2()).exp2();
        bound(index).midpoint(bound(index + 1))
    }

    /// The standard deviation of a sample, in the unit of reports, as if each value were the middle of its
    /// bucket. `None` for fewer than two values.
    pub fn deviation(&self) -> Option<f64> {
        let freedom = self.count.checked_sub(1).filter(|freedom| *freedom > 0)? as f64;
        let buckets = (self.first..).zip(&self.counts).filter(|(_, count)| **count > 0);
        let values = buckets.map(|(index, count)| (self.middle(index), *count as f64));
        let values: Vec<(f64, f64)> = values.chain([(0.0, self.zeroes as f64)]).collect();
        let mean = values.iter().map(|(value, count)| value * count).sum::<f64>() / self.count as f64;
        let squares: f64 = values.iter().map(|(value, count)| (value - mean).powi(2) * count).sum();
        // Values that are all the same leave a rounding error.
        Some(if self.min == self.max { 0.0 } else { (squares / freedom).sqrt() })
    }

    /// Returns all values and leaves the histogram empty.
    pub fn take(&mut self) -> Histogram {
        let scale = if self.buckets_max == BUCKETS_MAX { SCALE_MAX } else { self.scale };
        std::mem::replace(self, Histogram::empty(self.unit, scale, self.buckets_max))
    }

    pub fn unit(&self) -> Unit {
        self.unit
    }
    pub fn scale(&self) -> i32 {
        self.scale
    }
    pub fn zeroes(&self) -> u64 {
        self.zeroes
    }
    pub fn first(&self) -> i32 {
        self.first
    }
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }
    pub fn count(&self) -> u64 {
        self.count
    }
    /// In whole units, as are the extremes.
    pub fn sum(&self) -> u64 {
        self.sum
    }
    pub fn min(&self) -> u64 {
        self.min
    }
    pub fn max(&self) -> u64 {
        self.max
    }
}

/// The bucket of a positive, normal number.
#[inline]
fn index(value: f64, scale: i32) -> i32 {
    if scale > TABLE_SCALE {
        return (value.log2() * f64::from(1 << scale)).ceil() as i32 - 1;
    }
    let bits = value.to_bits();
    let (exponent, mantissa) = ((bits >> MANTISSA_BITS) as i32 - 1023, bits & MANTISSA);
    let (bounds, first) = &*BOUNDS;
    let begin = (mantissa >> (MANTISSA_BITS - TABLE_SCALE as u32 - 1)) as usize;
    // Bounds lie farther apart than the mantissas that begin alike: at most one more lies below.
    let mut below = usize::from(first.get(begin).copied().unwrap_or(0));
    below += usize::from(bounds.get(below).is_some_and(|bound| *bound < mantissa));
    let finest = (exponent << TABLE_SCALE) + below as i32 - 1;
    finest >> (TABLE_SCALE - scale)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[u64], unit: Unit) -> Histogram {
        let mut histogram = Histogram::new(unit);
        values.iter().for_each(|value| histogram.add(*value));
        histogram
    }

    /// Where a bucket ends.
    fn bound(index: i32, scale: i32) -> f64 {
        (f64::from(index + 1) * 2f64.powi(-scale)).exp2()
    }

    fn value() -> impl Strategy<Value = u64> {
        prop_oneof![0u64..300, 1_000u64..1_200, any::<u64>(), (0u32..64).prop_map(|bit| 1 << bit)]
    }

    proptest! {
        #[test]
        fn values_are_in_their_buckets_and_the_scale_is_the_finest(
            mut values in prop::collection::vec(value(), 1..400),
            bytes: bool,
        ) {
            let unit = if bytes { Unit::Bytes } else { Unit::Seconds };
            let histogram = of(&values, unit);
            values.sort_unstable();
            prop_assert_eq!((histogram.min(), histogram.max()), (values[0], *values.last().unwrap()));
            prop_assert_eq!(histogram.sum(), values.iter().fold(0u64, |sum, value| sum.saturating_add(*value)));
            prop_assert!(histogram.counts().len() <= BUCKETS_MAX as usize);
            let zeroes = values.iter().filter(|value| **value == 0).count();
            prop_assert_eq!(histogram.zeroes(), zeroes as u64);
            let buckets: u64 = histogram.counts().iter().sum();
            prop_assert_eq!(buckets + histogram.zeroes(), values.len() as u64);
            // A plain sort has them in the same buckets, in order.
            let positive = &values[zeroes..];
            let mut at = 0;
            for (slot, count) in histogram.counts().iter().enumerate() {
                let index = histogram.first() + slot as i32;
                let (low, high) = (bound(index - 1, histogram.scale()), bound(index, histogram.scale()));
                for value in &positive[at..at + *count as usize] {
                    let in_unit = unit.in_unit(*value);
                    prop_assert!(
                        in_unit > low * (1.0 - 1e-12) && in_unit <= high * (1.0 + 1e-12),
                        "{} not in ({}, {}]", in_unit, low, high
                    );
                }
                at += *count as usize;
            }
            if let (Some(least), Some(most)) = (positive.first(), positive.last()) {
                let finer = histogram.scale() + 1;
                let [least, most] = [least, most].map(|value| unit.in_unit(*value).log2() * 2f64.powi(finer));
                let fits = most.ceil() - least.ceil() < (BUCKETS_MAX as f64 - 1e-6);
                prop_assert!(histogram.scale() == SCALE_MAX || !fits, "{} {}", least, most);
            }
        }

        #[test]
        fn merging_is_adding(left in prop::collection::vec(value(), 0..200), right in prop::collection::vec(value(), 0..200)) {
            let mut merged = of(&left, Unit::Seconds);
            merged.merge(&of(&right, Unit::Seconds));
            let all: Vec<u64> = left.iter().chain(&right).copied().collect();
            let whole = of(&all, Unit::Seconds);
            let facts = |of: &Histogram| (of.count(), of.sum(), of.min(), of.max(), of.zeroes(), of.scale());
            prop_assert_eq!(facts(&merged), facts(&whole));
            // A boundary is found by a logarithm at fine scales and in a table at coarse ones.
            let middle = |of: &Histogram| {
                let weighted = of.counts().iter().enumerate().map(|(at, n)| (f64::from(of.first()) + at as f64) * *n as f64);
                weighted.sum::<f64>()
            };
            prop_assert!((middle(&merged) - middle(&whole)).abs() <= 1.0);
        }
    }

    /// The definition of a quantile, on the values themselves.
    fn exact(sorted: &[u64], share: f64) -> f64 {
        let rank = (sorted.len() - 1) as f64 * share;
        let low = sorted[rank.floor() as usize] as f64;
        low + (sorted[rank.ceil() as usize] as f64 - low) * rank.fract()
    }

    fn fixed(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::fixed(Unit::Nanoseconds);
        values.iter().for_each(|value| histogram.add(*value));
        histogram
    }

    fn durations() -> impl Strategy<Value = Vec<u64>> {
        let any_scale = (0u32..62, 0u64..1 << 20).prop_map(|(shift, value)| (value << shift) >> 20);
        let microseconds = 500u64..50_000;
        prop::collection::vec(prop_oneof![any_scale, microseconds], 1..400)
    }

    proptest! {
        #[test]
        fn quantiles_are_within_one_percent(mut values in durations(), share in 0.0f64..=1.0) {
            let histogram = fixed(&values);
            values.sort_unstable();
            for share in [share, 0.5, 0.99, 0.0, 1.0] {
                let (found, true_one) = (histogram.quantile(share), exact(&values, share));
                prop_assert!((found - true_one).abs() <= true_one * 0.004 + 1e-9, "{share}: {found} for {true_one}");
            }
        }

        /// Within 0.4 % of the values, which may cancel out in part.
        #[test]
        fn deviation_is_that_of_the_values(values in durations()) {
            let found = fixed(&values).deviation();
            prop_assert_eq!(found.is_some(), values.len() > 1);
            let (count, all) = (values.len() as f64, || values.iter().map(|value| *value as f64));
            let mean = all().sum::<f64>() / count;
            let exact = (all().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0)).sqrt();
            let root = (all().map(|value| value.powi(2)).sum::<f64>() / (count - 1.0)).sqrt();
            prop_assert!(found.is_none_or(|found| (found - exact).abs() <= 0.004 * root + 1e-9), "{:?} {}", found, exact);
        }

        #[test]
        fn merges_do_not_depend_on_order_and_division(values in durations(), at in 0usize..400) {
            let (left, right) = values.split_at(at.min(values.len()));
            let reversed: Vec<u64> = right.iter().rev().copied().collect();
            let mut parts = fixed(&reversed);
            parts.merge(&fixed(left));
            prop_assert_eq!(fixed(&values), parts);
        }
    }

    #[test]
    fn extremes_have_buckets() {
        for value in [0, 1, 255, 256, 511, 512, u64::MAX] {
            let found = fixed(&[value]).quantile(0.5);
            assert!((found - value as f64).abs() <= value as f64 * 0.004, "{value}: {found}");
        }
        assert_eq!(fixed(&[0, 1, u64::MAX]).counts().len(), 64 * 128 + 1);
        assert_eq!(fixed(&[]).quantile(0.5), 0.0);
    }

    #[test]
    fn boundary_is_of_the_bucket_below() {
        for (value, scale, expected) in [
            (1.0, 0, -1),
            (2.0, 0, 0),
            (2.000001, 0, 1),
            (4.0, 0, 1),
            (1.0, 3, -1),
            (2.0, 3, 7),
            (1.5, 1, 1),
            (1.4, 1, 0),
            (1024.0, -2, 2),
            (1025.0, -2, 2),
            (0.5, 0, -2),
            (0.75, 0, -1),
            (1e-9, 7, -3827),
        ] {
            assert_eq!(index(value, scale), expected, "{value} at {scale}");
        }
        assert_eq!(index(1e-9, 7), ((1e-9f64.log2() * 128.0).ceil() as i32) - 1);
    }

    #[test]
    fn table_and_the_logarithm_agree() {
        for value in (1..200_000u64).map(|value| value as f64 * 1.37e-7) {
            let by_logarithm = (value.log2() * 128.0).ceil() as i32 - 1;
            assert_eq!(index(value, TABLE_SCALE), by_logarithm, "{value}");
        }
    }

    #[test]
    fn single_value_has_one_fine_bucket_and_taking_empties() {
        let mut histogram = of(&[5_000, 5_000], Unit::Seconds);
        assert_eq!((histogram.scale(), histogram.counts()), (SCALE_MAX, &[2][..]));
        let taken = histogram.take();
        assert_eq!((taken.count(), histogram.count(), histogram.counts().len()), (2, 0, 0));
    }
}
