//! Why each device was idle, by cause and by line. With its busy time, the causes add up to the wall time.

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::aggregate::{Between, Cause, Idle, Pieces};
use crate::label::{StackFrame, StackNames};
use crate::report::CodeLocation;

/// Places in the report: those with the most idle time.
const IDLE_LINES_SHOWN: usize = 200;

/// Idle time of a device by cause and by line.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IdleReport {
    /// The longest first; those that took no time are left out.
    pub causes: Vec<IdleCause>,
    /// The longest first, at most 200.
    pub lines: Vec<IdleLine>,
    /// Time of the causes that have lines, whose line is not known or not in `lines`.
    pub no_line_ns: u64,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IdleCause {
    pub cause: Cause,
    pub ns: u64,
    /// Of the wall time.
    pub share: Option<f64>,
    /// Pieces of gaps.
    pub pieces: u64,
}

/// Where the thread was that launched the next operation.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IdleLine {
    pub cause: Cause,
    pub ns: u64,
    pub share: Option<f64>,
    pub pieces: u64,
    /// The lines that answer for the calls before and after; the same one for time in a call.
    pub from: Option<CodeLocation>,
    pub to: Option<CodeLocation>,
}

impl IdleReport {
    pub(super) fn new(idle: Idle, wall_ns: u64, stacks: &mut StackNames<'_>) -> IdleReport {
        let share = |ns: u64| (wall_ns > 0).then(|| ns as f64 / wall_ns as f64);
        let mut causes: Vec<IdleCause> = Cause::ALL
            .into_iter()
            .map(|cause| (cause, idle.of(cause)))
            .filter(|(_, pieces)| pieces.ns > 0)
            .map(|(cause, Pieces { ns, count })| IdleCause { cause, ns, share: share(ns), pieces: count })
            .collect();
        causes.sort_by_key(|cause| std::cmp::Reverse(cause.ns));
        let placed = causes.iter().filter(|cause| cause.cause.has_lines());
        let placed_ns = placed.fold(0, |sum: u64, cause| sum.saturating_add(cause.ns));
        let mut lines = lines(idle.lines(), stacks, share);
        lines.truncate(IDLE_LINES_SHOWN);
        let shown_ns = lines.iter().fold(0, |sum: u64, line| sum.saturating_add(line.ns));
        let no_line_ns = placed_ns.saturating_sub(shown_ns);
        IdleReport { causes, lines, no_line_ns }
    }
}

impl IdleLine {
    /// `train.py:64 step`, or `train.py:61 to train.py:64 step`.
    pub fn text(&self) -> String {
        let file = |at: &CodeLocation| CodeLocation { function: String::new(), ..at.clone() }.text();
        match (&self.from, &self.to) {
            (Some(from), Some(to)) if from != to => format!("{} to {}", file(from).trim_end(), to.text()),
            (_, Some(at)) | (Some(at), None) => at.text(),
            (None, None) => String::new(),
        }
    }
}

/// The known lines by line.
fn lines(
    all: Vec<(Between, Pieces)>,
    stacks: &mut StackNames<'_>,
    share: impl Fn(u64) -> Option<f64>,
) -> Vec<IdleLine> {
    type Lines = (Cause, Option<StackFrame>, Option<StackFrame>);
    let mut charged: FxHashMap<(u32, u32), Option<StackFrame>> = FxHashMap::default();
    let mut by_line: FxHashMap<Lines, Pieces> = FxHashMap::default();
    for (Between { process, cause, from, to }, pieces) in all {
        let mut line = |stack: u32| {
            let known = charged.entry((process, stack)).or_insert_with(|| {
                let frames = stacks.frames(process, stack);
                stacks.charged(&frames).cloned()
            });
            known.clone()
        };
        let lines = (cause, line(from), line(to));
        let sum = by_line.entry(lines).or_default();
        sum.ns = sum.ns.saturating_add(pieces.ns);
        sum.count += pieces.count;
    }
    let location = |frame: Option<StackFrame>| frame.map(|frame| CodeLocation::new(stacks, &frame));
    let mut lines: Vec<IdleLine> = by_line
        .into_iter()
        .filter(|((_, from, to), _)| from.is_some() || to.is_some())
        .map(|((cause, from, to), Pieces { ns, count })| IdleLine {
            cause,
            ns,
            share: share(ns),
            pieces: count,
            from: location(from),
            to: location(to),
        })
        .collect();
    let order = |line: &IdleLine| (line.cause, line.from.clone(), line.to.clone());
    lines.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| order(a).cmp(&order(b))));
    lines
}
