//! An exponential histogram by OpenTelemetry's data model: buckets of base 2^(2^-scale), at most 160 of
//! them, at the finest scale at which all values fit. A value on a boundary is of the bucket below it.

use std::sync::LazyLock;

/// As OpenTelemetry's SDKs have it.
pub const BUCKETS_MAX: usize = 160;
const SCALE_MAX: i32 = 20;
const SCALE_MIN: i32 = -10;

/// Up to this scale buckets are found in a table, beyond it by a logarithm.
const TABLE_SCALE: i32 = 7;
const TABLE: usize = 1 << TABLE_SCALE;
const MANTISSA_BITS: u32 = 52;
const MANTISSA: u64 = (1 << MANTISSA_BITS) - 1;

/// Where a power of two is divided at that scale, as mantissas; and by a mantissa's first bits, how many of
/// these lie below all that begin so.
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

/// What is measured in whole units of one kind is told in another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Unit {
    /// Nanoseconds, told in seconds.
    #[default]
    Seconds,
    Bytes,
}

impl Unit {
    pub fn told(self, value: u64) -> f64 {
        match self {
            Unit::Seconds => value as f64 / 1e9,
            Unit::Bytes => value as f64,
        }
    }
}

/// Count, sum and extremes are exact.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Histogram {
    unit: Unit,
    scale: i32,
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
        Histogram {
            unit,
            scale: SCALE_MAX,
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
        let index = index(self.unit.told(value), self.scale);
        let place = i64::from(index) - i64::from(self.first);
        match usize::try_from(place).ok().and_then(|place| self.counts.get_mut(place)) {
            Some(count) => *count += 1,
            None => self.add_outside(index, 1),
        }
    }

    /// To a bucket that there is not yet.
    #[cold]
    fn add_outside(&mut self, mut index: i32, count: u64) {
        if self.counts.is_empty() {
            self.first = index;
        }
        loop {
            let last = self.first.saturating_add(self.counts.len().max(1) as i32 - 1);
            let span = i64::from(last.max(index)) - i64::from(self.first.min(index));
            if span < BUCKETS_MAX as i64 || self.scale <= SCALE_MIN {
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
        let place = (index - self.first) as usize;
        if place >= self.counts.len() {
            self.counts.resize(place + 1, 0);
        }
        if let Some(held) = self.counts.get_mut(place) {
            *held += count;
        }
    }

    /// Two buckets become one.
    fn coarsen(&mut self) {
        let first = self.first >> 1;
        let mut merged: Vec<u64> = Vec::new();
        for (place, count) in self.counts.iter().enumerate() {
            let to = ((self.first + place as i32) >> 1) - first;
            merged.resize(to as usize + 1, 0);
            if let Some(held) = merged.last_mut() {
                *held += count;
            }
        }
        (self.first, self.counts) = (first, merged);
        self.scale -= 1;
    }

    /// Takes in another's values.
    pub fn merge(&mut self, other: &Histogram) {
        if other.count == 0 {
            return;
        }
        let mut other = other.clone();
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.zeroes += other.zeroes;
        while other.scale > self.scale {
            other.coarsen();
        }
        while self.scale > other.scale {
            self.coarsen();
        }
        let (scale, first) = (other.scale, other.first);
        for (place, count) in other.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            // Taking in one bucket may have made this one coarser.
            let index = (first + place as i32) >> (scale - self.scale);
            let at = i64::from(index) - i64::from(self.first);
            match usize::try_from(at).ok().and_then(|at| self.counts.get_mut(at)) {
                Some(held) => *held += count,
                None => self.add_outside(index, *count),
            }
        }
    }

    /// All it holds; it is empty afterwards.
    pub fn take(&mut self) -> Histogram {
        std::mem::replace(self, Histogram::new(self.unit))
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
    let mut below = usize::from(first.get(begin).copied().unwrap_or(0));
    while bounds.get(below).is_some_and(|bound| *bound < mantissa) {
        below += 1;
    }
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
        fn each_value_is_in_its_bucket_and_the_scale_is_the_finest(
            mut values in prop::collection::vec(value(), 1..400),
            bytes: bool,
        ) {
            let unit = if bytes { Unit::Bytes } else { Unit::Seconds };
            let histogram = of(&values, unit);
            values.sort_unstable();
            prop_assert_eq!((histogram.min(), histogram.max()), (values[0], *values.last().unwrap()));
            prop_assert_eq!(histogram.sum(), values.iter().fold(0u64, |sum, value| sum.saturating_add(*value)));
            prop_assert!(histogram.counts().len() <= BUCKETS_MAX);
            let zeroes = values.iter().filter(|value| **value == 0).count();
            prop_assert_eq!(histogram.zeroes(), zeroes as u64);
            let buckets: u64 = histogram.counts().iter().sum();
            prop_assert_eq!(buckets + histogram.zeroes(), values.len() as u64);
            // A plain sort has them in the same buckets, in order.
            let positive = &values[zeroes..];
            let mut at = 0;
            for (place, count) in histogram.counts().iter().enumerate() {
                let index = histogram.first() + place as i32;
                let (low, high) = (bound(index - 1, histogram.scale()), bound(index, histogram.scale()));
                for value in &positive[at..at + *count as usize] {
                    let told = unit.told(*value);
                    prop_assert!(
                        told > low * (1.0 - 1e-12) && told <= high * (1.0 + 1e-12),
                        "{} not in ({}, {}]", told, low, high
                    );
                }
                at += *count as usize;
            }
            if let (Some(least), Some(most)) = (positive.first(), positive.last()) {
                let finer = histogram.scale() + 1;
                let [least, most] = [least, most].map(|value| unit.told(*value).log2() * 2f64.powi(finer));
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

    #[test]
    fn a_boundary_is_of_the_bucket_below() {
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
    fn the_table_and_the_logarithm_agree() {
        for value in (1..200_000u64).map(|value| value as f64 * 1.37e-7) {
            let by_logarithm = (value.log2() * 128.0).ceil() as i32 - 1;
            assert_eq!(index(value, TABLE_SCALE), by_logarithm, "{value}");
        }
    }

    #[test]
    fn one_value_has_one_fine_bucket_and_taking_empties() {
        let mut histogram = of(&[5_000, 5_000], Unit::Seconds);
        assert_eq!((histogram.scale(), histogram.counts()), (SCALE_MAX, &[2][..]));
        let taken = histogram.take();
        assert_eq!((taken.count(), histogram.count(), histogram.counts().len()), (2, 0, 0));
    }
}
