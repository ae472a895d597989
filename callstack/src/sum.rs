//! A sum over the frames of a stack, in which their order counts, and to which frames can be added at either
//! end.
//!
//! It is the value of a polynomial: the innermost frame's term, plus the next one's times an odd number, plus
//! the next one's times its square, and so on. Walks add frames from the innermost out. Where the outer
//! frames are those of the last walk, their sum is known, and the inner frames are added to it.
//!
//! Terms are products of 128 bits folded, in which every bit depends on all bits of what a frame is. Two
//! stacks that differ in one term have different sums, since powers of an odd number are odd; stacks that
//! differ in several have equal sums only by chance, of 2^-64. If two frames change places that are 2^n
//! apart, it is 2^-(62-n).

const MULTIPLIER: u64 = 0x9fb2_1c65_1e98_df25;

#[derive(Clone, Copy)]
pub(crate) struct Sum {
    pub sum: u64,
    /// What the next frame's term is multiplied by.
    power: u64,
}

impl Default for Sum {
    fn default() -> Sum {
        Sum { sum: 0, power: 1 }
    }
}

impl Sum {
    /// Adds the next frame outward.
    #[inline(always)]
    pub fn add_outer(&mut self, term: u64) {
        self.sum = self.sum.wrapping_add(term.wrapping_mul(self.power));
        self.power = self.power.wrapping_mul(MULTIPLIER);
    }

    /// The sum of frames and of one more inside them.
    #[inline(always)]
    pub fn with_inner(outer: u64, term: u64) -> u64 {
        outer.wrapping_mul(MULTIPLIER).wrapping_add(term)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_is_the_same_from_either_end() {
        let terms = [3, 1 << 63, 5, 5, u64::MAX, 7];
        let mut from_inside = Sum::default();
        terms.into_iter().for_each(|term| from_inside.add_outer(term));
        let from_outside = terms.into_iter().rev().fold(0, Sum::with_inner);
        assert_eq!(from_inside.sum, from_outside);
    }
}
