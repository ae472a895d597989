//! What the program said it was doing, with what ran meanwhile.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::aggregate::{Aggregates, Stacks, Weight};
use crate::label::ProcessNames;
use crate::model::{RangeName, Spans, Totals};

/// The ranges of evicted processes.
const OTHERS: &str = "(other ranges)";

/// A range by its name, over all threads and processes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RangeReport {
    pub name: String,
    /// `None` for the one without a name.
    pub domain: Option<String>,
    /// How often it ended, and how many had not when their thread or the trace did.
    pub calls: u64,
    pub open: u64,
    /// Of those that ended, from begin to end; a range inside one of the same name adds nothing.
    pub host_total_ns: u64,
    /// Moments of that name.
    pub marks: u64,
    /// Operations that were asked for while it was open on the asking thread.
    pub operations: u64,
    pub timed_operations: u64,
    pub device_total_ns: Option<u64>,
    /// Of the device time of all operations.
    pub share: Option<f64>,
}

impl RangeReport {
    /// As it stands in the flamegraph.
    pub fn text(&self) -> String {
        let (domain, name) = (self.domain.as_deref().unwrap_or(""), self.name.as_str());
        RangeName { domain: domain.into(), name: name.into() }.text()
    }
}

/// The one with the most device time first; without device times, with the most host time.
pub(super) fn ranges(
    totals: &Totals,
    aggregates: &Aggregates,
    processes: &ProcessNames<'_>,
) -> Vec<RangeReport> {
    let mut found: BTreeMap<RangeName, (Spans, Weight)> = BTreeMap::new();
    for (name, spans) in totals.processes.iter().flat_map(|process| process.ranges.spans_by_name()) {
        found.entry(name.clone()).or_default().0.add(&spans);
    }
    let others = RangeName { domain: "".into(), name: OTHERS.into() };
    found.entry(others.clone()).or_default().0.add(&totals.evicted.ranges);
    for ((process, node), weight) in by_node(&aggregates.device_stacks) {
        let Some(process) = processes.process(process) else {
            found.entry(others.clone()).or_default().1.add(weight);
            continue;
        };
        let mut names = process.ranges.names(node);
        // A range inside one of the same name is there once.
        names.sort_unstable();
        names.dedup();
        for name in names {
            found.entry(name.clone()).or_default().1.add(weight);
        }
    }
    let all_ns = aggregates.device_stacks.total_ns();
    let mut reports: Vec<RangeReport> = found
        .into_iter()
        .filter(|(_, (spans, weight))| spans.count + spans.open + spans.marks + weight.count > 0)
        .map(|(name, (spans, weight))| range_report(&name, &spans, weight, all_ns))
        .collect();
    reports.sort_by_key(|range| std::cmp::Reverse((range.device_total_ns, range.host_total_ns, range.calls)));
    reports
}

fn by_node(stacks: &Stacks) -> BTreeMap<(u32, u32), Weight> {
    let mut nodes: BTreeMap<(u32, u32), Weight> = BTreeMap::new();
    for (key, weight) in stacks.sorted() {
        if key.ranges != 0 {
            nodes.entry((key.process, key.ranges)).or_default().add(weight);
        }
    }
    nodes
}

fn range_report(name: &RangeName, spans: &Spans, weight: Weight, all_ns: u64) -> RangeReport {
    let device_total_ns = (weight.timed > 0).then_some(weight.ns);
    RangeReport {
        name: name.name.to_string(),
        domain: (!name.domain.is_empty()).then(|| name.domain.to_string()),
        calls: spans.count,
        open: spans.open,
        host_total_ns: spans.host_ns,
        marks: spans.marks,
        operations: weight.count,
        timed_operations: weight.timed,
        device_total_ns,
        share: device_total_ns.filter(|_| all_ns > 0).map(|ns| ns as f64 / all_ns as f64),
    }
}
