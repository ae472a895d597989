//! The GPU waits for the program: synchronisations in a loop, launches that take longer than kernels, slow
//! host code.

use super::input::{ByLine, RuleInput, most, sum, weight};
use super::{Confidence, Finding};
use crate::aggregate::{CallClass, Cause};
use crate::label::units::{count, duration, percent};
use crate::model::operation::Direction;
use crate::report::idle::IdleLine;

/// So many waits at a line are a loop.
const LOOP_MIN: u64 = 10;
/// The least part of the time that is a fault of this kind.
const SHARE_MIN: f64 = 0.05;
/// So many gaps are a program that launches all the time.
const LAUNCHES_MIN: u64 = 100;
/// The least part of the time that launches take.
const LAUNCHES_SHARE_MIN: f64 = 0.15;
/// Between two launches a program spends less than this on launching.
const LAUNCHING_NS: u64 = 100_000;
/// Longer kernels are launched by the time that they are needed, unless gaps are as long.
const SHORT_NS: u64 = 20_000;
/// What happens less often is a start or an end, unless it takes long.
const TIMES_MIN: u64 = 3;
const LONG_NS: u64 = 1_000_000_000;
/// The part of the idle time from which on loads of modules are named beside it, where no lines are known.
const LOADS_MIN: f64 = 0.2;
/// Findings about single lines of host code.
const SLOW_SHOWN: usize = 2;

pub(super) fn find(input: &RuleInput<'_>, to: &mut Vec<Finding>) {
    let (after_waits, others): (Vec<&IdleLine>, Vec<&IdleLine>) =
        input.idle.iter().partition(|line| is_after_wait(input, line));
    let others: Vec<&IdleLine> = others.into_iter().filter(|line| !is_in_calls(input, line)).collect();
    to.extend(waits(input, &after_waits));
    to.extend(launches(input, &others));
    slow_host_code(input, &after_waits, &others, to);
}

/// Whether it is idle time that a synchronisation made: in its call, or until the next launch after it.
fn is_after_wait(input: &RuleInput<'_>, line: &IdleLine) -> bool {
    let Some(from) = line.from.as_ref().filter(|_| !input.has_loads(line)) else { return false };
    let waits = input.calls_at(CallClass::Wait, from).count;
    match line.cause {
        Cause::Sync => waits >= LOOP_MIN,
        Cause::Host => waits >= LOOP_MIN && waits.saturating_mul(2) >= line.pieces,
        _ => false,
    }
}

/// Whether loading code or allocating memory took most of it: other rules speak of those.
fn is_in_calls(input: &RuleInput<'_>, line: &IdleLine) -> bool {
    let Some(at) = &line.to else { return false };
    let allocs = input.calls_at(CallClass::Alloc, at).ns;
    input.has_loads(line) || line.cause == Cause::Host && allocs >= line.ns / 2
}

/// Without the wait, the host would be ahead: what it does then, it does while the GPU works.
fn overlapped(input: &RuleInput<'_>, ns: u64) -> u64 {
    ns.min(input.busy_ns)
}

fn waits(input: &RuleInput<'_>, after_waits: &[&IdleLine]) -> Option<Finding> {
    let mut lines = ByLine::new();
    for line in after_waits {
        if let Some(from) = &line.from {
            lines.entry(from.clone()).or_default().add(weight(line));
        }
    }
    let mut idle_ns = sum(lines.values().map(|weight| weight.ns));
    let mut waits = sum(lines.keys().map(|line| input.calls_at(CallClass::Wait, line).count));
    let mut host_ns = sum(after_waits.iter().filter(|line| line.cause == Cause::Host).map(|line| line.ns));
    if !input.has_lines() {
        let (ns, _, calls) = after_waits_without_lines(input)?;
        (host_ns, waits) = (ns, calls);
        idle_ns = sum([host_ns, input.idle_of(&[Cause::Sync]).0]);
    }
    // After each wait a launch begins anew, and what was waited for is often a copy.
    let (launch_ns, launches) = input.idle_of(&[Cause::Launch]);
    let launching_ns = launch_ns / launches.max(1) * launches.min(waits);
    let copies = lines.keys().map(|line| input.copies_at(Direction::GpuToCpu, line).ns);
    let waiting_ns = sum([idle_ns.saturating_sub(host_ns), launching_ns, sum(copies)]);
    let saves_ns = overlapped(input, host_ns).saturating_add(waiting_ns);
    if input.share(saves_ns) < SHARE_MIN || waits < LOOP_MIN {
        return None;
    }
    Some(Finding {
        rule: "sync_in_loop",
        title: format!(
            "The program waits for the GPU {} times, and after each wait the GPU waits for the program: {} in all",
            count(waits),
            duration(idle_ns)
        ),
        lines: most(&lines),
        advice: "Wait less often: keep results on the GPU (no .item(), .cpu(), print or synchronize in the loop), \
                 or read them some steps later"
            .to_owned(),
        saves: input.saves(saves_ns),
        basis: "idle time in the waits, a launch for each, copies from the GPU at these lines; and of the host's time \
                after the waits as much as the GPU is busy, which it could overlap",
        confidence: Confidence::High,
    })
}

/// Of a program without stacks: host time between operations and in how many pieces, and how many waits
/// there were, if there was about one in each piece.
fn after_waits_without_lines(input: &RuleInput<'_>) -> Option<(u64, u64, u64)> {
    let (host_ns, pieces) = input.idle_of(&[Cause::Host]);
    let waits = input.class(CallClass::Wait)?.calls;
    (!input.has_lines() && waits.saturating_mul(2) >= pieces).then_some((host_ns, pieces, waits))
}

fn launches(input: &RuleInput<'_>, others: &[&IdleLine]) -> Option<Finding> {
    let mut lines = ByLine::new();
    let (mut idle_ns, mut gaps) = (0, 0);
    for line in others {
        let is_short = line.ns / line.pieces.max(1) < LAUNCHING_NS;
        if matches!(line.cause, Cause::Host | Cause::Launch) && is_short {
            (idle_ns, gaps) = (line.ns.saturating_add(idle_ns), gaps + line.pieces);
            if let Some(at) = line.to.as_ref().or(line.from.as_ref()) {
                lines.entry(at.clone()).or_default().add(weight(line));
            }
        }
    }
    if !input.has_lines() {
        // All that is known is the sum.
        let causes = [Cause::Host, Cause::Launch];
        let is_waiting = after_waits_without_lines(input).is_some_and(|(_, _, waits)| waits >= LOOP_MIN);
        (idle_ns, gaps) = input.idle_of(if is_waiting { &causes[1..] } else { &causes });
        if idle_ns / gaps.max(1) >= LAUNCHING_NS {
            return None;
        }
    }
    let launches = input.report.counts.launches;
    if gaps < LAUNCHES_MIN || launches < LAUNCHES_MIN || input.share(idle_ns) < LAUNCHES_SHARE_MIN {
        return None;
    }
    let kernel_ns = input.kernels_ns();
    let kernels: u64 = sum(input.report.kernels.iter().map(|kernel| kernel.timed_calls));
    let mean_ns = kernel_ns / kernels.max(1);
    if mean_ns > SHORT_NS.max(idle_ns / gaps.max(1)) {
        return None;
    }
    Some(Finding {
        rule: "launch_bound",
        title: format!(
            "The GPU waits for launches: {} kernels of {} on average{}, and one launch every {}",
            count(kernels),
            duration(mean_ns),
            in_module(input),
            duration(input.span_ns / launches.max(1)),
        ),
        lines: most(&lines),
        advice: "Launch less: capture the loop as a CUDA graph (torch.cuda.graph, \
                 torch.compile(mode=\"reduce-overhead\")), fuse kernels (torch.compile), or make the batch larger"
            .to_owned(),
        saves: input.saves(idle_ns),
        basis: "idle time in short gaps before launches",
        confidence: Confidence::High,
    })
}

/// Lines between which the GPU has nothing to do for long.
fn slow_host_code(
    input: &RuleInput<'_>,
    after_waits: &[&IdleLine],
    others: &[&IdleLine],
    to: &mut Vec<Finding>,
) {
    let hosts = after_waits.iter().filter(|line| line.cause == Cause::Host);
    let waited_ns = sum(hosts.map(|line| line.ns));
    // What waiting less often would not hide.
    let left = 1.0 - overlapped(input, waited_ns) as f64 / waited_ns.max(1) as f64;
    let after = after_waits.iter().map(|line| (*line, (line.ns as f64 * left) as u64));
    let mut slow: Vec<(&IdleLine, u64)> = others
        .iter()
        .map(|line| (*line, line.ns))
        .chain(after)
        .filter(|(line, _)| line.cause == Cause::Host && line.ns / line.pieces.max(1) >= LAUNCHING_NS)
        .filter(|(line, ns)| input.share(*ns) >= SHARE_MIN && (line.pieces >= TIMES_MIN || *ns >= LONG_NS))
        .collect();
    slow.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    for (line, saves_ns) in slow.into_iter().take(SLOW_SHOWN) {
        let next = line.to.as_ref().or(line.from.as_ref());
        let copies = next.map(|at| input.copies_at(Direction::CpuToGpu, at)).unwrap_or_default();
        let is_repeated = line.pieces >= TIMES_MIN;
        let is_loading = is_repeated && copies.count.saturating_mul(2) >= line.pieces;
        let turns = is_repeated && is_loop_turn(line);
        let (rule, advice) = match (is_loading, turns) {
            _ if !is_repeated => (
                "slow_host_code",
                "This is no part of a loop: a program's start, such as imports or the loading of a model, costs a longer run \
                 as much and no more",
            ),
            (true, true) => (
                "data_loading",
                "In this time the loop gets its next item, and a copy to the GPU follows: load data ahead (DataLoader with \
                 num_workers, pin_memory and prefetch_factor), or do the preparation on the GPU",
            ),
            (true, false) => (
                "data_loading",
                "A copy to the GPU follows: if this loads data, load it ahead (DataLoader with num_workers, pin_memory \
                 and prefetch_factor), or do the preparation on the GPU",
            ),
            (false, true) => (
                "slow_host_code",
                "In this time the loop gets its next item: if that is what takes long, get it ahead in another thread or \
                 process; else do this work while the GPU is busy, or less of it",
            ),
            (false, false) => (
                "slow_host_code",
                "Do this work while the GPU is busy (another thread or process, or launch the next step before it), or less of it",
            ),
        };
        to.push(Finding {
            rule,
            title: nothing_to_do(line.ns, line.pieces, if turns { TURNS } else { HOST_CODE }),
            lines: [&line.from, &line.to].into_iter().flatten().cloned().fold(Vec::new(), distinct),
            advice: advice.to_owned(),
            saves: input.saves(saves_ns),
            basis: "idle time between these lines that waiting less often would not save",
            confidence: Confidence::Medium,
        });
    }
    if !input.has_lines() {
        to.extend(slow_host_code_without_lines(input));
    }
}

fn slow_host_code_without_lines(input: &RuleInput<'_>) -> Option<Finding> {
    let (ns, pieces) = input.idle_of(&[Cause::Host]);
    let waited_ns = after_waits_without_lines(input).map_or(0, |(ns, ..)| overlapped(input, ns));
    let saves_ns = ns - waited_ns;
    let is_long = ns / pieces.max(1) >= LAUNCHING_NS && (pieces >= TIMES_MIN || ns >= LONG_NS);
    let loads_ns = input.class(CallClass::ModuleLoad).and_then(|loads| loads.spread.total_ns);
    let loads = loads_ns.filter(|loads_ns| *loads_ns as f64 >= ns as f64 * LOADS_MIN);
    let loads = loads.map(|ns| format!("; loading modules took {} in the whole run", duration(ns)));
    (is_long && input.share(saves_ns) >= SHARE_MIN).then(|| Finding {
        rule: "slow_host_code",
        title: nothing_to_do(ns, pieces, HOST_CODE) + &loads.unwrap_or_default(),
        lines: Vec::new(),
        advice: "Record with stacks (--stacks native for programs without Python) to see where it is"
            .to_owned(),
        saves: input.saves(saves_ns),
        basis: "idle time in host code that waiting less often would not save",
        confidence: Confidence::Medium,
    })
}

const HOST_CODE: &str = "while the program runs host code";
const TURNS: &str = "from the end of a loop's round to the begin of the next";

fn nothing_to_do(ns: u64, pieces: u64, when: &str) -> String {
    let each = duration(ns / pieces.max(1));
    let times = if pieces == 1 { String::new() } else { format!("{} times, ", count(pieces)) };
    let of = if pieces == 1 { "" } else { " on average," };
    format!("The GPU has nothing to do {times}for {each}{of} {when}")
}

/// Whether the function goes back to an earlier line in that time, as a loop does that gets its next item.
fn is_loop_turn(line: &IdleLine) -> bool {
    let Some((from, to)) = line.from.as_ref().zip(line.to.as_ref()) else { return false };
    let is_same = (&from.path, &from.function) == (&to.path, &to.function);
    is_same && from.path.is_some() && line.pieces > 1 && from.line > to.line
}

/// ` (98% of them in LlamaDecoderLayer)`, if most operations are of one class of PyTorch modules.
fn in_module(input: &RuleInput<'_>) -> String {
    let modules = input.report.modules.as_ref();
    match modules.and_then(|modules| modules.most_of(input.report.counts.executed_operations)) {
        Some((class, part)) => format!(" ({} of them in {class})", percent(part)),
        None => String::new(),
    }
}

fn distinct<T: PartialEq>(mut all: Vec<T>, next: T) -> Vec<T> {
    if all.last() != Some(&next) {
        all.push(next);
    }
    all
}
