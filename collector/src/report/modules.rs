//! GPU time by PyTorch module: the classes whose `forward` a stack is inside of.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use crate::aggregate::{Aggregates, StackKey, Weight};
use crate::label::{Labels, is_backward, modules};
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
}

/// A class of modules: all its modules together.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ModuleReport {
    pub class: String,
    /// The file of its `forward`, by its short name.
    pub file: String,
    /// Operations that were launched in it, and in the modules inside of it.
    pub calls: u64,
    pub total_ns: Option<u64>,
    /// Of the device time of all operations.
    pub share: Option<f64>,
    /// Those of `calls` that backward passes launched for it, and their time.
    pub backward_calls: u64,
    pub backward_ns: Option<u64>,
    /// Operations that no module inside of it launched.
    pub self_calls: u64,
    pub self_ns: Option<u64>,
    /// Hooked calls of all kinds in it and in the modules inside of it, and the host time in them.
    pub host_calls: u64,
    pub host_total_ns: u64,
}

/// A class, and the short name of its file.
type ModuleKey = (Arc<str>, Arc<str>);

#[derive(Clone, Copy, Default)]
struct ModuleSums {
    under: Weight,
    backward: Weight,
    itself: Weight,
    host: Weight,
}

#[derive(Default)]
struct AllSums {
    by_module: FxHashMap<ModuleKey, ModuleSums>,
    backward: Weight,
    outside: Weight,
}

/// A module is named for operations only if it launched this part of them.
const MOST: f64 = 0.8;

impl ModulesReport {
    /// The class that launched most of so many operations with the modules inside of it, and which part of
    /// them. Of several, the one that launched the fewest, which is inside of the others.
    pub(super) fn most_of(&self, operations: u64) -> Option<(&str, f64)> {
        let part = |module: &ModuleReport| module.calls as f64 / operations.max(1) as f64;
        let most = self.list.iter().filter(|module| part(module) >= MOST);
        let innermost = most.min_by_key(|module| (module.calls, std::cmp::Reverse(module.self_calls)))?;
        Some((innermost.class.as_str(), part(innermost).min(1.0)))
    }
}

/// `None` where no stack is inside of a module.
pub(super) fn modules_report(aggregates: &Aggregates, labels: &mut Labels<'_>) -> Option<ModulesReport> {
    let mut sums = AllSums::default();
    add(&aggregates.device_stacks.sorted(), labels, &mut sums, |of, weight, is| {
        of.under.add(if is.new { weight } else { Weight::default() });
        of.backward.add(if is.new && is.backward { weight } else { Weight::default() });
        of.itself.add(if is.innermost { weight } else { Weight::default() });
    });
    let AllSums { backward, outside, .. } = sums;
    add(&aggregates.host_stacks.sorted(), labels, &mut sums, |of, weight, is| {
        of.host.add(if is.new { weight } else { Weight::default() });
    });
    if sums.by_module.is_empty() {
        return None;
    }
    let all_ns = aggregates.device_stacks.total_ns();
    let mut list: Vec<ModuleReport> =
        sums.by_module.into_iter().map(|(key, sums)| module_report(&key, &sums, all_ns)).collect();
    list.sort_by(|a, b| {
        let weight = |module: &ModuleReport| (module.total_ns, module.calls, module.host_calls);
        weight(b).cmp(&weight(a)).then_with(|| (&a.class, &a.file).cmp(&(&b.class, &b.file)))
    });
    let outside_of = |weight: Weight| {
        let total_ns = device_ns(weight);
        OutsideReport { calls: weight.count, total_ns, share: share(total_ns, all_ns) }
    };
    Some(ModulesReport { list, backward: outside_of(backward), outside: outside_of(outside) })
}

/// What a stack is to one of the modules that it is inside of.
#[derive(Clone, Copy)]
struct InsideModule {
    /// Whether no module of the same class is further out.
    new: bool,
    innermost: bool,
    backward: bool,
}

/// Calls `put` with each weight and the sums of each module that its stack is inside of.
fn add(
    weights: &[(StackKey, Weight)],
    labels: &mut Labels<'_>,
    to: &mut AllSums,
    put: impl Fn(&mut ModuleSums, Weight, InsideModule),
) {
    let mut by_stack: BTreeMap<(u32, u32), Weight> = BTreeMap::new();
    for (key, weight) in weights {
        by_stack.entry((key.process, key.stack)).or_default().add(*weight);
    }
    let mut seen: FxHashSet<ModuleKey> = FxHashSet::default();
    for ((process, stack), weight) in by_stack {
        let frames = labels.stacks.frames(process, stack);
        let (found, backward) = (modules(&labels.stacks, &frames), is_backward(&frames));
        if found.is_empty() {
            let side = if backward { &mut to.backward } else { &mut to.outside };
            side.add(weight);
            continue;
        }
        // A module may be inside of one of its own class.
        seen.clear();
        let innermost = found.len() - 1;
        for (index, module) in found.iter().enumerate() {
            let Some(line) = frames.get(module.at).and_then(|frame| labels.stacks.line(frame)) else {
                continue;
            };
            let key = (Arc::from(module.class), line.file.clone());
            let new = seen.insert(key.clone());
            let is = InsideModule { new, innermost: index == innermost, backward };
            put(to.by_module.entry(key).or_default(), weight, is);
        }
    }
}

fn module_report((class, file): &ModuleKey, sums: &ModuleSums, all_ns: u64) -> ModuleReport {
    ModuleReport {
        class: class.to_string(),
        file: file.to_string(),
        calls: sums.under.count,
        total_ns: device_ns(sums.under),
        share: share(device_ns(sums.under), all_ns),
        backward_calls: sums.backward.count,
        // Where nothing is timed, this is not known either.
        backward_ns: device_ns(sums.under).map(|_| sums.backward.ns),
        self_calls: sums.itself.count,
        self_ns: device_ns(sums.itself),
        host_calls: sums.host.count,
        host_total_ns: sums.host.ns,
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
            calls,
            total_ns: None,
            share: None,
            backward_calls: 0,
            backward_ns: None,
            self_calls,
            self_ns: None,
            host_calls: calls,
            host_total_ns: 0,
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
