//! What becomes a span of its own accord; the rest is in the report's counts and histograms.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sampling {
    /// What takes at least this long is slow, and a span.
    pub threshold_ns: u64,
    /// Whether all that is shorter is one as well.
    pub all: bool,
    /// How many a process may have a second by being slow; the slowest win.
    pub rate: Option<usize>,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling { threshold_ns: 100_000, all: false, rate: Some(10_000) }
    }
}

impl Sampling {
    pub fn is_slow(&self, duration_ns: u64) -> bool {
        duration_ns >= self.threshold_ns
    }

    pub fn is_candidate(&self, duration_ns: u64) -> bool {
        self.all || self.is_slow(duration_ns)
    }
}
