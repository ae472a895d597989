//! How regularly something begins again and again: what steps are found by.

/// The times from one begin to the next. The begins come in order.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Rhythm {
    first_ns: u64,
    last_ns: u64,
    /// Of the times between, in ns².
    squares: f64,
    longest_ns: u64,
    /// When the longest time began.
    longest_from_ns: u64,
}

impl Rhythm {
    #[inline]
    pub(super) fn add(&mut self, start_ns: u64) {
        if self.last_ns == 0 {
            (self.first_ns, self.last_ns) = (start_ns, start_ns);
            return;
        }
        let between_ns = start_ns.saturating_sub(self.last_ns);
        self.squares += (between_ns as f64).powi(2);
        if between_ns > self.longest_ns {
            (self.longest_ns, self.longest_from_ns) = (between_ns, self.last_ns);
        }
        self.last_ns = self.last_ns.max(start_ns);
    }

    pub fn first_ns(&self) -> u64 {
        self.first_ns
    }

    pub fn span_ns(&self) -> u64 {
        self.last_ns - self.first_ns
    }

    /// Mean and standard deviation of the times between so many begins, without the longest: the first step
    /// often is one. `None` for fewer than four.
    pub fn usual(&self, begins: u64) -> Option<(f64, f64)> {
        let others = begins.checked_sub(2).filter(|others| *others >= 2)? as f64;
        let longest = self.longest_ns as f64;
        let mean = (self.span_ns() as f64 - longest) / others;
        let variance = (self.squares - longest.powi(2)) / others - mean.powi(2);
        Some((mean, variance.max(0.0).sqrt()))
    }

    /// The longest time between two begins, and when it began.
    pub fn longest(&self) -> (u64, u64) {
        (self.longest_ns, self.longest_from_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_times_are_those_but_the_longest() {
        let mut rhythm = Rhythm::default();
        for start_ns in [1_000, 9_000, 9_100, 9_220, 9_320, 9_440] {
            rhythm.add(start_ns);
        }
        assert_eq!((rhythm.first_ns(), rhythm.span_ns()), (1_000, 8_440));
        assert_eq!(rhythm.longest(), (8_000, 1_000));
        assert_eq!(rhythm.usual(6), Some((110.0, 10.0)));
        assert_eq!(rhythm.usual(3), None);
    }
}
