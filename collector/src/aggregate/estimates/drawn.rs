//! Windows drawn over a recording that has all device times: what a session by windows would have timed. Its
//! estimates can then be compared with the times that are known.

use std::str::FromStr;

use gputrace_wire::cell::flag;
use gputrace_wire::windows::Windows;
use rustc_hash::FxHashMap;

use crate::model::operation::{HostCall, Operation};

/// What is recorded of launches outside of windows, as a budget may choose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutsideWindows {
    Whole,
    /// All but their stack.
    Unstacked,
    /// How many there were of each kernel on each stream.
    Counted,
}

/// Windows of that length, on average so long from start to start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowPlan {
    pub on_ns: u64,
    pub mean_ns: u64,
    pub seed: u64,
    pub outside: OutsideWindows,
}

impl FromStr for WindowPlan {
    type Err = String;

    /// `10ms/100ms`, `10ms/100ms,7` or `10ms/100ms,7,stacks`: length, mean from start to start, which
    /// schedule of those, and what is recorded of launches outside of windows: with `stacks`, stacks of those
    /// in windows only; with `counts`, how many there were.
    fn from_str(text: &str) -> Result<WindowPlan, String> {
        let (lengths, rest) = text.split_once(',').unwrap_or((text, "1"));
        let (seed, outside) = rest.split_once(',').unwrap_or((rest, ""));
        let outside = match outside {
            "" => OutsideWindows::Whole,
            "stacks" => OutsideWindows::Unstacked,
            "counts" => OutsideWindows::Counted,
            _ => return Err(format!("{outside:?} is neither \"stacks\" nor \"counts\"")),
        };
        let windows = Windows::parse(lengths)?;
        Ok(WindowPlan {
            on_ns: u64::from(windows.on_us) * 1_000,
            mean_ns: u64::from(windows.mean_us) * 1_000,
            seed: seed.parse().map_err(|_| format!("{seed:?} is not the number of a schedule"))?,
            outside,
        })
    }
}

/// The windows of one process. The gaps are exponential, so that windows see time averages whatever the
/// program's rhythm is.
#[derive(Clone, Debug)]
pub struct WindowSchedule {
    plan: WindowPlan,
    random: u64,
    /// Starts, in order, so far.
    starts: Vec<u64>,
}

impl WindowSchedule {
    pub fn new(plan: WindowPlan, process: u32, begin_ns: u64) -> WindowSchedule {
        let random = plan.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(process) << 40;
        let mut schedule = WindowSchedule { plan, random, starts: Vec::new() };
        let first = begin_ns.saturating_add(schedule.gap_ns());
        schedule.starts.push(first);
        schedule
    }

    /// splitmix64.
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn gap_ns(&mut self) -> u64 {
        let uniform = ((self.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        (-uniform.ln() * (self.plan.mean_ns - self.plan.on_ns) as f64) as u64
    }

    /// The number of the window, from 1 on, in which a call lies wholly.
    pub fn window(&mut self, from_ns: u64, to_ns: u64) -> Option<u32> {
        while self.starts.last().is_some_and(|start| *start <= to_ns) {
            let last = self.starts.last().copied().unwrap_or(0);
            let gap_ns = self.gap_ns();
            self.starts.push(last.saturating_add(self.plan.on_ns).saturating_add(gap_ns).max(last + 1));
        }
        let number = self.starts.partition_point(|start| *start <= from_ns);
        let start = *self.starts.get(number.checked_sub(1)?)?;
        (to_ns < start.saturating_add(self.plan.on_ns)).then_some(number as u32)
    }
}

/// The schedules of all processes of a recording.
#[derive(Clone, Debug)]
pub struct DrawnWindows {
    plan: WindowPlan,
    schedules: FxHashMap<u32, WindowSchedule>,
}

impl DrawnWindows {
    pub fn new(plan: WindowPlan) -> DrawnWindows {
        DrawnWindows { plan, schedules: FxHashMap::default() }
    }

    pub fn process_begins(&mut self, process: u32, begin_ns: u64) {
        self.schedules.entry(process).or_insert_with(|| WindowSchedule::new(self.plan, process, begin_ns));
    }

    pub fn plan(&self) -> WindowPlan {
        self.plan
    }

    /// Writes into a call whether it lies in a window, and in which.
    pub fn mark(&mut self, call: &mut HostCall) {
        let (plan, process, start_ns) = (self.plan, call.process, call.start_ns);
        let schedule = self.schedules.entry(process);
        let schedule = schedule.or_insert_with(|| WindowSchedule::new(plan, process, start_ns));
        match schedule.window(start_ns, start_ns.saturating_add(call.duration_ns)) {
            Some(number) => call.window = number << 1,
            None => call.flags |= flag::UNTIMED,
        }
    }

    /// Leaves the operation its times if its call lies in a window, and takes them away if not.
    pub fn apply(&mut self, operation: &mut Operation) {
        let Some(call) = &mut operation.call else { return };
        self.mark(call);
        if call.window == 0 {
            operation.timing = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_take_their_share_of_the_time_and_never_overlap() {
        let plan: WindowPlan = "10ms/100ms,3".parse().unwrap();
        let mut schedule = WindowSchedule::new(plan, 0, 1_000);
        let inside = (0..1_000_000).filter(|at| schedule.window(at * 100_000, at * 100_000 + 5).is_some());
        let share = inside.count() as f64 / 1e6;
        assert!((0.09..0.11).contains(&share), "{share}");
        assert!(schedule.starts.windows(2).all(|pair| pair[1] - pair[0] >= plan.on_ns));
        let start = schedule.starts[4];
        assert_eq!(schedule.window(start, start + 9_999_999), Some(5));
        assert_eq!(schedule.window(start, start + 10_000_000), None);
        let mut other = WindowSchedule::new(WindowPlan { seed: 4, ..plan }, 0, 1_000);
        assert_ne!(other.starts[0], schedule.starts[0]);
        assert_eq!(other.window(0, 1), None);
    }

    #[test]
    fn plans_that_make_no_sense_are_rejected() {
        let parse = |text: &str| text.parse::<WindowPlan>().map_err(|error| error.to_string());
        assert_eq!(parse("10ms/1s,4,counts").map(|plan| plan.outside), Ok(OutsideWindows::Counted));
        assert_eq!(
            parse("500us/2s"),
            Ok(WindowPlan {
                on_ns: 500_000,
                mean_ns: 2_000_000_000,
                seed: 1,
                outside: OutsideWindows::Whole
            })
        );
        for (text, why) in [
            ("10ms", "two times with a unit"),
            ("100ms/10ms", "must be shorter"),
            ("1ms/9ms,x", "\"x\" is not the number"),
            ("1ms/9ms,1,all", "\"all\" is neither"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
