//! The program's lines with the operations that each caused.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use crate::aggregate::{Aggregates, LaunchSums, Leaf, Owner, StackKey, Weight};
use crate::label::{Labels, Line, NO_LINE, StackFrame, StackNames};
use crate::report::EstimatedTime;
use crate::report::estimated::ReportEstimates;
use crate::report::json::{LaunchesReport, device_ns, share};
use crate::report::table::fit;

/// Kernels that a line's report lists.
const KERNELS_KEPT: usize = 8;

/// A line of the program and the operations that it caused.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LineReport {
    #[serde(flatten)]
    pub location: CodeLocation,
    /// Whether the file is user code, and not a library's.
    pub own: bool,
    /// Operations whose stack contains this line.
    pub calls: u64,
    pub timed_calls: u64,
    pub total_ns: Option<u64>,
    /// Of the device time of all operations.
    pub share: Option<f64>,
    /// Operations whose innermost frame is this line.
    pub self_calls: u64,
    pub self_ns: Option<u64>,
    /// Operations charged to this line. Each operation is charged to one line: the innermost of user code, or
    /// the innermost if there is none. A `<string>` counts as user code only if there is no other.
    pub charged_calls: u64,
    pub charged_ns: Option<u64>,
    pub charged_share: Option<f64>,
    /// Of all charged operations, where only a part of the operations has device times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<EstimatedTime>,
    /// The charged operations by kernel: the few with the most device time, in that order.
    pub charged_kernels: Vec<ChargedReport>,
    /// Charged launches of which the call and the kernel have times; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launches: Option<LaunchesReport>,
    /// Hooked calls of all kinds whose stack contains this line, and the host time in them.
    pub host_calls: u64,
    pub host_total_ns: u64,
    pub charged_host_calls: u64,
    pub charged_host_ns: u64,
    /// Graph nodes whose launch has this line in its stack. `calls` counts the same nodes at the lines that
    /// captured them.
    pub replayed_calls: u64,
    pub replayed_ns: Option<u64>,
    /// Graph nodes whose launch is charged to this line.
    pub charged_replayed_calls: u64,
    pub charged_replayed_ns: Option<u64>,
}

/// Operations of one kind that are charged to one line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ChargedReport {
    /// A kernel's short name, else the name in the flamegraph.
    pub name: String,
    pub calls: u64,
    pub total_ns: Option<u64>,
}

/// A line of a function of a file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CodeLocation {
    pub function: String,
    /// The short name, unique in the report; null for an unknown frame.
    pub file: Option<String>,
    pub path: Option<String>,
    pub line: Option<u32>,
}

/// Operations and calls without a known line.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NoLineReport {
    pub calls: u64,
    pub timed_calls: u64,
    pub total_ns: u64,
    pub host_calls: u64,
    pub host_total_ns: u64,
    /// Of all of these operations, where only a part of the operations has device times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<EstimatedTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launches: Option<LaunchesReport>,
}

impl CodeLocation {
    pub fn new(stacks: &StackNames<'_>, frame: &StackFrame) -> CodeLocation {
        match stacks.line(frame) {
            Some(line) => CodeLocation::of(line),
            None => CodeLocation { function: stacks.text(frame), ..CodeLocation::default() },
        }
    }

    fn of(line: &Line) -> CodeLocation {
        CodeLocation {
            function: line.function.to_string(),
            file: Some(line.file.to_string()),
            path: Some(line.path.to_string()),
            line: Some(line.line).filter(|line| *line != NO_LINE),
        }
    }

    /// `train.py:22 train_step`.
    pub fn text(&self) -> String {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => format!("{file}:{line} {}", self.function),
            (Some(file), None) => format!("{file} {}", self.function),
            _ => self.function.clone(),
        }
    }

    /// The text in at most `width` characters. The function is shortened first, to keep the line number.
    pub fn fitted(&self, width: usize) -> String {
        const FUNCTION_MIN: usize = 4;
        let file = CodeLocation { function: String::new(), ..self.clone() }.text();
        match width.checked_sub(file.chars().count()) {
            Some(left) if left >= FUNCTION_MIN => file + &fit(&self.function, left),
            _ => fit(file.trim_end(), width),
        }
    }
}

/// A stack's innermost frames, innermost first.
pub(super) fn innermost(stacks: &mut StackNames<'_>, process: u32, stack: u32) -> Vec<CodeLocation> {
    const KEPT: usize = 16;
    let frames = stacks.frames(process, stack);
    frames.iter().rev().take(KEPT).map(|frame| CodeLocation::new(stacks, frame)).collect()
}

/// A line's weights.
#[derive(Clone, Copy, Debug, Default)]
struct LineWeights {
    /// Of stacks that contain the line.
    under: Weight,
    /// Of stacks whose innermost frame is the line.
    itself: Weight,
    /// Of stacks that are charged to the line.
    charged: Weight,
}

/// What is summed for a line.
#[derive(Clone, Debug, Default)]
struct LineSums {
    device: LineWeights,
    host: LineWeights,
    /// Graph nodes under the stack that launched the graph.
    replayed: LineWeights,
    /// Charged operations by name.
    kernels: BTreeMap<Arc<str>, Weight>,
    launches: LaunchSums,
}

/// The line with the most charged device time first, or host time if no device time is known.
pub(super) fn lines(
    aggregates: &Aggregates,
    labels: &mut Labels<'_>,
    estimates: Option<&ReportEstimates>,
) -> (Vec<LineReport>, NoLineReport) {
    let Labels { kernels: names, stacks, .. } = labels;
    let mut found: FxHashMap<StackFrame, LineSums> = FxHashMap::default();
    let device = aggregates.device_stacks.sorted();
    let no_device = add(
        &device,
        stacks,
        &mut found,
        |sums| &mut sums.device,
        |sums, process, leaf, weight| {
            if let Some(name) = names.leaf(process, leaf) {
                sums.kernels.entry(name).or_default().add(weight);
            }
        },
    );
    let host = aggregates.host_stacks.sorted();
    let no_host = add(&host, stacks, &mut found, |sums| &mut sums.host, |_, _, _, _| {});
    let replays: Vec<_> = device
        .iter()
        .filter(|(key, _)| key.owner != Owner::Call)
        .map(|(key, weight)| (key.by_replay(), *weight))
        .collect();
    add(&replays, stacks, &mut found, |sums| &mut sums.replayed, |_, _, _, _| {});
    let no_line_launches = add_launches(aggregates, stacks, &mut found);
    let all_ns = aggregates.device_stacks.total_ns();
    let estimated = estimates.map(|estimates| estimates.lines(stacks));
    let estimate_of = |frame: Option<&StackFrame>, charged: Weight| {
        let estimate = estimated.as_ref()?.get(&frame.cloned()).copied().unwrap_or_default();
        Some(EstimatedTime::new(charged.ns, &estimate))
    };
    let known = found.iter().filter_map(|(frame, sums)| Some((frame, stacks.line(frame)?, sums)));
    let report = |(frame, line, sums): (&StackFrame, &Line, &LineSums)| LineReport {
        estimate: estimate_of(Some(frame), sums.device.charged),
        ..line_report(line, sums, all_ns)
    };
    let report = |found| match (report(found), estimates) {
        (line @ LineReport { estimate: Some(estimate), .. }, Some(estimates)) => {
            LineReport { charged_share: estimates.share(&estimate), ..line }
        }
        (line, _) => line,
    };
    let mut lines: Vec<LineReport> = known.map(report).collect();
    let timed = aggregates.device_stacks.has_times();
    let weight = |line: &LineReport| {
        let host_ns = if timed { 0 } else { line.charged_host_ns };
        (line.charged_time_ns(), host_ns, line.charged_calls, line.total_ns, line.calls)
    };
    lines.sort_by(|a, b| weight(b).cmp(&weight(a)).then_with(|| a.location.cmp(&b.location)));
    let no_line = NoLineReport {
        calls: no_device.count,
        timed_calls: no_device.timed,
        total_ns: no_device.ns,
        estimate: estimate_of(None, no_device),
        host_calls: no_host.count,
        host_total_ns: no_host.ns,
        launches: LaunchesReport::new(&no_line_launches),
    };
    (lines, no_line)
}

/// Adds weights to lines, on one `side` of their sums, and calls `charge` for each leaf with the line that it
/// is charged to. Returns the weight without a line.
fn add(
    weights: &[(StackKey, Weight)],
    stacks: &mut StackNames<'_>,
    found: &mut FxHashMap<StackFrame, LineSums>,
    side: impl Fn(&mut LineSums) -> &mut LineWeights,
    mut charge: impl FnMut(&mut LineSums, u32, Leaf, Weight),
) -> Weight {
    let mut by_stack: BTreeMap<(u32, u32), Vec<(Leaf, Weight)>> = BTreeMap::new();
    for (key, weight) in weights {
        by_stack.entry((key.process, key.stack)).or_default().push((key.leaf, *weight));
    }
    let mut no_line = Weight::default();
    let mut lines: FxHashSet<StackFrame> = FxHashSet::default();
    for ((process, stack), leaves) in by_stack {
        let mut weight = Weight::default();
        leaves.iter().for_each(|(_, of_leaf)| weight.add(*of_leaf));
        let frames = stacks.frames(process, stack);
        let Some(charged) = stacks.charged(&frames) else {
            no_line.add(weight);
            continue;
        };
        let sums = found.entry(charged.clone()).or_default();
        side(sums).charged.add(weight);
        leaves.into_iter().for_each(|(leaf, weight)| charge(sums, process, leaf, weight));
        // The last frame is the innermost only if no frame is missing after it.
        if let Some(frame @ StackFrame::Line(_)) = frames.last() {
            side(found.entry(frame.clone()).or_default()).itself.add(weight);
        }
        // A recursive function has the same line more than once in the stack.
        lines.clear();
        lines.extend(frames.iter().filter(|frame| matches!(frame, StackFrame::Line(_))).cloned());
        for line in lines.drain() {
            side(found.entry(line).or_default()).under.add(weight);
        }
    }
    no_line
}

/// Adds launches to the lines that they are charged to. Returns those without a line.
fn add_launches(
    aggregates: &Aggregates,
    stacks: &mut StackNames<'_>,
    found: &mut FxHashMap<StackFrame, LineSums>,
) -> LaunchSums {
    let mut no_line = *aggregates.launch_stacks.beyond();
    for ((process, stack), launches) in aggregates.launch_stacks.sorted() {
        let frames = stacks.frames(process, stack);
        match stacks.charged(&frames) {
            Some(charged) => found.entry(charged.clone()).or_default().launches.merge(launches),
            None => no_line.merge(launches),
        }
    }
    no_line
}

/// The location that a stack's operations are charged to.
pub(super) fn charged_location(
    stacks: &mut StackNames<'_>,
    process: u32,
    stack: u32,
) -> Option<CodeLocation> {
    let frames = stacks.frames(process, stack);
    stacks.charged(&frames).map(|frame| CodeLocation::new(stacks, frame))
}

/// A line's charged operations by name.
fn charged_reports(kernels: &BTreeMap<Arc<str>, Weight>) -> Vec<ChargedReport> {
    let mut all: Vec<(&Arc<str>, &Weight)> = kernels.iter().collect();
    all.sort_by_key(|(_, weight)| std::cmp::Reverse((weight.ns, weight.count)));
    all.truncate(KERNELS_KEPT);
    all.iter()
        .map(|(name, weight)| ChargedReport {
            name: name.to_string(),
            calls: weight.count,
            total_ns: device_ns(**weight),
        })
        .collect()
}

fn line_report(line: &Line, sums: &LineSums, all_ns: u64) -> LineReport {
    let LineWeights { under, itself, charged } = sums.device;
    LineReport {
        location: CodeLocation::of(line),
        own: line.own,
        calls: under.count,
        timed_calls: under.timed,
        total_ns: device_ns(under),
        share: share(device_ns(under), all_ns),
        self_calls: itself.count,
        self_ns: device_ns(itself),
        charged_calls: charged.count,
        charged_ns: device_ns(charged),
        charged_share: share(device_ns(charged), all_ns),
        estimate: None,
        charged_kernels: charged_reports(&sums.kernels),
        launches: LaunchesReport::new(&sums.launches),
        host_calls: sums.host.under.count,
        host_total_ns: sums.host.under.ns,
        charged_host_calls: sums.host.charged.count,
        charged_host_ns: sums.host.charged.ns,
        replayed_calls: sums.replayed.under.count,
        replayed_ns: device_ns(sums.replayed.under),
        charged_replayed_calls: sums.replayed.charged.count,
        charged_replayed_ns: device_ns(sums.replayed.charged),
    }
}
