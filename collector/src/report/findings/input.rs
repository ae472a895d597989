//! What the rules ask for: the report, and host calls and copies by line.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::aggregate::{Aggregates, CallClass, Cause, Leaf, Weight};
use crate::label::Labels;
use crate::model::operation::Direction;
use crate::report::findings::Saving;
use crate::report::idle::IdleLine;
use crate::report::json::{CallReport, Report};
use crate::report::lines::{CodeLocation, charged_location};

/// Lines that a finding names.
const LINES_NAMED: usize = 3;

/// Weights by line.
pub(super) type ByLine = BTreeMap<CodeLocation, Weight>;
type ByDirection = BTreeMap<Direction, ByLine>;

pub(super) struct RuleInput<'r> {
    pub report: &'r Report,
    pub aggregates: &'r Aggregates,
    pub span_ns: u64,
    pub busy_ns: u64,
    /// Of all devices.
    pub idle: Vec<&'r IdleLine>,
    /// Host calls of a class.
    calls: BTreeMap<CallClass, ByLine>,
    /// Copies in a direction, with their device times.
    copies: ByDirection,
    pageable: ByDirection,
}

impl<'r> RuleInput<'r> {
    pub fn new(report: &'r Report, aggregates: &'r Aggregates, labels: &mut Labels<'_>) -> RuleInput<'r> {
        let timed = || report.devices.iter().filter(|device| device.timed_operations > 0);
        let classes: FxHashMap<(u32, u32), CallClass> =
            aggregates.calls.iter().map(|(key, _)| ((key.process, key.api), key.class)).collect();
        let mut lines: FxHashMap<(u32, u32), Option<CodeLocation>> = FxHashMap::default();
        let mut line = |process, stack| {
            let known = lines
                .entry((process, stack))
                .or_insert_with(|| charged_location(&mut labels.stacks, process, stack));
            known.clone().unwrap_or_default()
        };
        let mut calls: BTreeMap<CallClass, ByLine> = BTreeMap::new();
        for (key, weight) in aggregates.host_stacks.iter() {
            let class = classes.get(&(key.process, key.api)).copied().unwrap_or(CallClass::Other);
            let by_line = calls.entry(class).or_default();
            by_line.entry(line(key.process, key.stack)).or_default().add(*weight);
        }
        let (mut copies, mut pageable) = (ByDirection::new(), ByDirection::new());
        for (key, weight) in aggregates.device_stacks.iter() {
            if let Leaf::Copy { direction, is_pageable } = key.leaf {
                let line = line(key.process, key.stack);
                if is_pageable {
                    pageable.entry(direction).or_default().entry(line.clone()).or_default().add(*weight);
                }
                copies.entry(direction).or_default().entry(line).or_default().add(*weight);
            }
        }
        RuleInput {
            report,
            aggregates,
            span_ns: sum(timed().filter_map(|device| device.active_span_ns)),
            busy_ns: sum(timed().filter_map(|device| device.busy_ns)),
            idle: timed().filter_map(|device| device.idle.as_ref()).flat_map(|idle| &idle.lines).collect(),
            calls,
            copies,
            pageable,
        }
    }

    /// Whether any idle time has a line: a program may have no stacks.
    pub fn has_lines(&self) -> bool {
        !self.idle.is_empty()
    }

    /// Of all kernels.
    pub fn kernels_ns(&self) -> u64 {
        sum(self.report.kernels.iter().filter_map(|kernel| kernel.spread.total_ns))
    }

    /// The part of the time from the first to the last operation.
    pub fn share(&self, ns: u64) -> f64 {
        ns as f64 / self.span_ns.max(1) as f64
    }

    /// What mending a fault could save; no more than there is.
    pub fn saves(&self, ns: u64) -> Saving {
        let ns = ns.min(self.span_ns);
        Saving { ns, share: self.share(ns) }
    }

    /// Idle time of a cause at all lines, and in how many pieces.
    pub fn idle_of(&self, causes: &[Cause]) -> (u64, u64) {
        let idle = self.report.devices.iter().filter_map(|device| device.idle.as_ref());
        let of = idle.flat_map(|idle| &idle.causes).filter(|cause| causes.contains(&cause.cause));
        of.fold((0, 0), |(ns, pieces), cause| (cause.ns.saturating_add(ns), pieces + cause.pieces))
    }

    pub fn class(&self, class: CallClass) -> Option<&CallReport> {
        self.report.call_classes.iter().find(|of| of.class == class.name())
    }

    /// Host calls of the class at the line.
    pub fn calls_at(&self, class: CallClass, line: &CodeLocation) -> Weight {
        self.calls.get(&class).and_then(|lines| lines.get(line)).copied().unwrap_or_default()
    }

    /// The lines with the most host time in calls of the class.
    pub fn lines_of(&self, class: CallClass) -> Vec<CodeLocation> {
        self.calls.get(&class).map(most).unwrap_or_default()
    }

    /// Whether code was loaded in about every piece of that idle time.
    pub fn has_loads(&self, line: &IdleLine) -> bool {
        let ends = [&line.from, &line.to].into_iter().flatten();
        let loads = ends.map(|at| self.calls_at(CallClass::ModuleLoad, at).count).max().unwrap_or(0);
        line.cause == Cause::Host && loads.saturating_mul(2) >= line.pieces
    }

    pub fn copies_at(&self, direction: Direction, line: &CodeLocation) -> Weight {
        self.copies.get(&direction).and_then(|lines| lines.get(line)).copied().unwrap_or_default()
    }

    /// The same of those from or to pageable memory.
    pub fn lines_of_pageable_copies(&self, direction: Direction) -> Vec<CodeLocation> {
        self.pageable.get(&direction).map(most).unwrap_or_default()
    }

    /// The lines with the most device time in copies of the direction.
    pub fn lines_of_copies(&self, direction: Direction) -> Vec<CodeLocation> {
        self.copies.get(&direction).map(most).unwrap_or_default()
    }
}

/// Times of a damaged trace may be senseless: a sum that is too large stays at the largest.
pub(super) fn sum(of: impl IntoIterator<Item = u64>) -> u64 {
    of.into_iter().fold(0, u64::saturating_add)
}

/// The lines with the most time.
pub(super) fn most(lines: &ByLine) -> Vec<CodeLocation> {
    let mut all: Vec<_> = lines.iter().filter(|(line, _)| line.file.is_some()).collect();
    all.sort_by_key(|(_, weight)| std::cmp::Reverse(weight.ns));
    all.into_iter().take(LINES_NAMED).map(|(line, _)| line.clone()).collect()
}

/// The idle time of a line and its pieces.
pub fn weight(line: &IdleLine) -> Weight {
    Weight { ns: line.ns, count: line.pieces, timed: line.pieces }
}
