//! When windows of device times open, end, and when kernels' kind goes off after them. No clock, no CUPTI:
//! the time is an argument.
//!
//! ```text
//!  Closed ──► Open ──► Draining ──► Closed
//!                ▲________│  the next one is due before the records have come
//! ```
//!
//! The gap from a window's end to the next one's begin is random, with an exponential distribution. Windows
//! then see the average over time whatever the rhythm of the program: with a fixed period, a program of the
//! same period is seen at the same places for ever.
//!
//! Something new that was launched while device times were off opens a window out of turn, at most one in
//! the mean distance of windows. It is marked, because its sample is not one of a random time. Gaps have no
//! memory, so a scheduled window that falls into a triggered one is drawn anew.

use gputrace_producer::hook_state::WINDOW_MAX;
use gputrace_wire::clock::cause;
use gputrace_wire::windows::Windows;

/// How long after a window's end the kind stays on at most, for the records of what was launched in it.
pub const GRACE_MOST_NS: u64 = 150_000_000;
/// From a window's end to the first look for its records; each later look takes twice as long to come.
pub const FIRST_LOOK_NS: u64 = 2_000_000;
/// How often somebody asks for something new while no window is open.
pub const POLL_NS: u64 = 20_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Kernels' kind is off.
    Closed,
    Open {
        ends_ns: u64,
        cause: u8,
    },
    /// It is on, but what is launched is in no window.
    Draining {
        ended_ns: u64,
        look_ns: u64,
    },
}

/// What is to be done now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    Wait {
        until_ns: u64,
    },
    Open {
        window: u32,
        cause: u8,
    },
    End,
    /// See whether the records of the window have come.
    Look,
    Close,
}

#[derive(Debug)]
pub struct Schedule {
    windows: Windows,
    phase: Phase,
    random: Random,
    /// The number of the last window.
    number: u32,
    /// When the next scheduled window is due.
    next_ns: u64,
    /// What was first seen so far, as far as it has had its window.
    seen: u32,
    /// No window is triggered before.
    trigger_after_ns: u64,
}

impl Schedule {
    pub fn new(windows: Windows, seed: u64, now_ns: u64) -> Schedule {
        let mut schedule = Schedule {
            windows,
            phase: Phase::Closed,
            random: Random::new(seed),
            number: 0,
            next_ns: now_ns,
            seen: 0,
            trigger_after_ns: 0,
        };
        schedule.next_ns = now_ns.saturating_add(schedule.gap_ns());
        schedule
    }

    /// What is due. `first_seen`: how much was first seen while there were no device times, so far.
    /// `has_come`: whether all records of the last window have come.
    pub fn step(&self, now_ns: u64, first_seen: u32, has_come: impl FnOnce() -> bool) -> Due {
        let is_triggered = first_seen != self.seen && now_ns >= self.trigger_after_ns;
        match self.phase {
            Phase::Open { ends_ns, .. } if now_ns >= ends_ns => Due::End,
            Phase::Open { ends_ns, .. } => Due::Wait { until_ns: ends_ns },
            _ if now_ns >= self.next_ns => self.open(cause::SCHEDULED),
            _ if is_triggered => self.open(cause::TRIGGERED),
            Phase::Closed => Due::Wait { until_ns: self.next_ns.min(now_ns + POLL_NS) },
            Phase::Draining { ended_ns, .. } if now_ns >= ended_ns + GRACE_MOST_NS || has_come() => {
                Due::Close
            }
            Phase::Draining { look_ns, .. } if now_ns >= look_ns => Due::Look,
            Phase::Draining { look_ns, .. } => Due::Wait { until_ns: look_ns.min(self.next_ns) },
        }
    }

    fn open(&self, cause: u8) -> Due {
        let number = if self.number >= WINDOW_MAX >> 1 { 1 } else { self.number + 1 };
        Due::Open { window: number << 1 | u32::from(cause == cause::TRIGGERED), cause }
    }

    pub fn opened(&mut self, window: u32, cause: u8, now_ns: u64, first_seen: u32) {
        self.number = window >> 1;
        // Everything new so far has its window, whatever opened it.
        self.seen = first_seen;
        if cause == cause::TRIGGERED {
            self.trigger_after_ns = now_ns.saturating_add(u64::from(self.windows.mean_us) * 1_000);
        }
        self.phase = Phase::Open { ends_ns: now_ns.saturating_add(self.on_ns()), cause };
    }

    pub fn ended(&mut self, now_ns: u64) {
        let was_scheduled = matches!(self.phase, Phase::Open { cause: cause::SCHEDULED, .. });
        if was_scheduled || self.next_ns <= now_ns {
            self.next_ns = now_ns.saturating_add(self.gap_ns());
        }
        self.phase = Phase::Draining { ended_ns: now_ns, look_ns: now_ns + FIRST_LOOK_NS };
    }

    pub fn looked(&mut self, now_ns: u64) {
        if let Phase::Draining { ended_ns, look_ns } = &mut self.phase {
            let since_ns = now_ns.saturating_sub(*ended_ns).max(FIRST_LOOK_NS);
            *look_ns = (now_ns + since_ns).min(*ended_ns + GRACE_MOST_NS);
        }
    }

    pub fn windows(&self) -> Windows {
        self.windows
    }

    /// Windows are of that length and distance from here on. The gap to the next one has no memory, so it may
    /// be drawn anew.
    pub fn go_on_with(&mut self, windows: Windows, now_ns: u64) {
        if windows != self.windows {
            self.windows = windows;
            if self.phase == Phase::Closed {
                self.next_ns = now_ns.saturating_add(self.gap_ns());
            }
        }
    }

    pub fn closed(&mut self) {
        self.phase = Phase::Closed;
    }

    /// No window can open now: the next one is drawn anew, so that none is due at once afterwards.
    pub fn postpone(&mut self, now_ns: u64) {
        if self.next_ns <= now_ns {
            self.next_ns = now_ns.saturating_add(self.gap_ns());
        }
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }

    fn on_ns(&self) -> u64 {
        u64::from(self.windows.on_us) * 1_000
    }

    fn gap_ns(&mut self) -> u64 {
        let mean_ns = u64::from(self.windows.mean_us.saturating_sub(self.windows.on_us)) * 1_000;
        (self.random.exponential() * mean_ns as f64) as u64
    }
}

/// xorshift64*, by Marsaglia and Vigna.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        // Zero would stay zero; seeds of two processes may differ in a few bits only.
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed >> 29 | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Of mean 1; at most 37.
    fn exponential(&mut self) -> f64 {
        // 53 bits, in (0, 1].
        let uniform = ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        -ln(uniform)
    }
}

/// The natural logarithm of a number in (0, 1], to nine digits. The C library's would need a newer one than
/// the oldest that is supported.
fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as i64 - 1022;
    // In [0.5, 1).
    let mantissa = f64::from_bits(bits & !(0x7ff << 52) | 1022 << 52);
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    // 2 artanh(s), |s| ≤ 1/3.
    let square = s * s;
    let series = (0..9).rev().fold(0.0, |sum, n| sum * square + 1.0 / f64::from(2 * n + 1));
    exponent as f64 * core::f64::consts::LN_2 + 2.0 * s * series
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn schedule(seed: u64) -> Schedule {
        Schedule::new(Windows::USUAL, seed, 0)
    }

    /// Runs a schedule; records come `records_ns` after a window's end. Windows: number, cause, begin, end.
    fn run(
        schedule: &mut Schedule,
        until_ns: u64,
        first_seen: impl Fn(u64) -> u32,
        records_ns: u64,
    ) -> Vec<(u32, u8, u64, u64)> {
        let (mut now_ns, mut windows, mut looks) = (0, Vec::new(), 0);
        let mut has_come = false;
        while now_ns < until_ns {
            match schedule.step(now_ns, first_seen(now_ns), || has_come) {
                Due::Wait { until_ns } => {
                    assert!(until_ns > now_ns, "no time passes");
                    now_ns = until_ns;
                }
                Due::Open { window, cause } => {
                    schedule.opened(window, cause, now_ns, first_seen(now_ns));
                    windows.push((window, cause, now_ns, 0));
                }
                Due::End => {
                    schedule.ended(now_ns);
                    (has_come, looks) = (false, 0);
                    windows.last_mut().unwrap().3 = now_ns;
                }
                Due::Look => {
                    looks += 1;
                    assert!(looks < 9, "looks become rarer");
                    has_come = now_ns >= windows.last().unwrap().3 + records_ns;
                    schedule.looked(now_ns);
                }
                Due::Close => {
                    schedule.closed();
                    assert!(now_ns <= windows.last().unwrap().3 + GRACE_MOST_NS);
                }
            }
        }
        windows
    }

    #[test]
    fn logarithm_is_that_of_the_standard_library() {
        for x in [1.0, 0.5, 0.999_999, 0.1, 1e-3, 1.0 / (1u64 << 53) as f64, 0.7] {
            assert!((ln(x) - x.ln()).abs() < 1e-9, "{x}: {} {}", ln(x), x.ln());
        }
    }

    /// A gap is exponential where its mean, its deviation and the part beyond twice the mean are so.
    #[test]
    fn gaps_are_exponential_with_the_mean_that_was_asked_for() {
        let windows = run(&mut schedule(7), 2_000_000 * MS, |_| 0, 3 * MS);
        let gaps: Vec<f64> = windows.windows(2).map(|pair| (pair[1].2 - pair[0].3) as f64 / 90e6).collect();
        let count = gaps.len() as f64;
        let mean = gaps.iter().sum::<f64>() / count;
        let deviation = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / count).sqrt();
        let long = gaps.iter().filter(|gap| **gap > 2.0).count() as f64 / count;
        assert!((19_000.0..21_000.0).contains(&count), "{count}");
        assert!((mean - 1.0).abs() < 0.03 && (deviation - 1.0).abs() < 0.05, "{mean} {deviation}");
        assert!((long - (-2f64).exp()).abs() < 0.01, "{long}");
        assert!(windows[..windows.len() - 1].iter().all(|(.., begin, end)| end - begin == 10 * MS));
        assert!(windows.iter().zip(1..).all(|((window, ..), number)| *window == number << 1));
    }

    #[test]
    fn processes_that_start_at_the_same_time_have_windows_at_other_times() {
        let begins = [1, 2].map(|seed| run(&mut schedule(seed), 1_000 * MS, |_| 0, 0)[0].2);
        assert!(begins[0].abs_diff(begins[1]) > MS, "{begins:?}");
    }

    /// The program is seen at each place of its step equally often, although the step is as long as the mean.
    #[test]
    fn every_part_of_a_step_is_in_windows_equally_often() {
        let windows = run(&mut schedule(3), 3_000_000 * MS, |_| 0, 0);
        let mut tenths = [0u32; 10];
        windows.iter().for_each(|(.., begin, _)| tenths[(begin / (10 * MS) % 10) as usize] += 1);
        let mean = windows.len() as u32 / 10;
        assert!(tenths.iter().all(|count| count.abs_diff(mean) < mean / 10), "{tenths:?}");
    }

    #[test]
    fn something_new_opens_a_window_soon_and_not_more_than_one_a_mean_distance() {
        // New all the time.
        let windows = run(&mut schedule(5), 100_000 * MS, |now_ns| (now_ns / MS) as u32, 0);
        let triggered: Vec<_> = windows.iter().filter(|(_, cause, ..)| *cause == cause::TRIGGERED).collect();
        assert!((800..=1000).contains(&triggered.len()), "{}", triggered.len());
        assert!(triggered.iter().all(|(window, ..)| window & 1 == 1));
        assert!(triggered.windows(2).all(|pair| pair[1].2 - pair[0].2 >= 100 * MS));
        // The scheduled ones are as many as they are alone, but for the time of the triggered ones.
        let scheduled = windows.len() - triggered.len();
        assert!((830..1000).contains(&scheduled), "{scheduled}");
        // Once.
        let windows = run(&mut schedule(5), 1_000 * MS, |now_ns| u32::from(now_ns >= 400 * MS), 0);
        let begins: Vec<_> =
            windows.iter().filter(|(_, cause, ..)| *cause == cause::TRIGGERED).map(|w| w.2).collect();
        assert!(begins.len() <= 1 && begins.iter().all(|begin| begin - 400 * MS <= POLL_NS), "{begins:?}");
    }

    #[test]
    fn window_that_is_due_while_records_are_awaited_opens_then() {
        // The records of a window never come.
        let windows = run(&mut schedule(11), 100_000 * MS, |_| 0, u64::MAX / 2);
        assert!((850..1150).contains(&windows.len()), "{}", windows.len());
    }

    #[test]
    fn numbers_begin_again_after_the_last_that_calls_can_have() {
        let mut schedule = schedule(1);
        schedule.opened(WINDOW_MAX, cause::TRIGGERED, 0, 0);
        schedule.ended(1);
        let next = schedule.step(u64::MAX / 2, 0, || false);
        assert_eq!(next, Due::Open { window: 2, cause: cause::SCHEDULED });
    }
}
