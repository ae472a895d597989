//! A thousand simulated runs of which everything is known: whether the stated intervals hold.

use gputrace_wire::call::{Detail, Launch};
use gputrace_wire::cell::flag;

use super::drawn::{OutsideWindows, WindowPlan, WindowSchedule};
use super::{Estimates, Estimation};
use crate::aggregate::{Leaf, NO_DEVICE, StackKey, Stacks};
use crate::model::definitions::Definitions;
use crate::model::operation::{HostCall, Kernel, Operation, Timing, Verdict, What};

const MS: u64 = 1_000_000;

/// splitmix64, and what is made of it.
struct Draws(u64);

impl Draws {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (self.uniform() + 1e-12).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

fn operation(site: u32, at_ns: u64, ns: u64, window: Option<u32>) -> (Operation, StackKey) {
    let launch = Launch { function: site % 7, grid: [site, 1, 1], block: [128, 1, 1], ..Launch::default() };
    let call = HostCall {
        stack: site,
        start_ns: at_ns,
        window: window.map_or(0, |number| number << 1),
        flags: if window.is_some() { 0 } else { flag::UNTIMED },
        detail: Detail::Launch(launch),
        ..HostCall::default()
    };
    let leaf = Leaf::Kernel(site % 7);
    let key = StackKey { stack: site, ..StackKey::without_call(0, NO_DEVICE, leaf) };
    let operation = Operation {
        process: 0,
        what: What::Kernel(Kernel::default()),
        call: Some(call),
        timing: window.map(|_| Timing { start_ns: at_ns, duration_ns: ns }),
        device: 0,
        context: 0,
        stream: 0,
        graph: None,
        verdict: Verdict::None,
    };
    (operation, key)
}

#[derive(Default, Debug)]
struct HeldIntervals {
    runs: u32,
    total_holds: u32,
    kernels: u32,
    kernels_hold: u32,
    unmeasured: u64,
    untimed: u64,
    error_shares: f64,
}

/// A program that does the same 20 launches in each step, and each of five more in every seventh; durations
/// drift together, and vary.
fn run(run_ns: u64, step_ns: u64, seed: u64, coverage: &mut HeldIntervals) {
    const SITES: u32 = 25;
    let mut random = Draws(seed);
    let plan = WindowPlan { on_ns: 10 * MS, mean_ns: 100 * MS, seed, outside: OutsideWindows::Whole };
    let mut schedule = WindowSchedule::new(plan, 0, 0);
    let base: Vec<f64> = (0..SITES).map(|_| 10_000.0 * (1.5 + random.normal()).exp()).collect();
    let (period, phase) = (20.0 + 40.0 * random.uniform(), random.uniform());
    let mut estimates = Estimates::new(&Stacks::default());
    let definitions = Definitions::default();
    let (mut truth, mut measured) = ([0.0; 7], [0.0; 7]);
    for step in 0..run_ns / step_ns {
        let drift = 1.0 + 0.05 * (std::f64::consts::TAU * (step as f64 / period + phase)).sin();
        for site in (0..SITES).filter(|site| *site < 20 || step % 7 == 3) {
            let at_ns = step * step_ns + u64::from(site) * step_ns / u64::from(SITES);
            let ns = (base[site as usize] * drift * (1.0 + 0.03 * random.normal())).max(1.0);
            let window = schedule.window(at_ns, at_ns + 3_000);
            let (operation, key) = operation(site, at_ns, ns as u64, window);
            estimates.operation(&operation, key, &definitions);
            let name = (site % 7) as usize;
            truth[name] += (ns as u64) as f64;
            measured[name] += operation.timing.map_or(0.0, |timing| timing.duration_ns as f64);
            coverage.untimed += u64::from(operation.timing.is_none());
        }
    }
    let estimation = Estimation::new(&estimates);
    let total = estimation.total();
    coverage.runs += 1;
    coverage.unmeasured += total.unmeasured;
    let by_name = estimation.sums(|row, groups| {
        groups.extend(match row.key.leaf {
            Leaf::Kernel(name) => Some(name as usize),
            _ => None,
        });
    });
    for (name, truth) in truth.iter().enumerate() {
        let sum = by_name.get(&name).copied().unwrap_or_default();
        if sum.unmeasured == 0 {
            coverage.kernels += 1;
            coverage.kernels_hold += u32::from((measured[name] + sum.ns - truth).abs() <= sum.error_ns);
        }
    }
    if total.unmeasured > 0 {
        coverage.runs -= 1;
        return;
    }
    let (all, known): (f64, f64) = (truth.iter().sum(), measured.iter().sum());
    coverage.total_holds += u32::from((known + total.ns - all).abs() <= total.error_ns);
    coverage.error_shares += total.error_ns / all;
}

#[test]
fn intervals_hold_in_a_thousand_runs() {
    for (run_ns, step_ns, runs) in
        [(20_000 * MS, 100 * MS, 500), (5_000 * MS, 25 * MS, 350), (5_000 * MS, 11_300_000, 150)]
    {
        let mut coverage = HeldIntervals::default();
        (0..runs).for_each(|seed| run(run_ns, step_ns, seed, &mut coverage));
        let share = |part: u32, all: u32| f64::from(part) / f64::from(all);
        let text = format!("steps of {step_ns} ns: {coverage:?}");
        assert!(share(coverage.total_holds, coverage.runs) >= 0.90, "{text}");
        assert!(share(coverage.kernels_hold, coverage.kernels) >= 0.90, "{text}");
        // An interval that always holds because it is wide is worth nothing.
        assert!(coverage.error_shares / f64::from(coverage.runs) < 0.05, "{text}");
        assert!((coverage.unmeasured as f64) < 0.03 * coverage.untimed as f64, "{text}");
    }
}

#[derive(Default, Debug)]
struct HeldLines {
    lines: u32,
    times_hold: u32,
    calls_hold: u32,
    error_shares: f64,
}

/// A program whose 24 lines launch six kernels, each from four lines with a configuration in common. Some
/// lines launch in each step, others in every third or by chance. Of launches outside of windows the stack is
/// not known, or nothing but the kernel.
fn run_without_stacks(run_ns: u64, step_ns: u64, seed: u64, outside: OutsideWindows, held: &mut HeldLines) {
    const LINES: u32 = 24;
    const KERNELS: u32 = 6;
    let mut random = Draws(seed);
    let plan = WindowPlan { on_ns: 10 * MS, mean_ns: 100 * MS, seed, outside };
    let mut schedule = WindowSchedule::new(plan, 0, 0);
    let base: Vec<f64> = (0..LINES).map(|_| 10_000.0 * (1.5 + 0.5 * random.normal()).exp()).collect();
    let mut estimates = Estimates::new(&Stacks::default());
    let definitions = Definitions::default();
    let mut times = [(0.0, 0.0); LINES as usize];
    let mut calls = [(0u64, 0u64); LINES as usize];
    for step in 0..run_ns / step_ns {
        let drift = 1.0 + 0.05 * (std::f64::consts::TAU * step as f64 / 37.0).sin();
        for line in 0..LINES {
            let launches = match line % 4 {
                0 | 1 => 1,
                2 => 3 * u64::from(step % 3 == 1),
                _ => 2 * u64::from(random.uniform() < 0.4),
            };
            for launch in 0..launches {
                let at_ns = step * step_ns + (u64::from(line) * 3 + launch) * step_ns / 80;
                let ns = (base[line as usize] * drift * (1.0 + 0.03 * random.normal())).max(1.0) as u64;
                let window = schedule.window(at_ns, at_ns + 3_000);
                let (mut operation, mut key) = operation(line + 1, at_ns, ns, window);
                let call = operation.call.as_mut().unwrap();
                call.thread = 1 + line % 2;
                let function = 1 + line % KERNELS;
                call.detail = Detail::Launch(Launch {
                    function,
                    grid: [4, 1, 1],
                    block: [64, 1, 1],
                    ..Launch::default()
                });
                key = StackKey { thread: call.thread, leaf: Leaf::Kernel(function), ..key };
                let (all, known) = (&mut times[line as usize], &mut calls[line as usize]);
                all.0 += ns as f64;
                known.0 += 1;
                if window.is_some() {
                    all.1 += ns as f64;
                    known.1 += 1;
                } else if outside == OutsideWindows::Counted {
                    estimates.counted(1, function, StackKey { stack: 0, thread: 0, ..key });
                    continue;
                } else {
                    (call.stack, call.flags) = (0, flag::UNTIMED | flag::UNSTACKED);
                    key.stack = 0;
                }
                estimates.operation(&operation, key, &definitions);
            }
        }
    }
    let estimation = Estimation::new(&estimates);
    assert_eq!(estimation.total().unmeasured, 0);
    assert_eq!(estimation.total().calls_error.round(), 0.0);
    // Whatever the lines get, a kernel's calls are those that were counted.
    let by_kernel = estimation.sums(|row, kernels| kernels.push(row.key.leaf));
    for kernel in 0..KERNELS {
        let lines = (0..LINES).filter(|line| line % KERNELS == kernel);
        let left: u64 = lines.map(|line| calls[line as usize]).map(|(all, known)| all - known).sum();
        let of_kernel = by_kernel[&Leaf::Kernel(1 + kernel)];
        assert_eq!((of_kernel.calls, of_kernel.calls_error.round()), (left, 0.0));
    }
    let mut placed = [0u64; LINES as usize];
    for row in estimates.placed() {
        placed[row.key.stack as usize - 1] += row.calls;
    }
    let by_line = estimation.sums(|row, stacks| stacks.push(row.key.stack));
    for line in 0..LINES as usize {
        let sum = by_line[&(line as u32 + 1)];
        assert_eq!(sum.calls, placed[line]);
        let (all, known) = times[line];
        held.lines += 1;
        held.times_hold += u32::from((known + sum.ns - all).abs() <= sum.error_ns);
        held.error_shares += sum.error_ns / all;
        let (all, known) = calls[line];
        // Calls are whole numbers, so that they may be off by one in each row.
        held.calls_hold += u32::from((known + sum.calls).abs_diff(all) as f64 <= sum.calls_error + 1.0);
    }
}

#[test]
fn intervals_of_lines_hold_where_launches_have_no_stack() {
    for outside in [OutsideWindows::Unstacked, OutsideWindows::Counted] {
        for (run_ns, step_ns, runs) in [(20_000 * MS, 50 * MS, 120), (20_000 * MS, 7_300_000, 80)] {
            let mut held = HeldLines::default();
            (0..runs).for_each(|seed| run_without_stacks(run_ns, step_ns, seed, outside, &mut held));
            let share = |part: u32| f64::from(part) / f64::from(held.lines);
            let text = format!("{outside:?}, steps of {step_ns} ns: {held:?}");
            assert!(share(held.times_hold) >= 0.90 && share(held.calls_hold) >= 0.90, "{text}");
            assert!(held.error_shares / f64::from(held.lines) < 0.4, "{text}");
        }
    }
}
