//! Where in the program work came from: its lines, with what ran under each.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::aggregate::{Aggregates, Leaf, Stacks as Weights, Weight};
use crate::source::{Line, StackFrame, Stacks};

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
    /// the program's own, or else the innermost.
    pub charged_calls: u64,
    pub charged_ns: Option<u64>,
    pub charged_share: Option<f64>,
    /// Hooked calls of all kinds, at this line or under it, and the host's time in them.
    pub host_calls: u64,
    pub host_total_ns: u64,
    pub charged_host_calls: u64,
    pub charged_host_ns: u64,
}

/// A line of a function of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
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
    pub fn new(frame: &StackFrame) -> PlaceReport {
        let Some(line) = frame.line() else {
            return PlaceReport { function: frame.text(), ..PlaceReport::default() };
        };
        PlaceReport {
            function: line.function.to_string(),
            file: Some(line.file.to_string()),
            path: Some(line.path.to_string()),
            line: Some(line.line),
        }
    }

    /// `train.py:22 train_step`.
    pub fn text(&self) -> String {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => format!("{file}:{line} {}", self.function),
            _ => self.function.clone(),
        }
    }
}

/// The innermost frames of a stack, innermost first.
pub(super) fn innermost(stacks: &mut Stacks<'_>, process: u32, stack: u32) -> Vec<PlaceReport> {
    const KEPT: usize = 16;
    stacks.frames(process, stack).iter().rev().take(KEPT).map(PlaceReport::new).collect()
}

/// What a line has: under it, by itself, and to answer for.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    under: Weight,
    itself: Weight,
    charged: Weight,
}

/// Device and host side.
#[derive(Clone, Copy, Debug, Default)]
struct Both {
    device: Share,
    host: Share,
}

/// The line that answers for the most first: by device time, by host time where there is none.
pub(super) fn lines(aggregates: &Aggregates, stacks: &mut Stacks<'_>) -> (Vec<LineReport>, NoLineReport) {
    let mut found: BTreeMap<Line, Both> = BTreeMap::new();
    let no_device = add(&aggregates.device_stacks, stacks, &mut found, |both| &mut both.device);
    let no_host = add(&aggregates.host_stacks, stacks, &mut found, |both| &mut both.host);
    let all_ns = aggregates.device_stacks.total_ns();
    let mut lines: Vec<LineReport> =
        found.iter().map(|(line, both)| line_report(line, both, all_ns)).collect();
    let timed = aggregates.device_stacks.has_times();
    lines.sort_by_key(|line| {
        let host_ns = if timed { 0 } else { line.charged_host_ns };
        std::cmp::Reverse((line.charged_ns, host_ns, line.charged_calls, line.total_ns, line.calls))
    });
    let no_line = NoLineReport {
        calls: no_device.count,
        timed_calls: no_device.timed,
        total_ns: no_device.ns,
        host_calls: no_host.count,
        host_total_ns: no_host.ns,
    };
    (lines, no_line)
}

/// Divides weights among lines; what is left has none.
fn add(
    weights: &Weights,
    stacks: &mut Stacks<'_>,
    found: &mut BTreeMap<Line, Both>,
    side: impl Fn(&mut Both) -> &mut Share,
) -> Weight {
    let mut by_stack: FxHashMap<(u32, u32), Weight> = FxHashMap::default();
    for (key, weight) in weights.sorted() {
        let stack = if key.leaf == Leaf::Other { 0 } else { key.stack };
        by_stack.entry((key.process, stack)).or_default().add(weight);
    }
    let mut no_line = Weight::default();
    for ((process, stack), weight) in by_stack {
        let frames = stacks.frames(process, stack);
        let mut lines: Vec<&Line> = frames.iter().filter_map(StackFrame::line).collect();
        let innermost = lines.last().copied();
        let Some(charged) = lines.iter().rev().find(|line| line.own).copied().or(innermost) else {
            no_line.add(weight);
            continue;
        };
        side(found.entry(charged.clone()).or_default()).charged.add(weight);
        // A frame is innermost only if nothing is missing behind it.
        if let Some(StackFrame::Line(line)) = frames.last() {
            side(found.entry(line.clone()).or_default()).itself.add(weight);
        }
        // A function that calls itself has a line more than once.
        lines.sort_unstable();
        lines.dedup();
        for line in lines {
            side(found.entry(line.clone()).or_default()).under.add(weight);
        }
    }
    no_line
}

fn line_report(line: &Line, both: &Both, all_ns: u64) -> LineReport {
    let Share { under, itself, charged } = both.device;
    let timed_ns = |weight: Weight| (weight.timed > 0).then_some(weight.ns);
    let share = |weight: Weight| timed_ns(weight).filter(|_| all_ns > 0).map(|ns| ns as f64 / all_ns as f64);
    LineReport {
        place: PlaceReport::new(&StackFrame::Line(line.clone())),
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
        host_calls: both.host.under.count,
        host_total_ns: both.host.under.ns,
        charged_host_calls: both.host.charged.count,
        charged_host_ns: both.host.charged.ns,
    }
}
