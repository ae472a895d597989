//! NVTX ranges by name, with the operations that were asked for inside them.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::aggregate::{Aggregates, Stacks, Weight};
use crate::label::ProcessNames;
use crate::model::{Process, RangeName, Spans, Totals};
use crate::report::EstimatedTime;
use crate::report::estimated::{ReportEstimates, shown};
use crate::report::json::{device_ns, share};

/// The ranges of evicted processes.
const OTHERS: &str = "(other ranges)";

/// Ranges of one name, over all threads and processes.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RangeReport {
    pub name: String,
    /// `None` for the default domain.
    pub domain: Option<String>,
    /// Ranges that ended.
    pub calls: u64,
    /// Ranges still open when their thread or the trace ended.
    pub open: u64,
    /// The time from begin to end of those that ended. A range inside another of the same name adds nothing.
    pub host_total_ns: u64,
    /// Marks (moments) of the name.
    pub marks: u64,
    /// Operations that a thread asked for while such a range was open on it.
    pub operations: u64,
    pub timed_operations: u64,
    pub device_total_ns: Option<u64>,
    /// Of the device time of all operations.
    pub share: Option<f64>,
    /// Of all operations, where only a part of them has device times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<EstimatedTime>,
}

impl RangeReport {
    /// As in the flamegraph.
    pub fn text(&self) -> String {
        let (domain, name) = (self.domain.as_deref().unwrap_or(""), self.name.as_str());
        RangeName { domain: domain.into(), name: name.into() }.text()
    }
}

/// The range with the most device time first; without device times, the one with the most host time.
pub(super) fn ranges(
    totals: &Totals,
    aggregates: &Aggregates,
    processes: &ProcessNames<'_>,
    estimates: Option<&ReportEstimates>,
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
        for name in names_of(process, node) {
            found.entry(name.clone()).or_default().1.add(weight);
        }
    }
    let all_ns = aggregates.device_stacks.total_ns();
    let estimated = estimates.map(|estimates| {
        estimates.estimation.sums(|row, groups| {
            if let (1.., Some(process)) = (row.key.ranges, processes.process(row.key.process)) {
                groups.extend(names_of(process, row.key.ranges));
            }
        })
    });
    let estimate_of = |name: &RangeName, weight: Weight| {
        let estimate = estimated.as_ref()?.get(name).copied().unwrap_or_default();
        Some(EstimatedTime::new(weight.ns, &estimate))
    };
    let mut reports: Vec<RangeReport> = found
        .into_iter()
        .filter(|(_, (spans, weight))| spans.count + spans.open + spans.marks + weight.count > 0)
        .map(|(name, (spans, weight))| RangeReport {
            estimate: estimate_of(&name, weight),
            ..range_report(&name, &spans, weight, all_ns)
        })
        .map(|range| match estimates.zip(range.estimate) {
            Some((estimates, estimate)) => RangeReport { share: estimates.share(&estimate), ..range },
            None => range,
        })
        .collect();
    reports.sort_by_key(|range| {
        let device_ns = shown(range.estimate.as_ref(), range.device_total_ns);
        std::cmp::Reverse((device_ns, range.host_total_ns, range.calls))
    });
    reports
}

/// The names of the ranges that were open at a node of the process's tree, each once: a range inside another
/// of the same name counts once.
fn names_of(process: &Process, node: u32) -> Vec<&RangeName> {
    let mut names = process.ranges.names(node);
    names.sort_unstable();
    names.dedup();
    names
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
    let device_total_ns = device_ns(weight);
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
        share: share(device_total_ns, all_ns),
        estimate: None,
    }
}
