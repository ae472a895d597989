//! The live bytes of a process or of a site over its life, in a fixed number of intervals.
//!
//! Intervals double in length when the time no longer fits, so a life of any length takes the same memory.

/// Intervals of a whole life; between half of them and all are in use.
pub const INTERVALS: usize = 32;
/// The length of an interval at first.
const SHORTEST_NS: u64 = 1 << 10;

/// The most bytes that were live in each interval since the process's first allocation.
#[derive(Clone, Debug)]
pub struct LiveBytes {
    interval_ns: u64,
    most: [u64; INTERVALS],
    /// The interval of the latest change.
    last: usize,
    now: u64,
}

impl Default for LiveBytes {
    fn default() -> Self {
        LiveBytes { interval_ns: SHORTEST_NS, most: [0; INTERVALS], last: 0, now: 0 }
    }
}

impl LiveBytes {
    /// So many bytes are live from that time on. Times do not decrease; an earlier one counts as the latest.
    pub(super) fn change(&mut self, since_ns: u64, bytes: u64) {
        self.reach(since_ns);
        self.now = bytes;
        if let Some(most) = self.most.get_mut(self.last) {
            *most = bytes.max(*most);
        }
    }

    /// Nothing changed until then.
    pub(super) fn reach(&mut self, since_ns: u64) {
        while since_ns / self.interval_ns >= INTERVALS as u64 {
            self.halve();
        }
        let interval = usize::try_from(since_ns / self.interval_ns).unwrap_or(self.last);
        if interval > self.last {
            let passed = self.most.get_mut(self.last + 1..=interval);
            passed.into_iter().flatten().for_each(|most| *most = self.now);
            self.last = interval;
        }
    }

    fn halve(&mut self) {
        let pairs: Vec<u64> =
            self.most.chunks(2).map(|pair| pair.iter().copied().max().unwrap_or(0)).collect();
        self.most = [0; INTERVALS];
        for (most, pair) in self.most.iter_mut().zip(pairs) {
            *most = pair;
        }
        self.last /= 2;
        self.interval_ns = self.interval_ns.saturating_mul(2);
    }

    /// The length of an interval, and the most bytes that were live in each, up to the latest change of
    /// `whole`, in intervals of its length.
    pub fn levels(&self, whole: &LiveBytes) -> (u64, Vec<u64>) {
        let mut own = self.clone();
        while own.interval_ns < whole.interval_ns {
            own.halve();
        }
        own.reach(whole.interval_ns.saturating_mul(whole.last as u64));
        (own.interval_ns, own.most.get(..=own.last).unwrap_or_default().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(timeline: &LiveBytes) -> (u64, Vec<u64>) {
        timeline.levels(timeline)
    }

    #[test]
    fn each_interval_has_the_most_that_was_live_in_it() {
        let mut timeline = LiveBytes::default();
        timeline.change(0, 10);
        timeline.change(10, 0);
        timeline.change(2 * SHORTEST_NS, 5);
        timeline.change(4 * SHORTEST_NS + 1, 7);
        timeline.change(4 * SHORTEST_NS, 2);
        timeline.reach(6 * SHORTEST_NS);
        assert_eq!(levels(&timeline), (SHORTEST_NS, vec![10, 0, 5, 5, 7, 2, 2]));
    }

    #[test]
    fn long_lives_have_longer_intervals() {
        let mut timeline = LiveBytes::default();
        for at in 0..1_000_000u64 {
            timeline.change(at * SHORTEST_NS, at + 1);
        }
        let (interval_ns, most) = levels(&timeline);
        assert_eq!((interval_ns, most.len()), (SHORTEST_NS << 15, 31));
        assert_eq!((most.first(), most.last()), (Some(&(1 << 15)), Some(&1_000_000)));
        assert!(most.is_sorted());
        timeline.reach(u64::MAX);
        assert_eq!(levels(&timeline).1.last(), Some(&1_000_000));
    }

    #[test]
    fn a_sites_intervals_are_those_of_its_process() {
        let (mut whole, mut site) = (LiveBytes::default(), LiveBytes::default());
        site.change(3 * SHORTEST_NS, 4);
        whole.change(3 * SHORTEST_NS, 4);
        whole.reach(64 * SHORTEST_NS);
        let (interval_ns, most) = site.levels(&whole);
        assert_eq!((interval_ns, most.len()), (4 * SHORTEST_NS, 17));
        assert!(most.iter().all(|bytes| *bytes == 4), "{most:?}");
    }
}
