//! What each kernel usually takes, so that a time far from it is seen.
//!
//! Robust: the median of the latest times and their median distance from it, which a few odd ones
//! do not move. Bounded: so many kernels, and of each the latest times only.

use std::hash::Hash;

use rustc_hash::FxHashMap;

/// Histories kept; a kernel past them is not judged, which is counted.
const HISTORIES_MAX: usize = 1 << 13;
/// Times kept of each.
const LATEST: usize = 64;
/// The first times of each, which pay for loading, caches and clocks, and are no part of its history.
const WARM_UP: u8 = 3;
/// Times that a history needs before anything is judged by it.
const NEEDED: u8 = 16;
/// How many times come between two looks at the median.
const LOOK_EVERY: u8 = 8;
/// The standard deviation of a normal distribution over its median distance.
const SIGMA_BY_MAD: f64 = 1.4826;
/// Less than this, of the median or at all, is no anomaly however even the history is.
const LEAST_SHARE: f64 = 0.1;
const LEAST_NS: f64 = 2_000.0;

/// A time that is far from a kernel's history.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Anomaly {
    /// How far, in robust standard deviations.
    pub sigmas: f64,
    pub median_ns: f64,
}

#[derive(Debug)]
struct History {
    latest_ns: [f32; LATEST],
    /// How many of them there are, and where the next one goes.
    count: u8,
    next: u8,
    warm_up: u8,
    since_look: u8,
    median_ns: f32,
    sigma_ns: f32,
}

#[derive(Debug)]
pub struct Histories<K> {
    by_kernel: FxHashMap<K, History>,
    sigmas: f64,
    /// Times that were not judged because there were too many kernels.
    pub unjudged: u64,
}

impl<K: Hash + Eq> Histories<K> {
    /// What is slower than the median by so many standard deviations is an anomaly.
    pub fn new(sigmas: f64) -> Histories<K> {
        Histories { by_kernel: FxHashMap::default(), sigmas, unjudged: 0 }
    }

    /// Judges a time by those before it, then adds it to them.
    pub fn judge(&mut self, kernel: K, duration_ns: u64) -> Option<Anomaly> {
        if !self.by_kernel.contains_key(&kernel) && self.by_kernel.len() >= HISTORIES_MAX {
            self.unjudged += 1;
            return None;
        }
        let history = self.by_kernel.entry(kernel).or_insert_with(History::new);
        let judged = history.judge(duration_ns as f64, self.sigmas);
        history.add(duration_ns as f32);
        judged
    }
}

impl History {
    fn new() -> History {
        History {
            latest_ns: [0.0; LATEST],
            count: 0,
            next: 0,
            warm_up: WARM_UP,
            since_look: 0,
            median_ns: 0.0,
            sigma_ns: 0.0,
        }
    }

    fn judge(&self, duration_ns: f64, sigmas: f64) -> Option<Anomaly> {
        if self.count < NEEDED {
            return None;
        }
        let (median_ns, sigma_ns) = (f64::from(self.median_ns), f64::from(self.sigma_ns));
        let over_ns = duration_ns - median_ns;
        let least_ns = (sigmas * sigma_ns).max(median_ns * LEAST_SHARE).max(LEAST_NS);
        // A history without any spread would make every distance infinite.
        let sigmas = over_ns / sigma_ns.max(LEAST_NS / sigmas.max(1.0));
        (over_ns > least_ns).then_some(Anomaly { sigmas, median_ns })
    }

    fn add(&mut self, duration_ns: f32) {
        if self.warm_up > 0 {
            self.warm_up -= 1;
            return;
        }
        if let Some(place) = self.latest_ns.get_mut(usize::from(self.next)) {
            *place = duration_ns;
        }
        self.next = (self.next + 1) % LATEST as u8;
        self.count = (self.count + 1).min(LATEST as u8);
        self.since_look += 1;
        if self.since_look >= LOOK_EVERY {
            self.since_look = 0;
            self.look();
        }
    }

    fn look(&mut self) {
        let mut sorted = self.latest_ns;
        let Some(known) = sorted.get_mut(..usize::from(self.count)) else { return };
        self.median_ns = median(known);
        for time in known.iter_mut() {
            *time = (*time - self.median_ns).abs();
        }
        self.sigma_ns = median(known) * SIGMA_BY_MAD as f32;
    }
}

fn median(times: &mut [f32]) -> f32 {
    let middle = times.len() / 2;
    if times.is_empty() { 0.0 } else { *times.select_nth_unstable_by(middle, f32::total_cmp).1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times around 100 µs, within 1 µs.
    fn usual(at: u64) -> u64 {
        100_000 + at * 7919 % 2_000 - 1_000
    }

    #[test]
    fn what_is_far_from_its_own_history_is_an_anomaly() {
        let mut histories = Histories::new(2.0);
        // The first ones are slow, and none of the history's.
        for _ in 0..WARM_UP {
            assert_eq!(histories.judge("a", 5_000_000), None);
        }
        for at in 0..200 {
            assert_eq!(histories.judge("a", usual(at)), None, "{at}");
        }
        let anomaly = histories.judge("a", 150_000).unwrap();
        assert!(anomaly.sigmas > 2.0, "{anomaly:?}");
        assert!((99_000.0..101_000.0).contains(&anomaly.median_ns), "{anomaly:?}");
        assert_eq!(histories.judge("a", usual(1)), None);
        assert_eq!(histories.judge("a", 104_000), None, "not a tenth of the median");
        assert_eq!(histories.judge("b", 150_000), None, "another kernel has another history");
    }

    #[test]
    fn a_history_follows_what_changes_for_good() {
        let mut histories = Histories::new(2.0);
        (0..100).for_each(|at| _ = histories.judge("a", usual(at)));
        let anomalies = (0..200).filter(|_| histories.judge("a", 200_000).is_some()).count();
        assert!((20..=48).contains(&anomalies), "{anomalies}");
    }

    #[test]
    fn a_few_odd_times_do_not_hide_the_next() {
        let mut histories = Histories::new(2.0);
        for at in 0..300 {
            let odd = at % 4 == 0;
            let judged = histories.judge("a", if odd { 900_000 } else { usual(at) });
            assert_eq!(judged.is_some(), odd && at >= 19, "{at}");
        }
    }

    #[test]
    fn histories_are_so_many_and_no_more() {
        let mut histories = Histories::new(2.0);
        for kernel in 0..HISTORIES_MAX + 5 {
            histories.judge(kernel, 100);
        }
        assert_eq!((histories.by_kernel.len(), histories.unjudged), (HISTORIES_MAX, 5));
    }
}
