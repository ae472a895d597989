//! GPU time by PyTorch module: the classes whose `forward` a stack is inside of.

use std::sync::Arc;

use serde::Serialize;

use crate::aggregate::{Aggregates, Estimate, Weight};
use crate::label::{Labels, ModuleFrame, StackFrame, StackNames, modules};
use crate::report::EstimatedTime;
use crate::report::estimated::{ReportEstimates, shown};
use crate::report::inside::{InsideOf, InsideReport, InsideSums, inside};
use crate::report::json::{device_ns, share};

/// The modules of a program that has some.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ModulesReport {
    /// The one with the most device time first, or with the most operations where no device time is known.
    pub list: Vec<ModuleReport>,
    /// Operations of backward passes that no module is known of.
    pub backward: OutsideReport,
    /// All other operations that no module called for.
    pub outside: OutsideReport,
}

/// Operations that no module is known of.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OutsideReport {
    pub calls: u64,
    pub total_ns: Option<u64>,
    /// Of the device time of all operations.
    pub share: Option<f64>,
    /// Of all of these operations, where only a part of the operations has device times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<EstimatedTime>,
}

/// A class of modules: all its modules together.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ModuleReport {
    pub class: String,
    /// The file of its `forward`, by its short name.
    pub file: String,
    #[serde(flatten)]
    pub launched: InsideReport,
}

/// A module is named for operations only if it launched this part of them.
const MOST: f64 = 0.8;

impl ModulesReport {
    /// The class that launched most of so many operations with the modules inside of it, and which part of
    /// them. Of several, the one that launched the fewest, which is inside of the others.
    pub(super) fn most_of(&self, operations: u64) -> Option<(&str, f64)> {
        let part = |module: &ModuleReport| module.launched.calls as f64 / operations.max(1) as f64;
        let most = self.list.iter().filter(|module| part(module) >= MOST);
        let innermost =
            most.min_by_key(|module| (module.launched.calls, std::cmp::Reverse(module.launched.self_calls)))?;
        Some((innermost.class.as_str(), part(innermost).min(1.0)))
    }
}

/// `None` where no stack is inside of a module.
pub(super) fn modules_report(
    aggregates: &Aggregates,
    labels: &mut Labels<'_>,
    estimates: Option<&ReportEstimates>,
) -> Option<ModulesReport> {
    let found = inside(aggregates, labels, estimates, |stacks, frames| {
        let found = modules(stacks, frames).into_iter();
        found.filter_map(|module| Some((module.class.into(), file_of(stacks, frames, &module)?))).collect()
    });
    if found.by_key.is_empty() {
        return None;
    }
    let (all_ns, [backward, outside]) = (found.all_ns, OutsideReport::both(&found));
    let report = |((class, file), sums): ((Arc<str>, Arc<str>), InsideSums)| ModuleReport {
        class: class.to_string(),
        file: file.to_string(),
        launched: InsideReport::new(&sums, all_ns),
    };
    let mut list: Vec<ModuleReport> = found.by_key.into_iter().map(report).collect();
    list.sort_by(|a, b| {
        let by_weight = b.launched.weight().cmp(&a.launched.weight());
        by_weight.then_with(|| (&a.class, &a.file).cmp(&(&b.class, &b.file)))
    });
    Some(ModulesReport { list, backward, outside })
}

fn file_of(stacks: &StackNames<'_>, frames: &[StackFrame], module: &ModuleFrame<'_>) -> Option<Arc<str>> {
    Some(stacks.line(frames.get(module.at)?)?.file.clone())
}

impl OutsideReport {
    /// Of backward passes, and all others.
    pub(super) fn both<K>(of: &InsideOf<K>) -> [OutsideReport; 2] {
        let sides = [(of.backward, of.backward_estimate), (of.outside, of.outside_estimate)];
        sides.map(|(weight, estimate)| OutsideReport::new(weight, estimate, of.all_ns))
    }

    fn new(weight: Weight, estimate: Option<Estimate>, all_ns: u64) -> OutsideReport {
        let total_ns = device_ns(weight);
        let estimate = estimate.map(|estimate| EstimatedTime::new(weight.ns, &estimate));
        let share = share(shown(estimate.as_ref(), total_ns), all_ns);
        OutsideReport { calls: weight.count, total_ns, share, estimate }
    }

    /// Its device time, estimated where not all of it was measured.
    pub fn time_ns(&self) -> Option<u64> {
        shown(self.estimate.as_ref(), self.total_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn innermost_class_with_most_operations_is_named() {
        let module = |class: &str, calls: u64, self_calls: u64| ModuleReport {
            class: class.to_owned(),
            file: "net.py".to_owned(),
            launched: InsideReport {
                calls,
                total_ns: None,
                share: None,
                estimate: None,
                backward_calls: 0,
                backward_ns: None,
                self_calls,
                self_ns: None,
                host_calls: calls,
                host_total_ns: 0,
            },
        };
        let none = OutsideReport::default();
        let of = |list: Vec<ModuleReport>| ModulesReport { list, backward: none, outside: none };
        let nested = of(vec![
            module("Model", 100, 2),
            module("Decoder", 98, 0),
            module("Layer", 98, 18),
            module("Linear", 79, 79),
        ]);
        assert_eq!(nested.most_of(100), Some(("Layer", 0.98)));
        assert_eq!(nested.most_of(200), None, "most is outside of modules");
        assert_eq!(of(Vec::new()).most_of(0), None);
    }
}
