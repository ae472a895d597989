//! What a budget is spent on: reads what the hooks, CUPTI and the windows cost since the last reading, lets
//! the controller choose how to go on, and counts what was spent, and how.

use gputrace_producer::clock;
use gputrace_producer::hook_state::Launches;
use gputrace_producer::rings::RingSums;
use gputrace_producer::session::Session;
use gputrace_producer::thread::SAMPLE_EVERY;
use gputrace_wire::budget::Budget;
use gputrace_wire::counter::Counter;
use gputrace_wire::windows::Windows;

use super::budget::{Calls, Controller, Interval};

/// Shorter intervals have too few samples.
pub const INTERVAL_LEAST_NS: u64 = 500_000_000;
/// The last one, at the session's end, may be as short as this.
pub const INTERVAL_LAST_NS: u64 = 100_000_000;
/// So long an interval ends without a window.
pub const INTERVAL_MOST_NS: u64 = 2_000_000_000;

/// All sums at one moment.
#[derive(Clone, Copy, Default)]
struct Sums {
    now_ns: u64,
    ticks: u64,
    rings: RingSums,
    records: u64,
    windows: u64,
    switches_ns: u64,
    /// The time that the session was paused.
    paused_ns: u64,
}

impl Sums {
    fn now(session: &Session, paused_ns: u64) -> Sums {
        Sums {
            now_ns: clock::monotonic_ns(),
            ticks: clock::now(),
            rings: session.ring_sums(),
            records: session.counted(Counter::RecordsDelivered),
            windows: session.counted(Counter::Windows),
            switches_ns: session.counted(Counter::SwitchOnNs) + session.counted(Counter::SwitchOffNs),
            paused_ns,
        }
    }

    /// The time since then in which the session was not paused.
    fn recorded_ns(&self, before: &Sums) -> u64 {
        let passed_ns = self.now_ns.saturating_sub(before.now_ns);
        passed_ns.saturating_sub(self.paused_ns.saturating_sub(before.paused_ns))
    }

    fn since(&self, before: &Sums) -> Interval {
        let passed_ns = self.now_ns.saturating_sub(before.now_ns);
        let ns_a_tick = passed_ns as f64 / self.ticks.wrapping_sub(before.ticks).max(1) as f64;
        let difference = |of: fn(&RingSums) -> u64| of(&self.rings).wrapping_sub(of(&before.rings)) as f64;
        let every = f64::from(SAMPLE_EVERY);
        let inside = Calls {
            count: difference(|sums| sums.inside_calls),
            total_ns: difference(|sums| sums.inside_ticks) * ns_a_tick,
        };
        let outside = Calls {
            count: difference(|sums| sums.outside_calls),
            total_ns: difference(|sums| sums.outside_ticks) * ns_a_tick,
        };
        Interval {
            length_ns: self.recorded_ns(before) as f64,
            hooks_ns: difference(|sums| sums.sampled_ticks) * ns_a_tick * every,
            inside_hooks_ns: difference(|sums| sums.inside_hook_ticks) * ns_a_tick * every,
            launches_inside: inside.count * every,
            launches_outside: outside.count * every,
            records: self.records.saturating_sub(before.records) as f64,
            windows: self.windows.saturating_sub(before.windows) as f64,
            switches_ns: self.switches_ns.saturating_sub(before.switches_ns) as f64,
            inside,
            outside,
        }
    }
}

pub struct Spending {
    budget: Budget,
    controller: Controller,
    before: Sums,
    /// The time that the session was paused until it last went on, and since when it is paused now.
    paused_ns: u64,
    paused_at_ns: Option<u64>,
}

impl Spending {
    pub fn new(session: &Session, budget: Budget, begin: Windows) -> Spending {
        let controller = Controller::new(budget, begin);
        Spending { budget, controller, before: Sums::now(session, 0), paused_ns: 0, paused_at_ns: None }
    }

    /// The session is paused, or is not: a pause costs nothing and is no time in which something may cost.
    pub fn note_pause(&mut self, is_paused: bool, now_ns: u64) {
        match self.paused_at_ns {
            None if is_paused => self.paused_at_ns = Some(now_ns),
            Some(at_ns) if !is_paused => {
                self.paused_ns += now_ns.saturating_sub(at_ns);
                self.paused_at_ns = None;
            }
            _ => {}
        }
    }

    /// To be called between windows: how to go on, where at least so much time has passed.
    pub fn next(&mut self, session: &Session, least_ns: u64) -> Option<(Windows, Launches)> {
        let now = Sums::now(session, self.paused_ns);
        if now.recorded_ns(&self.before) < least_ns {
            return None;
        }
        let interval = now.since(&self.before);
        self.before = now;
        let (timed_all, was_least) = (self.controller.times_all(), self.controller.is_least());
        let launches = self.controller.launches();
        let cost = self.controller.after(&interval);
        let (length_ns, ppm) = (interval.length_ns, cost.sum_ns() / interval.length_ns.max(1.0) * 1e6);
        let during = |was: bool| if was { length_ns } else { 0.0 };
        for (counter, amount) in [
            (Counter::BudgetWallNs, length_ns),
            (Counter::BudgetAllowedNs, length_ns * self.budget.fraction()),
            (Counter::BudgetHooksNs, cost.hooks_ns),
            (Counter::BudgetRecordsNs, cost.records_ns),
            (Counter::BudgetSwitchesNs, cost.switches_ns),
            (Counter::BudgetLeastNs, during(was_least)),
            (Counter::BudgetFullNs, during(timed_all)),
            (Counter::BudgetUnstackedNs, during(launches == Launches::Unstacked)),
            (Counter::BudgetCountedNs, during(launches == Launches::Counted)),
            (Counter::BudgetIntervals, 1.0),
            (Counter::BudgetCostPpm, ppm),
            (Counter::BudgetCostPpmSquares, ppm * ppm),
        ] {
            session.count(counter, amount as u64);
        }
        Some((self.controller.windows(), self.controller.launches()))
    }
}
