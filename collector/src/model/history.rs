//! The usual duration of each kernel, so that outliers are found.
//!
//! An outlier is far from the median of the latest durations, measured by their median absolute deviation
//! (MAD); a few outliers do not move either. Memory is bounded: a limited number of kernels, and only the
//! latest durations of each. Each operation is judged once, before the sinks, so that spans and the report
//! agree.

use std::hash::Hasher;

use rustc_hash::{FxHashMap, FxHasher};

use crate::model::operation::{Anomaly, Kernel, Verdict};

/// The most histories of a process. Runs of further kernels are not judged, and counted.
const HISTORIES_MAX: usize = 1 << 13;
/// The number of durations that a history keeps.
const KEPT_MAX: u8 = 64;
/// The first runs of a kernel are left out: they include loading, cold caches and low clocks.
const WARM_UP: u8 = 3;
/// The number of durations that a history needs before it judges any.
const JUDGED_FROM: u8 = 16;
/// If more than this many of the kept durations lie on one side of the median, it is computed again.
/// Computing it costs a hundred times what this count does.
const ONE_SIDED: u8 = 48;
/// The median is computed again at once after this many outliers.
const OUTLIERS_MAX: u8 = 8;
/// An outlier is this many standard deviations above the median.
const SIGMAS: f64 = 2.0;
/// The standard deviation of a normal distribution, divided by its MAD.
const SIGMA_BY_MAD: f64 = 1.4826;
/// An outlier is also longer than the median by at least this share and this time, however even the history
/// is.
const LEAST_SHARE: f64 = 0.1;
const LEAST_NS: f64 = 2_000.0;

/// The key of a history: a hash of a kernel and the shape of its launch, so that each launch touches little
/// memory. Two with the same hash would share a history, which is next to impossible.
fn shape(kernel: &Kernel) -> u64 {
    let two = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let ([gx, gy, gz], [bx, by, bz]) = (kernel.grid, kernel.block);
    let mut hasher = FxHasher::default();
    for word in [two(kernel.name, kernel.dynamic_shared_bytes), two(gx, gy), two(gz, bx), two(by, bz)] {
        hasher.write_u64(word);
    }
    hasher.finish()
}

/// The statistics of a kernel's durations, kept apart from the durations: half a cache line with the key.
#[derive(Debug)]
struct History {
    median_ns: f32,
    /// Half the durations are nearer to the median than this.
    mad_ns: f32,
    /// Longer durations are outliers; infinite as long as nothing is judged.
    outlier_above_ns: f32,
    /// Index into [`Histories::times`].
    times: u16,
    /// Where the next duration is stored.
    next: u8,
    /// Durations there were when the median was last computed, durations since then, outliers among these,
    /// and after how many durations it is computed again.
    computed_over: u8,
    since_computed: u8,
    outliers: u8,
    due: u8,
    warm_up: u8,
}

const _: () = assert!(size_of::<(u64, History)>() <= 32 && HISTORIES_MAX <= 1 << 16);

/// The latest durations of a kernel, each to within 0.05 %.
type Times = [Time; KEPT_MAX as usize];

/// A duration from 1 ns to 2^64 ns: the upper bits of a float whose exponent begins at 0.
#[derive(Clone, Copy, Debug, Default)]
struct Time(u16);

impl Time {
    const SHIFT: u32 = 13;
    const FIRST: u32 = 1.0f32.to_bits() >> Time::SHIFT;

    #[inline]
    fn new(ns: f32) -> Time {
        let rounded = (ns.to_bits() + (1 << (Time::SHIFT - 1))) >> Time::SHIFT;
        Time(u16::try_from(rounded.saturating_sub(Time::FIRST)).unwrap_or(u16::MAX))
    }

    fn ns(self) -> f32 {
        f32::from_bits((u32::from(self.0) + Time::FIRST) << Time::SHIFT)
    }
}

/// The histories of a process's kernels.
#[derive(Debug, Default)]
pub(super) struct Histories {
    all: FxHashMap<u64, History>,
    times: Vec<Times>,
}

impl Histories {
    /// Judges a duration by the earlier ones, then adds it to them.
    #[inline]
    pub fn judge(&mut self, kernel: &Kernel, duration_ns: u64) -> Verdict {
        let shape = shape(kernel);
        if let Some(history) = self.all.get_mut(&shape) {
            let Some(times) = self.times.get_mut(usize::from(history.times)) else { return Verdict::None };
            return history.judge(duration_ns as f32, times);
        }
        self.judge_first(shape, duration_ns)
    }

    /// The longest of the latest durations of a kernel in that launch shape, if there are enough.
    pub fn longest_ns(&self, kernel: &Kernel) -> Option<u64> {
        let history = self.all.get(&shape(kernel)).filter(|history| history.computed_over >= JUDGED_FROM)?;
        let times = self.times.get(usize::from(history.times))?;
        times.iter().map(|time| time.ns().ceil() as u64).max()
    }

    #[cold]
    #[inline(never)]
    fn judge_first(&mut self, shape: u64, duration_ns: u64) -> Verdict {
        let index = self.times.len();
        let Some(times) = u16::try_from(index).ok().filter(|_| index < HISTORIES_MAX) else {
            return Verdict::Unjudged;
        };
        let mut first = [Time::default(); KEPT_MAX as usize];
        let mut history = History::new(times);
        let verdict = history.judge(duration_ns as f32, &mut first);
        self.times.push(first);
        self.all.insert(shape, history);
        verdict
    }
}

impl History {
    fn new(times: u16) -> History {
        History {
            median_ns: 0.0,
            mad_ns: 0.0,
            outlier_above_ns: f32::INFINITY,
            times,
            next: 0,
            computed_over: 0,
            since_computed: 0,
            outliers: 0,
            due: JUDGED_FROM,
            warm_up: WARM_UP,
        }
    }

    #[inline]
    fn judge(&mut self, duration_ns: f32, times: &mut Times) -> Verdict {
        let judged =
            if duration_ns > self.outlier_above_ns { self.outlier(duration_ns) } else { Verdict::Usual };
        self.add(duration_ns, times);
        judged
    }

    #[cold]
    fn outlier(&mut self, duration_ns: f32) -> Verdict {
        self.outliers += 1;
        let median_ns = f64::from(self.median_ns);
        // Without the minimum, a history without any spread would make every distance infinite.
        let sigma_ns = (f64::from(self.mad_ns) * SIGMA_BY_MAD).max(LEAST_NS / SIGMAS);
        Verdict::Outlier(Anomaly { sigmas: (f64::from(duration_ns) - median_ns) / sigma_ns, median_ns })
    }

    #[inline]
    fn add(&mut self, duration_ns: f32, times: &mut Times) {
        if self.warm_up > 0 {
            self.warm_up -= 1;
            return;
        }
        if let Some(index) = times.get_mut(usize::from(self.next)) {
            *index = Time::new(duration_ns);
        }
        self.next = (self.next + 1) % KEPT_MAX;
        self.since_computed += 1;
        if self.since_computed >= self.due || self.outliers >= OUTLIERS_MAX {
            self.recompute(times);
        }
    }

    /// Whether so many durations lie on one side of the median, or of the MAD, that both must have changed.
    fn is_one_sided(&self, times: &Times) -> bool {
        let share = |lies: &dyn Fn(f32) -> bool| times.iter().filter(|time| lies(time.ns())).count();
        let (median_ns, mad_ns) = (self.median_ns, self.mad_ns);
        let shares = [
            share(&|ns| ns > median_ns),
            share(&|ns| ns < median_ns),
            share(&|ns| (ns - median_ns).abs() > mad_ns),
            share(&|ns| (ns - median_ns).abs() < mad_ns),
        ];
        shares.into_iter().any(|share| share > usize::from(ONE_SIDED))
    }

    /// Computes the median again, unless the kept durations still agree with it.
    #[inline(never)]
    fn recompute(&mut self, times: &Times) {
        let is_settled =
            self.computed_over == KEPT_MAX && self.outliers < OUTLIERS_MAX && !self.is_one_sided(times);
        self.computed_over = (self.computed_over + self.since_computed).min(KEPT_MAX);
        (self.since_computed, self.outliers, self.due) = (0, 0, KEPT_MAX);
        if is_settled {
            return;
        }
        let mut sorted = times.map(Time::ns);
        let Some(known) = sorted.get_mut(..usize::from(self.computed_over)) else { return };
        self.median_ns = median(known);
        for time in known.iter_mut() {
            *time = (*time - self.median_ns).abs();
        }
        self.mad_ns = median(known);
        let (median_ns, mad_ns) = (f64::from(self.median_ns), f64::from(self.mad_ns));
        let least_ns = (SIGMAS * SIGMA_BY_MAD * mad_ns).max(median_ns * LEAST_SHARE).max(LEAST_NS);
        self.outlier_above_ns = (median_ns + least_ns) as f32;
    }
}

fn median(times: &mut [f32]) -> f32 {
    let middle = times.len() / 2;
    if times.is_empty() { 0.0 } else { *times.select_nth_unstable_by(middle, f32::total_cmp).1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(name: u32) -> Kernel {
        Kernel { name, grid: [8, 1, 1], block: [128, 1, 1], ..Kernel::default() }
    }

    impl Histories {
        fn anomaly(&mut self, name: u32, duration_ns: u64) -> Option<Anomaly> {
            self.judge(&kernel(name), duration_ns).anomaly()
        }
    }

    /// Times around 100 µs, within 1 µs.
    fn usual(at: u64) -> u64 {
        100_000 + at * 7919 % 2_000 - 1_000
    }

    #[test]
    fn durations_far_from_their_history_are_outliers() {
        let mut histories = Histories::default();
        // The first runs are slow and no part of the history.
        for _ in 0..WARM_UP {
            assert_eq!(histories.anomaly(1, 5_000_000), None);
        }
        for at in 0..200 {
            assert_eq!(histories.anomaly(1, usual(at)), None, "{at}");
        }
        let anomaly = histories.anomaly(1, 150_000).unwrap();
        assert!(anomaly.sigmas > 2.0, "{anomaly:?}");
        assert!((99_000.0..101_000.0).contains(&anomaly.median_ns), "{anomaly:?}");
        assert_eq!(histories.anomaly(1, usual(1)), None);
        assert_eq!(histories.anomaly(1, 104_000), None, "not a tenth of the median");
        assert_eq!(histories.anomaly(2, 150_000), None, "another kernel has another history");
    }

    #[test]
    fn history_follows_what_changes_for_good() {
        // At any point between two computations of the median.
        for before in 100..180 {
            let mut histories = Histories::default();
            (0..before).for_each(|at| _ = histories.anomaly(1, usual(at)));
            let anomalies = (0..200).filter(|_| histories.anomaly(1, 200_000).is_some()).count();
            assert!((20..=41).contains(&anomalies), "{before}: {anomalies}");
        }
    }

    #[test]
    fn few_outliers_do_not_hide_the_next() {
        let mut histories = Histories::default();
        for at in 0..300 {
            let outliers = at % 4 == 0;
            let judged = histories.anomaly(1, if outliers { 900_000 } else { usual(at) });
            assert_eq!(judged.is_some(), outliers && at >= 19, "{at}");
        }
    }

    #[test]
    fn history_that_is_settled_is_not_looked_at_but_followed_when_it_moves() {
        let (mut history, mut times) = (History::new(0), [Time::default(); KEPT_MAX as usize]);
        (0..200).for_each(|at| _ = history.judge(usual(at) as f32, &mut times));
        // Slowly and without outliers: by a hundredth each hundred runs.
        for step in 0..60u64 {
            for at in 0..100 {
                let time = usual(at) + step * 1_000;
                assert_eq!(history.judge(time as f32, &mut times), Verdict::Usual, "{step} {at}");
            }
        }
        assert!((155_000.0..162_000.0).contains(&history.median_ns), "{}", history.median_ns);
        // Equal durations, as coarse clocks give, do not make the median be computed again.
        let mut even = History::new(0);
        (0..200).for_each(|_| _ = even.judge(5_000.0, &mut times));
        assert!(!even.is_one_sided(&times));
        assert!(matches!(even.judge(7_500.0, &mut times), Verdict::Outlier(_)));
    }

    #[test]
    fn times_are_kept_to_within_a_two_thousandth() {
        for ns in [1.0f32, 2.0, 1_999.0, 30_050.0, 123_456_789.0, 3.6e12, 1e19] {
            let kept = Time::new(ns).ns();
            assert!((kept - ns).abs() <= ns / 2_000.0, "{ns} {kept}");
        }
        assert_eq!((Time::new(0.0).ns(), Time::new(f32::MAX).0), (1.0, u16::MAX));
    }

    #[test]
    fn shapes_of_one_kernel_have_histories_of_their_own() {
        let mut histories = Histories::default();
        for at in 0..100 {
            histories.judge(&kernel(1), usual(at));
            histories.judge(&Kernel { grid: [99, 1, 1], ..kernel(1) }, 10 * usual(at));
        }
        assert_eq!(histories.judge(&Kernel { grid: [99, 1, 1], ..kernel(1) }, 1_000_000), Verdict::Usual);
        assert!(matches!(histories.judge(&kernel(1), 1_000_000), Verdict::Outlier(_)));
    }

    #[test]
    fn histories_are_so_many_and_no_more() {
        let mut histories = Histories::default();
        let unjudged = (0..HISTORIES_MAX as u32 + 5)
            .filter(|name| histories.judge(&kernel(*name), 100) == Verdict::Unjudged)
            .count();
        assert_eq!((histories.all.len(), histories.times.len(), unjudged), (HISTORIES_MAX, HISTORIES_MAX, 5));
    }
}
