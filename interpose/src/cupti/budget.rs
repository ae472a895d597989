//! How much is recorded under a budget, so that tracing costs a program no more than a part of its time: how
//! much of the time windows of device times have, and what is recorded of launches outside of them. No clock,
//! no CUPTI: what was measured is an argument.
//!
//! The cost of an interval is that of the hooks, as they measure themselves; CUPTI's for each record; and the
//! switches. CUPTI's is measured in this process against itself: launch calls inside of windows take longer
//! than those of the same interval outside. Costs of all threads are added, which is the most by which the
//! slowest can be late.
//!
//! ```text
//!   all the time ─► windows ─► launches outside of them without stacks ─► counted ─► fewer windows still
//! ```
//!
//! From what was measured follows what each of these would cost at a fraction of windows. The next fraction
//! is the one at which the cost would be [`AIM`] of what is allowed, less a part of what was spent too much
//! before. Launches outside of windows lose their stacks where windows would otherwise have less than
//! [`FAIR`] of the time, and get them back where some intervals could have paid for them. Steps are bounded,
//! so that one odd interval does not stop the sample, and so is the debt.

use gputrace_producer::hook_state::Launches;
use gputrace_wire::budget::Budget;
use gputrace_wire::windows::Windows;

/// The part of the budget that is aimed at.
const AIM: f64 = 0.7;
const LEAST: f64 = 0.002;
const MOST: f64 = 0.5;
/// Before windows have less of the time, less is recorded outside of them.
const FAIR: f64 = 0.01;
/// By how much a fraction changes at once.
const STEP_DOWN: f64 = 0.25;
const STEP_UP: f64 = 1.25;
/// More is recorded after so many intervals that had room for it, and for so much more of what is needed.
const INTERVALS_TO_RISE: u32 = 4;
const MARGIN: f64 = 2.0;
/// The same for device times all the time: the part of the aim that they may cost.
const ALL_SHARE: f64 = 0.8;
/// Debt is paid back over this time, and is at most what is allowed in it.
const DEBT_NS: f64 = 10e9;
/// Weight of what was measured before, of rates and of a record's cost.
const MEMORY: f64 = 0.6;
const RECORD_MEMORY: f64 = 0.9;
/// A record's cost to a launch-bound PyTorch step on an H100, and as how many launches that counts at first.
const RECORD_NS: f64 = 1_400.0;
const RECORD_WEIGHT: f64 = 32.0;
/// CUPTI's callback at each launch, in windows or not (`launches`).
const CALLBACK_NS: f64 = 125.0;
/// A buffer of CUPTI's that comes back at a window's end costs a launch so much (`buffers`).
const BUFFER_NS: f64 = 50_000.0;
/// What a hook costs outside of windows, as a part of what it costs inside, until it was measured.
const PARTS: [f64; 3] = [1.0, 0.4, 0.2];
/// What was measured of hooks that record more counts so much less with each interval.
const FORGETTING: f64 = 0.99;
/// A window where they follow each other at once: as long as the controller may take to look again.
const ALL_US: u32 = 500_000;

/// Sampled launch calls and how long they took.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Calls {
    pub count: f64,
    pub total_ns: f64,
}

/// What was measured in an interval.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Interval {
    pub length_ns: f64,
    /// The hooks' own cost, from samples; and that of launches in windows alone.
    pub hooks_ns: f64,
    pub inside_hooks_ns: f64,
    /// Launches in windows, and outside, from samples.
    pub launches_inside: f64,
    pub launches_outside: f64,
    pub records: f64,
    pub windows: f64,
    /// CUPTI's switches at both ends of windows.
    pub switches_ns: f64,
    pub inside: Calls,
    pub outside: Calls,
}

/// What an interval cost.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Cost {
    pub hooks_ns: f64,
    pub records_ns: f64,
    pub switches_ns: f64,
}

impl Cost {
    pub fn sum_ns(&self) -> f64 {
        self.hooks_ns + self.records_ns + self.switches_ns
    }
}

#[derive(Debug)]
pub struct Controller {
    allowed: f64,
    on_us: u32,
    fraction: f64,
    launches: Launches,
    /// Whether windows follow each other at once.
    times_all: bool,
    cheap_intervals: u32,
    /// CUPTI's cost of a record: a weighted sum and its weight.
    record_sum: f64,
    record_weight: f64,
    /// Launches for each nanosecond; `None` before the first interval.
    rate: Option<f64>,
    /// The cost of a hook that records everything, with what other hooks of its launch cost.
    hook_ns: f64,
    /// What it costs outside of windows as a part of that, by what is recorded there; [`PARTS`] until it was
    /// measured.
    parts: [Option<f64>; 3],
    /// The switches' cost for each nanosecond, at a fraction of 1.
    switching: f64,
    debt_ns: f64,
}

impl Controller {
    pub fn new(budget: Budget, begin: Windows) -> Controller {
        Controller {
            allowed: budget.fraction(),
            on_us: begin.on_us,
            fraction: begin.fraction().clamp(LEAST, MOST),
            launches: Launches::Whole,
            times_all: false,
            cheap_intervals: 0,
            record_sum: RECORD_NS * RECORD_WEIGHT,
            record_weight: RECORD_WEIGHT,
            rate: None,
            hook_ns: 0.0,
            parts: [None; 3],
            switching: 0.0,
            debt_ns: 0.0,
        }
    }

    /// The windows to go on with.
    pub fn windows(&self) -> Windows {
        if self.times_all {
            return Windows { on_us: ALL_US, mean_us: ALL_US };
        }
        Windows { on_us: self.on_us, mean_us: (f64::from(self.on_us) / self.fraction) as u32 }
    }

    /// What to record of launches outside of windows.
    pub fn launches(&self) -> Launches {
        self.launches
    }

    /// Whether windows follow each other at once.
    pub fn times_all(&self) -> bool {
        self.times_all
    }

    /// Whether as little is recorded as can be.
    pub fn is_least(&self) -> bool {
        self.fraction <= LEAST && self.launches == Launches::Counted
    }

    pub fn record_ns(&self) -> f64 {
        (self.record_sum / self.record_weight).clamp(50.0, 20_000.0)
    }

    /// Takes an interval that was recorded as chosen before, and chooses what to go on with.
    pub fn after(&mut self, interval: &Interval) -> Cost {
        self.calibrate(interval);
        let length_ns = interval.length_ns.max(1.0);
        let launches = interval.launches_inside + interval.launches_outside;
        let cost = Cost {
            hooks_ns: interval.hooks_ns + launches * CALLBACK_NS,
            records_ns: interval.records * self.record_ns(),
            switches_ns: interval.switches_ns + interval.windows * BUFFER_NS,
        };
        let rate = launches / length_ns;
        self.rate = Some(self.rate.map_or(rate, |before| MEMORY * before + (1.0 - MEMORY) * rate));
        if !self.times_all {
            let switching = cost.switches_ns / length_ns / self.fraction;
            self.switching = MEMORY * self.switching + (1.0 - MEMORY) * switching;
        }
        let aim = AIM * self.allowed;
        self.debt_ns = (self.debt_ns + cost.sum_ns() - aim * length_ns).clamp(0.0, self.allowed * DEBT_NS);
        self.choose(aim);
        cost
    }

    /// What a record and a hook cost.
    fn calibrate(&mut self, interval: &Interval) {
        let pairs = interval.inside.count.min(interval.outside.count);
        if pairs > 0.0 {
            let mean = |calls: Calls| calls.total_ns / calls.count;
            let difference = mean(interval.inside) - mean(interval.outside);
            self.record_sum = RECORD_MEMORY * self.record_sum + pairs * difference;
            self.record_weight = RECORD_MEMORY * self.record_weight + pairs;
        }
        if interval.launches_inside > 0.0 {
            let hook_ns = interval.inside_hooks_ns / interval.launches_inside;
            let memory = if self.hook_ns == 0.0 { 0.0 } else { MEMORY };
            self.hook_ns = memory * self.hook_ns + (1.0 - memory) * hook_ns;
        }
        // What was measured long ago may not be true any more: in the end, it is tried again.
        for part in self.parts.iter_mut().take(self.launches as usize).flatten() {
            *part *= FORGETTING;
        }
        let outside_ns = (interval.hooks_ns - interval.inside_hooks_ns).max(0.0);
        if interval.launches_outside > 0.0
            && self.hook_ns > 0.0
            && let Some(part) = self.parts.get_mut(self.launches as usize)
        {
            let measured = outside_ns / interval.launches_outside / self.hook_ns;
            *part = Some(part.map_or(measured, |before| MEMORY * before + (1.0 - MEMORY) * measured));
        }
    }

    /// What is spent in each nanosecond whatever the fraction, and what more at a fraction of 1.
    fn costs(&self, launches: Launches) -> (f64, f64) {
        let rate = self.rate.unwrap_or(0.0);
        let measured = self.parts.get(launches as usize).copied().flatten();
        let part = measured.or(PARTS.get(launches as usize).copied()).unwrap_or(1.0);
        let outside_ns = self.hook_ns * part;
        let by_fraction = rate * (self.hook_ns + self.record_ns() - outside_ns) + self.switching;
        (rate * (outside_ns + CALLBACK_NS), by_fraction)
    }

    /// The fraction at which so much is spent.
    fn fraction_for(&self, launches: Launches, left: f64) -> f64 {
        let (fixed, by_fraction) = self.costs(launches);
        if by_fraction > 0.0 {
            (left - fixed) / by_fraction
        } else if left > fixed {
            // Calls other than launches, which are outside of windows too, cost more than windows do.
            MOST
        } else {
            0.0
        }
    }

    fn choose(&mut self, aim: f64) {
        let rate = self.rate.unwrap_or(0.0);
        let all = rate * (self.hook_ns + CALLBACK_NS + self.record_ns());
        if self.times_all {
            if all <= aim {
                return;
            }
            (self.times_all, self.fraction, self.cheap_intervals) = (false, MOST, 0);
        }
        // The debt is of the past: it makes windows rarer, and does not change what is recorded beside them.
        let more = match self.launches {
            Launches::Whole => None,
            Launches::Unstacked => Some(Launches::Whole),
            Launches::Counted => Some(Launches::Unstacked),
        };
        let is_cheap = match more {
            Some(more) => self.fraction_for(more, aim) >= FAIR * MARGIN,
            None => self.fraction >= MOST && all <= aim * ALL_SHARE,
        };
        self.cheap_intervals = if is_cheap { self.cheap_intervals + 1 } else { 0 };
        if self.cheap_intervals >= INTERVALS_TO_RISE {
            self.cheap_intervals = 0;
            match more {
                Some(more) => self.launches = more,
                None => return self.times_all = true,
            }
        } else if self.fraction_for(self.launches, aim) < FAIR {
            self.launches = match self.launches {
                Launches::Whole => Launches::Unstacked,
                Launches::Unstacked | Launches::Counted => Launches::Counted,
            };
        }
        let wanted = self.fraction_for(self.launches, aim - self.debt_ns / DEBT_NS);
        let step = wanted.clamp(self.fraction * STEP_DOWN, self.fraction * STEP_UP);
        self.fraction = step.clamp(LEAST, MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn controller(percent: u32) -> Controller {
        Controller::new(Budget { ppm: percent * 10_000 }, Windows::USUAL)
    }

    /// A program that launches so often; what its hooks cost with all, without stacks, and counting.
    #[derive(Clone, Copy)]
    struct Program {
        launches: f64,
        hooks_ns: [f64; 3],
        record_ns: f64,
    }

    impl Program {
        fn new(launches: f64, hook_ns: f64) -> Program {
            Program { launches, hooks_ns: [hook_ns, hook_ns / 3.0, hook_ns / 10.0], record_ns: 800.0 }
        }

        /// A second of it, as the controller has it recorded.
        fn second(&self, controller: &Controller) -> Interval {
            let fraction = controller.windows().fraction();
            let (inside, outside) = (self.launches * fraction, self.launches * (1.0 - fraction));
            let outside_ns = self.hooks_ns[controller.launches() as usize];
            let windows = if controller.times_all() { 0.0 } else { fraction * 100.0 };
            let calls = |launches: f64, each_ns: f64| Calls {
                count: launches / 61.0,
                total_ns: launches / 61.0 * each_ns,
            };
            Interval {
                length_ns: 1e9,
                hooks_ns: inside * self.hooks_ns[0] + outside * outside_ns,
                inside_hooks_ns: inside * self.hooks_ns[0],
                launches_inside: inside,
                launches_outside: outside,
                records: inside,
                windows,
                switches_ns: windows * 50_000.0,
                inside: calls(inside, 3_000.0 + self.record_ns),
                outside: calls(outside, 3_000.0),
            }
        }

        /// The part of the time that it cost in so many seconds.
        fn run(&self, controller: &mut Controller, seconds: usize) -> f64 {
            let costs = (0..seconds).map(|_| controller.after(&self.second(controller)).sum_ns());
            costs.sum::<f64>() / (seconds as f64 * 1e9)
        }
    }

    #[test]
    fn program_whose_other_calls_cost_more_than_windows_loses_what_can_be_left_out() {
        // With its other calls, a launch outside costs more than one inside with its record.
        let mut controller = controller(1);
        let program = Program { launches: 20_000.0, hooks_ns: [300.0, 2_000.0, 1_500.0], record_ns: 100.0 };
        for _ in 0..60 {
            let mut second = program.second(&controller);
            if controller.launches() == Launches::Whole {
                second.hooks_ns = second.inside_hooks_ns + second.launches_outside * 2_500.0;
            }
            controller.after(&second);
        }
        assert!(controller.is_least(), "{controller:?}");
    }

    #[test]
    fn cost_comes_to_the_aim_and_the_record_is_calibrated() {
        let (mut controller, program) = (controller(1), Program::new(20_000.0, 50.0));
        program.run(&mut controller, 60);
        assert!((controller.record_ns() - 800.0).abs() < 100.0, "{}", controller.record_ns());
        let share = program.run(&mut controller, 60);
        assert!((0.0055..0.0075).contains(&share), "{share}");
        assert_eq!((controller.launches(), controller.times_all()), (Launches::Whole, false));
    }

    #[test]
    fn stacks_go_before_counts_and_each_comes_back_where_it_can_be_paid_for() {
        let mut controller = controller(1);
        // 30,000 launches a second: CUPTI's callbacks alone cost 0.38 %.
        let stacks = Program { hooks_ns: [300.0, 40.0, 30.0], ..Program::new(30_000.0, 300.0) };
        let share = stacks.run(&mut controller, 60);
        assert_eq!(controller.launches(), Launches::Unstacked, "{controller:?}");
        assert!(share < 0.011, "{share}");
        let counts = Program { hooks_ns: [300.0, 150.0, 15.0], ..Program::new(45_000.0, 300.0) };
        let share = counts.run(&mut controller, 60);
        assert_eq!(controller.launches(), Launches::Counted, "{controller:?}");
        assert!(share < 0.01 && !controller.is_least(), "{share} {controller:?}");
        stacks.run(&mut controller, 90);
        assert_eq!(controller.launches(), Launches::Unstacked, "{controller:?}");
        Program::new(10_000.0, 300.0).run(&mut controller, 90);
        assert_eq!((controller.launches(), controller.times_all()), (Launches::Whole, false));
    }

    #[test]
    fn budget_that_cannot_be_kept_leaves_the_least() {
        let (mut controller, program) = (controller(1), Program::new(100_000.0, 200.0));
        let share = program.run(&mut controller, 60);
        assert!(controller.is_least() && share > 0.01, "{share}");
        assert_eq!(controller.windows(), Windows { on_us: 10_000, mean_us: 5_000_000 });
        // It climbs back, in bounded steps, once there is room.
        let least = controller.windows().fraction();
        let calm = Program::new(1_000.0, 200.0);
        controller.after(&calm.second(&controller));
        assert!(controller.windows().fraction() <= least * 1.26);
        calm.run(&mut controller, 90);
        assert!(controller.times_all() && controller.launches() == Launches::Whole, "{controller:?}");
    }

    #[test]
    fn fraction_falls_by_three_quarters_at_most_and_a_burst_is_forgotten() {
        let (mut controller, program) = (controller(1), Program::new(15_000.0, 50.0));
        program.run(&mut controller, 60);
        let before = controller.windows().fraction();
        controller.after(&Program::new(1_000_000.0, 50.0).second(&controller));
        let after = controller.windows().fraction();
        assert!(after >= before * 0.24, "{before} {after}");
        program.run(&mut controller, 90);
        let again = controller.windows().fraction();
        assert!((again / before - 1.0).abs() < 0.2, "{before} {again}");
        assert_eq!(controller.launches(), Launches::Whole);
    }

    #[test]
    fn program_that_launches_little_has_device_times_all_the_time_until_it_launches_more() {
        let mut controller = controller(5);
        Program::new(0.0, 50.0).run(&mut controller, 30);
        assert!(controller.times_all() && controller.windows().fraction() == 1.0, "{controller:?}");
        Program::new(10_000.0, 300.0).run(&mut controller, 30);
        assert!(controller.times_all(), "{controller:?}");
        let busy = Program::new(100_000.0, 100.0);
        let first = busy.run(&mut controller, 10);
        assert!(!controller.times_all(), "{controller:?}");
        let share = busy.run(&mut controller, 60);
        assert!(first < 0.06 && (0.03..0.05).contains(&share), "{first} {share}");
    }

    #[test]
    fn launches_that_are_faster_in_windows_cost_the_least_and_not_less_than_nothing() {
        let mut controller = controller(1);
        let program = Program { record_ns: -2_000.0, ..Program::new(50_000.0, 10.0) };
        program.run(&mut controller, 50);
        assert_eq!(controller.record_ns(), 50.0);
    }
}
