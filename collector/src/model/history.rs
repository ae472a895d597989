//! What each kernel usually takes, so that a time far from it is seen.
//!
//! Robust: the median of the latest times and their median distance from it, which a few odd ones
//! do not move. Bounded: so many kernels, and of each the latest times only. Worked out once, on the way to the
//! sinks: spans and the report say the same.

use rustc_hash::FxHashMap;

use crate::model::operation::Kernel;

/// Histories kept of a process; a kernel past them is not judged, which is counted.
const HISTORIES_MAX: usize = 1 << 13;
/// Times kept of each.
const LATEST: u8 = 64;
/// The first times of each, which pay for loading, caches and clocks, and are no part of its history.
const WARM_UP: u8 = 3;
/// Times that a history needs before anything is judged by it.
const NEEDED: u8 = 16;
/// How far the shares on both sides of the median, of as many times as are kept, may be apart until it is looked at anew: a
/// look costs a hundred times what counting does.
const ASTRAY: u8 = 48;
/// Odd times after which it is, at once.
const ODD_MAX: u8 = 8;
/// How many standard deviations from the median are odd.
const SIGMAS: f64 = 2.0;
/// The standard deviation of a normal distribution over its median distance.
const SIGMA_BY_MAD: f64 = 1.4826;
/// Less than this, of the median or at all, is no anomaly however even the history is.
const LEAST_SHARE: f64 = 0.1;
const LEAST_NS: f64 = 2_000.0;

/// What a kernel's time is among those before it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Verdict {
    /// Not a kernel's time, or nobody wants to know.
    #[default]
    None,
    Usual,
    /// There are too many kernels to have a history of each.
    Unjudged,
    Odd(Anomaly),
}

/// A time that is far from a kernel's history.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Anomaly {
    /// How far, in robust standard deviations.
    pub sigmas: f64,
    pub median_ns: f64,
}

impl Verdict {
    pub fn anomaly(self) -> Option<Anomaly> {
        match self {
            Verdict::Odd(anomaly) => Some(anomaly),
            _ => None,
        }
    }
}

/// A kernel and the shape of its launch: what a history is of. In words, which are hashed faster than sides.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Shape([u64; 4]);

impl Shape {
    fn of(kernel: &Kernel) -> Shape {
        let two = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let ([gx, gy, gz], [bx, by, bz]) = (kernel.grid, kernel.block);
        Shape([two(kernel.name, kernel.dynamic_shared_bytes), two(gx, gy), two(gz, bx), two(by, bz)])
    }
}

#[derive(Debug)]
struct History {
    median_ns: f32,
    /// Half the times are nearer to the median than this.
    mad_ns: f32,
    /// What is over it is odd; infinite as long as nothing is judged.
    odd_from_ns: f32,
    /// How many times there are, and where the next one goes.
    count: u8,
    next: u8,
    warm_up: u8,
    /// Of the times since the last look: how many they are, and how many lie where.
    since_look: u8,
    over: u8,
    under: u8,
    far: u8,
    near: u8,
    odd: u8,
    /// How many times the last look was at.
    looked_at: u8,
    latest_ns: [f32; LATEST as usize],
}

/// The histories of a process's kernels.
#[derive(Debug, Default)]
pub(super) struct Histories {
    places: FxHashMap<Shape, u32>,
    all: Vec<History>,
}

impl Histories {
    /// Judges a time by those before it, then adds it to them.
    #[inline]
    pub fn judge(&mut self, kernel: &Kernel, duration_ns: u64) -> Verdict {
        let shape = Shape::of(kernel);
        let place = match self.places.get(&shape) {
            Some(place) => *place,
            None if self.all.len() >= HISTORIES_MAX => return Verdict::Unjudged,
            None => {
                let place = self.all.len() as u32;
                self.places.insert(shape, place);
                self.all.push(History::new());
                place
            }
        };
        self.all.get_mut(place as usize).map_or(Verdict::None, |history| history.judge(duration_ns as f32))
    }
}

impl History {
    fn new() -> History {
        History {
            median_ns: 0.0,
            mad_ns: 0.0,
            odd_from_ns: f32::INFINITY,
            count: 0,
            next: 0,
            warm_up: WARM_UP,
            since_look: 0,
            over: 0,
            under: 0,
            far: 0,
            near: 0,
            odd: 0,
            looked_at: 0,
            latest_ns: [0.0; LATEST as usize],
        }
    }

    #[inline]
    fn judge(&mut self, duration_ns: f32) -> Verdict {
        let judged = if duration_ns > self.odd_from_ns { self.odd(duration_ns) } else { Verdict::Usual };
        self.add(duration_ns);
        judged
    }

    #[cold]
    fn odd(&mut self, duration_ns: f32) -> Verdict {
        self.odd += 1;
        let median_ns = f64::from(self.median_ns);
        // A history without any spread would make every distance infinite.
        let sigma_ns = (f64::from(self.mad_ns) * SIGMA_BY_MAD).max(LEAST_NS / SIGMAS);
        Verdict::Odd(Anomaly { sigmas: (f64::from(duration_ns) - median_ns) / sigma_ns, median_ns })
    }

    #[inline]
    fn add(&mut self, duration_ns: f32) {
        if self.warm_up > 0 {
            self.warm_up -= 1;
            return;
        }
        if let Some(place) = self.latest_ns.get_mut(usize::from(self.next)) {
            *place = duration_ns;
        }
        self.next = (self.next + 1) % LATEST;
        self.count = (self.count + 1).min(LATEST);
        self.since_look += 1;
        self.over += u8::from(duration_ns > self.median_ns);
        self.under += u8::from(duration_ns < self.median_ns);
        let distance_ns = (duration_ns - self.median_ns).abs();
        self.far += u8::from(distance_ns > self.mad_ns);
        self.near += u8::from(distance_ns < self.mad_ns);
        let due = if self.looked_at == 0 { NEEDED } else { LATEST };
        if self.since_look >= due || self.odd >= ODD_MAX {
            self.look();
        }
    }

    /// Looks at the median anew, if so many times lie on one side of it that it must be another by now.
    #[inline(never)]
    fn look(&mut self) {
        let astray = self.over.max(self.under).max(self.far).max(self.near) > ASTRAY;
        let is_settled = self.looked_at == LATEST && self.odd < ODD_MAX && !astray;
        (self.since_look, self.over, self.under, self.far, self.near, self.odd) = (0, 0, 0, 0, 0, 0);
        if is_settled {
            return;
        }
        let mut sorted = self.latest_ns;
        let Some(known) = sorted.get_mut(..usize::from(self.count)) else { return };
        self.median_ns = median(known);
        for time in known.iter_mut() {
            *time = (*time - self.median_ns).abs();
        }
        self.mad_ns = median(known);
        self.looked_at = self.count;
        let (median_ns, mad_ns) = (f64::from(self.median_ns), f64::from(self.mad_ns));
        let least_ns = (SIGMAS * SIGMA_BY_MAD * mad_ns).max(median_ns * LEAST_SHARE).max(LEAST_NS);
        self.odd_from_ns = (median_ns + least_ns) as f32;
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
    fn what_is_far_from_its_own_history_is_an_anomaly() {
        let mut histories = Histories::default();
        // The first ones are slow, and none of the history's.
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
    fn a_history_follows_what_changes_for_good() {
        // Wherever between two looks that happens.
        for before in 100..180 {
            let mut histories = Histories::default();
            (0..before).for_each(|at| _ = histories.anomaly(1, usual(at)));
            let anomalies = (0..200).filter(|_| histories.anomaly(1, 200_000).is_some()).count();
            assert!((20..=41).contains(&anomalies), "{before}: {anomalies}");
        }
    }

    #[test]
    fn a_few_odd_times_do_not_hide_the_next() {
        let mut histories = Histories::default();
        for at in 0..300 {
            let odd = at % 4 == 0;
            let judged = histories.anomaly(1, if odd { 900_000 } else { usual(at) });
            assert_eq!(judged.is_some(), odd && at >= 19, "{at}");
        }
    }

    #[test]
    fn a_history_that_is_settled_is_not_looked_at_but_followed_when_it_moves() {
        let mut history = History::new();
        (0..200).for_each(|at| _ = history.judge(usual(at) as f32));
        // Slowly and without anything odd: by a hundredth each hundred runs.
        for step in 0..60u64 {
            for at in 0..100 {
                let time = usual(at) + step * 1_000;
                assert_eq!(history.judge(time as f32), Verdict::Usual, "{step} {at}");
            }
        }
        assert!((155_000.0..162_000.0).contains(&history.median_ns), "{}", history.median_ns);
        // Times that are all the same, as clocks of few steps give, are no reason to look.
        let mut even = History::new();
        (0..200).for_each(|_| _ = even.judge(5_000.0));
        let before = (even.over, even.under, even.far, even.near);
        assert_eq!(before, (0, 0, 0, 0));
        assert!(matches!(even.judge(7_500.0), Verdict::Odd(_)));
    }

    #[test]
    fn shapes_of_one_kernel_have_histories_of_their_own() {
        let mut histories = Histories::default();
        for at in 0..100 {
            histories.judge(&kernel(1), usual(at));
            histories.judge(&Kernel { grid: [99, 1, 1], ..kernel(1) }, 10 * usual(at));
        }
        assert_eq!(histories.judge(&Kernel { grid: [99, 1, 1], ..kernel(1) }, 1_000_000), Verdict::Usual);
        assert!(matches!(histories.judge(&kernel(1), 1_000_000), Verdict::Odd(_)));
    }

    #[test]
    fn histories_are_so_many_and_no_more() {
        let mut histories = Histories::default();
        let unjudged = (0..HISTORIES_MAX as u32 + 5)
            .filter(|name| histories.judge(&kernel(*name), 100) == Verdict::Unjudged)
            .count();
        assert_eq!((histories.all.len(), unjudged), (HISTORIES_MAX, 5));
    }
}
