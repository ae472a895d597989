//! Where in the program work came from: its lines, with what ran under each.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use crate::aggregate::{Aggregates, Leaf, Owner, StackKey, Weight};
use crate::label::{Labels, Line, NO_LINE, StackFrame, StackNames};
use crate::report::table::fit;

/// Kernels told of a line.
const KERNELS_KEPT: usize = 8;

/// A line of the program and what came from it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LineReport {
    #[serde(flatten)]
    pub place: PlaceReport,
    /// Whether the file is the program's own, and not a library's.
    pub own: bool,
    /// Operations asked for at this line or under it.
    pub calls: u64,
    pub timed_calls: u64,
    pub total_ns: Option<u64>,
    /// Of the device time of all operations.
    pub share: Option<f64>,
    /// Those asked for by this line itself.
    pub self_calls: u64,
    pub self_ns: Option<u64>,
    /// Those that this line answers for. Each operation has one such line: the innermost that is
    /// the program's own (of a `<string>` only where there is no other), or else the innermost.
    pub charged_calls: u64,
    pub charged_ns: Option<u64>,
    pub charged_share: Option<f64>,
    /// What those were, the longest in all first, the first few.
    pub charged_kernels: Vec<ChargedReport>,
    /// Hooked calls of all kinds, at this line or under it, and the host's time in them.
    pub host_calls: u64,
    pub host_total_ns: u64,
    pub charged_host_calls: u64,
    pub charged_host_ns: u64,
    /// Nodes of graphs that were launched at this line or under it, wherever they were captured: these
    /// are among `calls` of the lines that captured them.
    pub replayed_calls: u64,
    pub replayed_ns: Option<u64>,
    /// Those for whose launches this line answers.
    pub charged_replayed_calls: u64,
    pub charged_replayed_ns: Option<u64>,
}

/// Operations of one kind, for which one line answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ChargedReport {
    /// Of a kernel its short name, else as in the flamegraph.
    pub name: String,
    pub calls: u64,
    pub total_ns: Option<u64>,
}

/// A line of a function of a file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize)]
pub struct PlaceReport {
    pub function: String,
    /// Short, unique in the report; null for a frame that is not known.
    pub file: Option<String>,
    pub path: Option<String>,
    pub line: Option<u32>,
}

/// What no line is known for.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct NoLineReport {
    pub calls: u64,
    pub timed_calls: u64,
    pub total_ns: u64,
    pub host_calls: u64,
    pub host_total_ns: u64,
}

impl PlaceReport {
    pub fn new(stacks: &StackNames<'_>, frame: &StackFrame) -> PlaceReport {
        match stacks.line(frame) {
            Some(line) => PlaceReport::of(line),
            None => PlaceReport { function: stacks.text(frame), ..PlaceReport::default() },
        }
    }

    fn of(line: &Line) -> PlaceReport {
        PlaceReport {
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

    /// The same in at most so many characters: the function gives way first, and what is left of the place ends with the line.
    pub fn fitted(&self, width: usize) -> String {
        const LEAST_OF_A_FUNCTION: usize = 4;
        let place = PlaceReport { function: String::new(), ..self.clone() }.text();
        match width.checked_sub(place.chars().count()) {
            Some(left) if left >= LEAST_OF_A_FUNCTION => place + &fit(&self.function, left),
            _ => fit(place.trim_end(), width),
        }
    }
}

/// The innermost frames of a stack, innermost first.
pub(super) fn innermost(stacks: &mut StackNames<'_>, process: u32, stack: u32) -> Vec<PlaceReport> {
    const KEPT: usize = 16;
    let frames = stacks.frames(process, stack);
    frames.iter().rev().take(KEPT).map(|frame| PlaceReport::new(stacks, frame)).collect()
}

/// What a line has: under it, by itself, and to answer for.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    under: Weight,
    itself: Weight,
    charged: Weight,
}

/// Device and host side.
#[derive(Clone, Debug, Default)]
struct Both {
    device: Share,
    host: Share,
    /// Nodes of graphs by the lines that launched the graphs.
    replayed: Share,
    kernels: BTreeMap<Arc<str>, Weight>,
}

/// The line that answers for the most first: by device time, by host time where there is none.
pub(super) fn lines(aggregates: &Aggregates, labels: &mut Labels<'_>) -> (Vec<LineReport>, NoLineReport) {
    let Labels { kernels: names, stacks, .. } = labels;
    let mut found: FxHashMap<StackFrame, Both> = FxHashMap::default();
    let device = aggregates.device_stacks.sorted();
    let no_device = add(
        &device,
        stacks,
        &mut found,
        |both| &mut both.device,
        |both, process, leaf, weight| {
            if let Some(name) = names.leaf(process, leaf) {
                both.kernels.entry(name).or_default().add(weight);
            }
        },
    );
    let host = aggregates.host_stacks.sorted();
    let no_host = add(&host, stacks, &mut found, |both| &mut both.host, |_, _, _, _| {});
    let replays: Vec<_> = device.iter().filter(|(key, _)| key.owner != Owner::Call).map(by_replay).collect();
    add(&replays, stacks, &mut found, |both| &mut both.replayed, |_, _, _, _| {});
    let all_ns = aggregates.device_stacks.total_ns();
    let known = found.iter().filter_map(|(frame, both)| Some((stacks.line(frame)?, both)));
    let mut lines: Vec<LineReport> = known.map(|(line, both)| line_report(line, both, all_ns)).collect();
    let timed = aggregates.device_stacks.has_times();
    let weight = |line: &LineReport| {
        let host_ns = if timed { 0 } else { line.charged_host_ns };
        (line.charged_ns, host_ns, line.charged_calls, line.total_ns, line.calls)
    };
    lines.sort_by(|a, b| weight(b).cmp(&weight(a)).then_with(|| a.place.cmp(&b.place)));
    let no_line = NoLineReport {
        calls: no_device.count,
        timed_calls: no_device.timed,
        total_ns: no_device.ns,
        host_calls: no_host.count,
        host_total_ns: no_host.ns,
    };
    (lines, no_line)
}

/// The same under the stack of the launch.
fn by_replay((key, weight): &(StackKey, Weight)) -> (StackKey, Weight) {
    (key.by_replay(), *weight)
}

/// Divides weights among lines, and tells of what each answers for; what is left has none.
fn add(
    weights: &[(StackKey, Weight)],
    stacks: &mut StackNames<'_>,
    found: &mut FxHashMap<StackFrame, Both>,
    side: impl Fn(&mut Both) -> &mut Share,
    mut answers: impl FnMut(&mut Both, u32, Leaf, Weight),
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
        let Some(charged) = charged(stacks, &frames) else {
            no_line.add(weight);
            continue;
        };
        let both = found.entry(charged.clone()).or_default();
        side(both).charged.add(weight);
        leaves.into_iter().for_each(|(leaf, weight)| answers(both, process, leaf, weight));
        // A frame is innermost only if nothing is missing behind it.
        if let Some(frame @ StackFrame::Line(_)) = frames.last() {
            side(found.entry(frame.clone()).or_default()).itself.add(weight);
        }
        // A function that calls itself has a line more than once.
        lines.clear();
        lines.extend(frames.iter().filter(|frame| matches!(frame, StackFrame::Line(_))).cloned());
        for line in lines.drain() {
            side(found.entry(line).or_default()).under.add(weight);
        }
    }
    no_line
}

/// The line that answers for what a stack asked for.
fn charged<'f>(stacks: &StackNames<'_>, frames: &'f [StackFrame]) -> Option<&'f StackFrame> {
    let innermost =
        |is: &dyn Fn(&Line) -> bool| frames.iter().rev().find(|frame| stacks.line(frame).is_some_and(is));
    innermost(&Line::is_written).or_else(|| innermost(&|line| line.own)).or_else(|| innermost(&|_| true))
}

/// The same of a stack, by its number.
pub(super) fn charged_place(stacks: &mut StackNames<'_>, process: u32, stack: u32) -> Option<PlaceReport> {
    let frames = stacks.frames(process, stack);
    charged(stacks, &frames).map(|frame| PlaceReport::new(stacks, frame))
}

/// What a line answers for, by name.
fn charged_reports(kernels: &BTreeMap<Arc<str>, Weight>) -> Vec<ChargedReport> {
    let mut all: Vec<(&Arc<str>, &Weight)> = kernels.iter().collect();
    all.sort_by_key(|(_, weight)| std::cmp::Reverse((weight.ns, weight.count)));
    all.truncate(KERNELS_KEPT);
    all.iter()
        .map(|(name, weight)| ChargedReport {
            name: name.to_string(),
            calls: weight.count,
            total_ns: (weight.timed > 0).then_some(weight.ns),
        })
        .collect()
}

fn line_report(line: &Line, both: &Both, all_ns: u64) -> LineReport {
    let Share { under, itself, charged } = both.device;
    let timed_ns = |weight: Weight| (weight.timed > 0).then_some(weight.ns);
    let share = |weight: Weight| timed_ns(weight).filter(|_| all_ns > 0).map(|ns| ns as f64 / all_ns as f64);
    LineReport {
        place: PlaceReport::of(line),
        own: line.own,
        calls: under.count,
        timed_calls: under.timed,
        total_ns: timed_ns(under),
        share: share(under),
        self_calls: itself.count,
        self_ns: timed_ns(itself),
        charged_calls: charged.count,
        charged_ns: timed_ns(charged),
        charged_share: share(charged),
        charged_kernels: charged_reports(&both.kernels),
        host_calls: both.host.under.count,
        host_total_ns: both.host.under.ns,
        charged_host_calls: both.host.charged.count,
        charged_host_ns: both.host.charged.ns,
        replayed_calls: both.replayed.under.count,
        replayed_ns: timed_ns(both.replayed.under),
        charged_replayed_calls: both.replayed.charged.count,
        charged_replayed_ns: timed_ns(both.replayed.charged),
    }
}
