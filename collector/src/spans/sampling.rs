//! The options that decide which operations become spans. Operations without a span are
//! still counted in the report and in metrics.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sampling {
    /// Operations that take at least this long are slow, and candidates for spans.
    pub threshold_ns: u64,
    /// Whether shorter operations are candidates too.
    pub all: bool,
    /// The most spans of a process in a second; the slowest candidates are chosen.
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
