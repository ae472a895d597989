//! Sums over stacks by what they are inside of: PyTorch's modules, or its operators.

use std::collections::BTreeMap;
use std::hash::Hash;

use rustc_hash::{FxHashMap, FxHashSet};

use serde::Serialize;

use crate::aggregate::{Aggregates, Estimate, StackKey, Weight};
use crate::label::{Labels, StackFrame, StackNames, is_backward};
use crate::report::EstimatedTime;
use crate::report::estimated::{ReportEstimates, shown};
use crate::report::json::{device_ns, share};

/// What was launched inside of a class of modules, or of an operator.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct InsideReport {
    /// Operations of the GPU that were launched in it and in what is inside of it; of backward passes, also
    /// what they launched for it.
    pub calls: u64,
    pub total_ns: Option<u64>,
    /// Of the device time of all operations.
    pub share: Option<f64>,
    /// Of `calls`, where only a part of the operations has device times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<EstimatedTime>,
    /// Those of `calls` that backward passes launched for it, and their time.
    pub backward_calls: u64,
    pub backward_ns: Option<u64>,
    /// Operations that nothing inside of it launched.
    pub self_calls: u64,
    pub self_ns: Option<u64>,
    /// Hooked calls of all kinds in it and in what is inside of it, and the host time in them.
    pub host_calls: u64,
    pub host_total_ns: u64,
}

impl InsideReport {
    pub(super) fn new(sums: &InsideSums, all_ns: u64) -> InsideReport {
        let total_ns = device_ns(sums.under);
        let estimate = sums.estimate.map(|estimate| EstimatedTime::new(sums.under.ns, &estimate));
        InsideReport {
            calls: sums.under.count,
            total_ns,
            share: share(shown(estimate.as_ref(), total_ns), all_ns),
            estimate,
            backward_calls: sums.backward.count,
            // Where nothing is timed, this is not known either.
            backward_ns: total_ns.map(|_| sums.backward.ns),
            self_calls: sums.itself.count,
            self_ns: device_ns(sums.itself),
            host_calls: sums.host.count,
            host_total_ns: sums.host.ns,
        }
    }

    /// Its device time, estimated where not all of it was measured.
    pub fn time_ns(&self) -> Option<u64> {
        shown(self.estimate.as_ref(), self.total_ns)
    }

    /// What lists are sorted by, the most first.
    pub(super) fn weight(&self) -> (Option<u64>, u64, u64) {
        (self.time_ns(), self.calls, self.host_calls)
    }
}

#[derive(Clone, Copy, Default)]
pub(super) struct InsideSums {
    /// Operations in it and in what is inside of it.
    pub under: Weight,
    /// Those of backward passes.
    pub backward: Weight,
    /// Operations in nothing inside of it.
    pub itself: Weight,
    /// Host calls.
    pub host: Weight,
    /// Of operations without device times, in it and in what is inside of it.
    pub estimate: Option<Estimate>,
}

pub(super) struct InsideOf<K> {
    pub by_key: FxHashMap<K, InsideSums>,
    /// Operations of stacks that are inside of nothing: of backward passes, and all others.
    pub backward: Weight,
    pub outside: Weight,
    /// Of those without device times.
    pub backward_estimate: Option<Estimate>,
    pub outside_estimate: Option<Estimate>,
    /// The device time of all operations.
    pub all_ns: u64,
}

/// A group of stacks whose times are estimated together.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Group<K> {
    Inside(K),
    Backward,
    Outside,
}

/// What a stack is to one of those that it is inside of.
struct StackInside {
    /// Whether nothing further out has the same key.
    is_first: bool,
    is_innermost: bool,
    is_backward: bool,
}

/// `keys` returns what a stack is inside of, outermost first.
pub(super) fn inside<K: Eq + Hash + Clone>(
    aggregates: &Aggregates,
    labels: &mut Labels<'_>,
    estimates: Option<&ReportEstimates>,
    keys: impl Fn(&StackNames<'_>, &[StackFrame]) -> Vec<K>,
) -> InsideOf<K> {
    let none = Weight::default();
    let mut sums = InsideOf {
        by_key: FxHashMap::default(),
        backward: none,
        outside: none,
        backward_estimate: None,
        outside_estimate: None,
        all_ns: aggregates.device_stacks.total_ns(),
    };
    add(&aggregates.device_stacks.sorted(), labels, &keys, &mut sums, |of, weight, inside| {
        of.under.add(if inside.is_first { weight } else { none });
        of.backward.add(if inside.is_first && inside.is_backward { weight } else { none });
        of.itself.add(if inside.is_innermost { weight } else { none });
    });
    let (backward, outside) = (sums.backward, sums.outside);
    add(&aggregates.host_stacks.sorted(), labels, &keys, &mut sums, |of, weight, inside| {
        of.host.add(if inside.is_first { weight } else { none });
    });
    sums = InsideOf { backward, outside, ..sums };
    let Some(estimates) = estimates else { return sums };
    let by_group = estimates.estimation.sums(|row, groups| {
        let frames = labels.stacks.frames(row.key.process, row.key.stack);
        let mut found = keys(&labels.stacks, &frames);
        if found.is_empty() {
            groups.push(if is_backward(&frames) { Group::Backward } else { Group::Outside });
        }
        let mut seen: FxHashSet<K> = FxHashSet::default();
        found.retain(|key| seen.insert(key.clone()));
        groups.extend(found.into_iter().map(Group::Inside));
    });
    let of = |group| Some(by_group.get(&group).copied().unwrap_or_default());
    for (key, inside) in &mut sums.by_key {
        inside.estimate = of(Group::Inside(key.clone()));
    }
    sums.backward_estimate = of(Group::Backward);
    sums.outside_estimate = of(Group::Outside);
    sums.all_ns = estimates.report.time.total_ns;
    sums
}

/// Calls `put` with each weight and the sums of everything that its stack is inside of.
fn add<K: Eq + Hash + Clone>(
    weights: &[(StackKey, Weight)],
    labels: &mut Labels<'_>,
    keys: &impl Fn(&StackNames<'_>, &[StackFrame]) -> Vec<K>,
    to: &mut InsideOf<K>,
    put: impl Fn(&mut InsideSums, Weight, StackInside),
) {
    let mut by_stack: BTreeMap<(u32, u32), Weight> = BTreeMap::new();
    for (key, weight) in weights {
        by_stack.entry((key.process, key.stack)).or_default().add(*weight);
    }
    let mut seen: FxHashSet<K> = FxHashSet::default();
    for ((process, stack), weight) in by_stack {
        let frames = labels.stacks.frames(process, stack);
        let (found, is_backward) = (keys(&labels.stacks, &frames), is_backward(&frames));
        if found.is_empty() {
            let side = if is_backward { &mut to.backward } else { &mut to.outside };
            side.add(weight);
        }
        // Something may be inside of what has the same key.
        seen.clear();
        let innermost = found.len().saturating_sub(1);
        for (index, key) in found.into_iter().enumerate() {
            let is_first = seen.insert(key.clone());
            let inside = StackInside { is_first, is_innermost: index == innermost, is_backward };
            put(to.by_key.entry(key).or_default(), weight, inside);
        }
    }
}
