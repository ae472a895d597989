//! When the allocations that are live at a process's end were made: whether a line still grew.

use super::held_memory::HeldMemory;

/// Fewer live allocations are no series.
const SERIES_MIN: u64 = 3;
const QUARTERS: usize = 4;

/// Live allocations by the quarter of time in which they were made. The time is that from the process's first
/// allocation to its end: what comes before (imports, loading a model's file) is of no account.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Growth([HeldMemory; QUARTERS]);

impl Growth {
    pub(super) fn made(&mut self, at_ns: u64, bytes: u64, [first_ns, end_ns]: [u64; 2]) {
        let whole = u128::from(end_ns.saturating_sub(first_ns)).max(1);
        let since = u128::from(at_ns.saturating_sub(first_ns));
        let quarter = usize::try_from(since * QUARTERS as u128 / whole).unwrap_or(QUARTERS);
        if let Some(held) = self.0.get_mut(quarter.min(QUARTERS - 1)) {
            held.add(HeldMemory::one(bytes));
        }
    }

    pub fn add(&mut self, other: Growth) {
        for (held, more) in self.0.iter_mut().zip(other.0) {
            held.add(more);
        }
    }

    /// Whether live memory grew up to the end: some was made in the third quarter and some in the last, three
    /// allocations in all. A cache that was filled at the beginning did not grow since.
    pub fn is_to_the_end(&self) -> bool {
        let [first, second, third, last] = self.0.map(|held| held.count);
        third > 0 && last > 0 && first + second + third + last >= SERIES_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grows(made: &[u64]) -> bool {
        let mut growth = Growth::default();
        made.iter().for_each(|at_ns| growth.made(*at_ns, 1, [100, 500]));
        growth.is_to_the_end()
    }

    #[test]
    fn growth_to_the_end_is_a_series_that_goes_on_in_both_last_quarters() {
        assert!(grows(&[100, 300, 400]) && grows(&[310, 320, 500]));
        assert!(!grows(&[100, 110, 120, 130, 199]), "a cache that was filled at the beginning");
        assert!(!grows(&[300, 400]), "two are no series");
        assert!(!grows(&[100, 250, 399]) && !grows(&[400, 450, 500]), "nothing in one of the last quarters");
        assert!(!grows(&[]));
    }

    #[test]
    fn times_outside_of_the_process_are_those_of_its_ends() {
        let mut growth = Growth::default();
        growth.made(0, 5, [100, 500]);
        growth.made(u64::MAX, 7, [100, 500]);
        growth.made(9, 1, [10, 10]);
        assert_eq!(growth.0.map(|held| held.bytes), [6, 0, 0, 7]);
    }
}
