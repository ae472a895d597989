//! A sketch of a distribution: quantiles within 0.4 % of the true ones, whatever the order of
//! the values, mergeable without further error.
//!
//! Buckets are linear within each power of two. Numbers below 256 have a bucket of their own.

/// Buckets a power of two, as a power of two: 128, so a bucket is at most 0.8 % wide.
const BITS: u32 = 7;
const PER_OCTAVE: u64 = 1 << BITS;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sketch {
    /// Index of the bucket that `counts` begins with.
    first: usize,
    counts: Vec<u32>,
    count: u64,
}

impl Sketch {
    #[inline]
    pub fn add(&mut self, value: u64) {
        self.add_many(bucket(value), 1);
    }

    pub fn merge(&mut self, other: &Sketch) {
        for (place, count) in other.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            self.add_many(other.first + place, *count);
        }
    }

    #[inline]
    fn add_many(&mut self, bucket: usize, count: u32) {
        if self.counts.is_empty() {
            self.first = bucket;
        }
        if bucket < self.first {
            let missing = self.first - bucket;
            self.counts.splice(0..0, std::iter::repeat_n(0, missing));
            self.first = bucket;
        }
        let place = bucket - self.first;
        if place >= self.counts.len() {
            self.counts.resize(place + 1, 0);
        }
        self.count += u64::from(count);
        if let Some(held) = self.counts.get_mut(place) {
            *held = held.saturating_add(count);
        }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// The quantile at `share` (0 to 1) by linear interpolation between neighbouring ranks, as
    /// numpy and spreadsheets have it. 0 without values.
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

    /// About the value of that rank, counted from 0.
    fn at_rank(&self, rank: u64) -> f64 {
        let mut seen = 0;
        for (place, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen > rank {
                return middle(self.first + place);
            }
        }
        middle(self.first + self.counts.len().saturating_sub(1))
    }
}

#[inline]
fn bucket(value: u64) -> usize {
    let octave = value.checked_ilog2().unwrap_or(0).saturating_sub(BITS);
    // In the first octaves the value is its own index; later ones follow on without a gap.
    (u64::from(octave) * PER_OCTAVE + (value >> octave)) as usize
}

/// The middle of a bucket's values.
fn middle(bucket: usize) -> f64 {
    let octave = (bucket as u64 / PER_OCTAVE).saturating_sub(1);
    let low = (bucket as u64 - octave * PER_OCTAVE) << octave;
    let width = 1u64 << octave;
    low as f64 + (width - 1) as f64 / 2.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition, on the values themselves.
    fn exact(sorted: &[u64], share: f64) -> f64 {
        let rank = (sorted.len() - 1) as f64 * share;
        let low = sorted[rank.floor() as usize] as f64;
        low + (sorted[rank.ceil() as usize] as f64 - low) * rank.fract()
    }

    fn durations() -> impl Strategy<Value = Vec<u64>> {
        let any_scale = (0u32..62, 0u64..1 << 20).prop_map(|(shift, value)| (value << shift) >> 20);
        let microseconds = 500u64..50_000;
        prop::collection::vec(prop_oneof![any_scale, microseconds], 1..400)
    }

    proptest! {
        #[test]
        fn quantiles_are_within_one_percent(mut values in durations(), share in 0.0f64..=1.0) {
            let mut sketch = Sketch::default();
            values.iter().for_each(|value| sketch.add(*value));
            values.sort_unstable();
            for share in [share, 0.5, 0.99, 0.0, 1.0] {
                let (found, true_one) = (sketch.quantile(share), exact(&values, share));
                prop_assert!((found - true_one).abs() <= true_one * 0.004 + 1e-9, "{share}: {found} for {true_one}");
            }
        }

        #[test]
        fn order_and_division_do_not_matter(values in durations(), at in 0usize..400) {
            let mut whole = Sketch::default();
            values.iter().for_each(|value| whole.add(*value));
            let (left, right) = values.split_at(at.min(values.len()));
            let mut parts = Sketch::default();
            right.iter().rev().for_each(|value| parts.add(*value));
            let mut other = Sketch::default();
            left.iter().for_each(|value| other.add(*value));
            parts.merge(&other);
            prop_assert_eq!(whole, parts);
        }
    }

    #[test]
    fn extremes_have_buckets() {
        for value in [0, 1, 255, 256, 511, 512, u64::MAX] {
            let mut sketch = Sketch::default();
            sketch.add(value);
            let found = sketch.quantile(0.5);
            assert!((found - value as f64).abs() <= value as f64 * 0.004, "{value}: {found}");
        }
        assert!(bucket(u64::MAX) < 64 << BITS);
        assert_eq!(Sketch::default().quantile(0.5), 0.0);
    }
}
