//! How much of the time windows may have, so that tracing costs a program no more than a part of its time.
//! No clock, no CUPTI: what was measured is an argument.
//!
//! The cost of an interval is that of the hooks, as they measure themselves; CUPTI's for each record; and the
//! switches. CUPTI's is measured in this process against itself: launch calls inside of windows take longer
//! than those of the same interval outside. Costs of all threads are added, which is the most by which the
//! slowest can be late.
//!
//! Only CUPTI's part follows the fraction of windows. The next fraction is the one at which the cost would be
//! [`AIM`] of what is allowed, less a part of what was spent too much before. Steps are bounded, so that one
//! odd interval does not stop the sample, and so is the debt.

use gputrace_wire::budget::Budget;
use gputrace_wire::windows::Windows;

/// The part of the budget that is aimed at.
const AIM: f64 = 0.7;
const LEAST: f64 = 0.002;
const MOST: f64 = 0.5;
/// By how much a fraction changes at once.
const STEP_DOWN: f64 = 0.5;
const STEP_UP: f64 = 1.25;
/// Debt is paid back over this time, and is at most what is allowed in it.
const DEBT_NS: f64 = 10e9;
/// Weight of what was measured before, of all costs and of a record's.
const MEMORY: f64 = 0.7;
const RECORD_MEMORY: f64 = 0.9;
/// A record's cost to a launch-bound PyTorch step on an H100, and as how many launches that counts at first.
const RECORD_NS: f64 = 1_400.0;
const RECORD_WEIGHT: f64 = 32.0;
/// CUPTI's callback at each launch, in windows or not (`launches`).
const CALLBACK_NS: f64 = 125.0;
/// A buffer of CUPTI's that comes back at a window's end costs a launch so much (`buffers`).
const BUFFER_NS: f64 = 50_000.0;

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
    /// The hooks' own cost, from samples.
    pub hooks_ns: f64,
    /// Launches, from samples.
    pub launches: f64,
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

#[derive(Debug)]
pub struct Controller {
    allowed: f64,
    on_us: u32,
    fraction: f64,
    /// CUPTI's cost of a record: a weighted sum and its weight.
    record_sum: f64,
    record_weight: f64,
    /// Costs for each nanosecond: what does not follow the fraction, and what does at a fraction of 1.
    fixed: f64,
    by_fraction: f64,
    debt_ns: f64,
}

impl Controller {
    pub fn new(budget: Budget, begin: Windows) -> Controller {
        Controller {
            allowed: budget.fraction(),
            on_us: begin.on_us,
            fraction: begin.fraction().clamp(LEAST, MOST),
            record_sum: RECORD_NS * RECORD_WEIGHT,
            record_weight: RECORD_WEIGHT,
            fixed: 0.0,
            by_fraction: 0.0,
            debt_ns: 0.0,
        }
    }

    /// The windows to go on with.
    pub fn windows(&self) -> Windows {
        Windows { on_us: self.on_us, mean_us: (f64::from(self.on_us) / self.fraction) as u32 }
    }

    /// Whether windows have the least part of the time that they can have.
    pub fn is_least(&self) -> bool {
        self.fraction <= LEAST
    }

    pub fn record_ns(&self) -> f64 {
        (self.record_sum / self.record_weight).clamp(50.0, 20_000.0)
    }

    /// Takes an interval that had windows of the current fraction, and chooses the next fraction.
    pub fn after(&mut self, interval: &Interval) -> Cost {
        let pairs = interval.inside.count.min(interval.outside.count);
        if pairs > 0.0 {
            let mean = |calls: Calls| calls.total_ns / calls.count;
            let difference = mean(interval.inside) - mean(interval.outside);
            self.record_sum = RECORD_MEMORY * self.record_sum + pairs * difference;
            self.record_weight = RECORD_MEMORY * self.record_weight + pairs;
        }
        let cost = Cost {
            hooks_ns: interval.hooks_ns + interval.launches * CALLBACK_NS,
            records_ns: interval.records * self.record_ns(),
            switches_ns: interval.switches_ns + interval.windows * BUFFER_NS,
        };
        let length_ns = interval.length_ns.max(1.0);
        let by_fraction = (cost.records_ns + cost.switches_ns) / length_ns / self.fraction;
        let is_first = self.fixed == 0.0 && self.by_fraction == 0.0;
        let memory = if is_first { 0.0 } else { MEMORY };
        self.fixed = memory * self.fixed + (1.0 - memory) * cost.hooks_ns / length_ns;
        self.by_fraction = memory * self.by_fraction + (1.0 - memory) * by_fraction;

        let aim = AIM * self.allowed;
        let spent_ns = cost.hooks_ns + cost.records_ns + cost.switches_ns;
        self.debt_ns = (self.debt_ns + spent_ns - aim * length_ns).clamp(0.0, self.allowed * DEBT_NS);
        let left = aim - self.fixed - self.debt_ns / DEBT_NS;
        let wanted = if self.by_fraction > 0.0 { left / self.by_fraction } else { MOST };
        let step = wanted.clamp(self.fraction * STEP_DOWN, self.fraction * STEP_UP);
        self.fraction = step.clamp(LEAST, MOST);
        cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn controller(percent: u32) -> Controller {
        Controller::new(Budget { ppm: percent * 10_000 }, Windows::USUAL)
    }

    /// One second of a program that launches so often.
    fn second(controller: &Controller, launches: f64, hook_ns: f64, record_ns: f64) -> Interval {
        let fraction = controller.windows().fraction();
        let calls = |count: f64, each_ns: f64| Calls { count, total_ns: count * each_ns };
        Interval {
            length_ns: 1e9,
            hooks_ns: launches * hook_ns,
            launches,
            records: launches * fraction,
            windows: fraction * 100.0,
            switches_ns: fraction * 100.0 * 50_000.0,
            inside: calls(launches * fraction / 61.0, 3_000.0 + record_ns),
            outside: calls(launches * (1.0 - fraction) / 61.0, 3_000.0),
        }
    }

    fn run(controller: &mut Controller, seconds: usize, launches: f64, hook_ns: f64) -> f64 {
        let mut spent = 0.0;
        for _ in 0..seconds {
            let cost = controller.after(&second(controller, launches, hook_ns, 800.0));
            spent += cost.hooks_ns + cost.records_ns + cost.switches_ns;
        }
        spent / (seconds as f64 * 1e9)
    }

    #[test]
    fn cost_comes_to_the_aim_and_the_record_is_calibrated() {
        let mut controller = controller(1);
        run(&mut controller, 60, 20_000.0, 50.0);
        assert!((controller.record_ns() - 800.0).abs() < 100.0, "{}", controller.record_ns());
        let share = run(&mut controller, 60, 20_000.0, 50.0);
        assert!((0.0055..0.0075).contains(&share), "{share}");
        assert!(!controller.is_least());
    }

    #[test]
    fn budget_that_hooks_alone_exceed_leaves_the_least_fraction() {
        let mut controller = controller(1);
        let share = run(&mut controller, 60, 100_000.0, 200.0);
        assert!(controller.is_least() && share > 0.01, "{share}");
        assert_eq!(controller.windows(), Windows { on_us: 10_000, mean_us: 5_000_000 });
        // It climbs back, in bounded steps, once there is room: 36 s of debt and steps.
        let least = controller.windows().fraction();
        controller.after(&second(&controller, 1_000.0, 200.0, 800.0));
        assert!(controller.windows().fraction() <= least * 1.26);
        run(&mut controller, 90, 1_000.0, 200.0);
        assert!(controller.windows().fraction() > 0.1, "{controller:?}");
    }

    #[test]
    fn fraction_halves_at_most_and_a_burst_is_forgotten() {
        let mut controller = controller(1);
        run(&mut controller, 30, 5_000.0, 50.0);
        let before = controller.windows().fraction();
        controller.after(&second(&controller, 1_000_000.0, 50.0, 800.0));
        let after = controller.windows().fraction();
        assert!(after >= before * 0.49, "{before} {after}");
        run(&mut controller, 60, 5_000.0, 50.0);
        let again = controller.windows().fraction();
        assert!((again / before - 1.0).abs() < 0.2, "{before} {again}");
    }

    #[test]
    fn program_that_launches_nothing_has_windows_for_half_of_the_time() {
        let mut controller = controller(5);
        run(&mut controller, 30, 0.0, 50.0);
        assert!(controller.windows().fraction() <= MOST && controller.windows().fraction() > 0.4);
    }

    #[test]
    fn launches_that_are_faster_in_windows_cost_the_least_and_not_less_than_nothing() {
        let mut controller = controller(1);
        for _ in 0..50 {
            controller.after(&second(&controller, 50_000.0, 10.0, -2_000.0));
        }
        assert_eq!(controller.record_ns(), 50.0);
    }
}
