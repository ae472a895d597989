//! A histogram of sizes by powers of two.

const BUCKETS: usize = 65;

/// How many allocations have a size of 2^n bytes up to the next power.
#[derive(Clone, Debug)]
pub struct Sizes([u64; BUCKETS]);

impl Default for Sizes {
    fn default() -> Self {
        Sizes([0; BUCKETS])
    }
}

impl Sizes {
    pub(super) fn add(&mut self, bytes: u64) {
        let bucket = bytes.checked_ilog2().map_or(0, |power| power as usize + 1);
        if let Some(count) = self.0.get_mut(bucket) {
            *count += 1;
        }
    }

    /// The least size of each bucket that has allocations, and their number.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        let least = |bucket: usize| if bucket == 0 { 0 } else { 1 << (bucket - 1) };
        self.0.iter().enumerate().filter(|(_, count)| **count > 0).map(move |(at, count)| (least(at), *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_fall_into_the_power_of_two_below_them() {
        let mut sizes = Sizes::default();
        for bytes in [0, 1, 2, 3, 4, 1 << 20, (1 << 21) - 1, u64::MAX] {
            sizes.add(bytes);
        }
        let found: Vec<_> = sizes.iter().collect();
        assert_eq!(found, [(0, 1), (1, 1), (2, 2), (4, 1), (1 << 20, 2), (1 << 63, 1)]);
    }
}
