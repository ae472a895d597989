//! Threads, with the calls that each made and the operations that it asked for.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::aggregate::{Aggregates, Weight};
use crate::label::{ProcessNames, ThreadNames};
use crate::model::Totals;
use crate::names::fold_safe;
use crate::report::EstimatedTime;
use crate::report::estimated::{ReportEstimates, shown};
use crate::report::json::{device_ns, share};

/// Threads in the report: those with the most device time.
const THREADS_MAX: usize = 1000;

#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ThreadReport {
    pub pid: u32,
    /// The id that the process sees.
    pub tid: u32,
    /// The latest name that the program or the system gave it, if any.
    pub name: Option<String>,
    /// As in the flamegraph: with a number if the thread has no name, or shares one.
    pub label: String,
    pub host_calls: u64,
    pub operations: u64,
    pub timed_operations: u64,
    pub device_total_ns: Option<u64>,
    /// Of the device time of all operations.
    pub share: Option<f64>,
    /// Of all operations, where only a part of them has device times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<EstimatedTime>,
    /// Whether the program gave it a name of its own.
    #[serde(skip)]
    pub(super) is_named: bool,
}

/// The thread with the most device time first, and how many are left out.
pub(super) fn threads(
    totals: &Totals,
    aggregates: &Aggregates,
    processes: &ProcessNames<'_>,
    estimates: Option<&ReportEstimates>,
) -> (Vec<ThreadReport>, u64) {
    let mut found: BTreeMap<(u32, u32), (u64, Weight)> = BTreeMap::new();
    for (key, weight) in aggregates.host_stacks.sorted() {
        found.entry((key.process, key.thread)).or_default().0 += weight.count;
    }
    for (key, weight) in aggregates.device_stacks.sorted() {
        found.entry((key.process, key.thread)).or_default().1.add(weight);
    }
    found.retain(|(_, thread), _| *thread != 0);
    let names = ThreadNames::new(processes, found.keys().copied());
    let all_ns = aggregates.device_stacks.total_ns();
    let estimated = estimates.map(|estimates| estimates.by(|row| Some((row.key.process, row.key.thread))));
    let report = |((process, thread), (host_calls, weight)): ((u32, u32), (u64, Weight))| {
        let known = totals.process(process)?;
        let definition = known.definitions.thread(thread)?;
        let device_total_ns = device_ns(weight);
        let estimate = estimated.as_ref().map(|sums| {
            EstimatedTime::new(weight.ns, &sums.get(&(process, thread)).copied().unwrap_or_default())
        });
        Some(ThreadReport {
            pid: known.begin.pid,
            tid: definition.tid,
            name: Some(definition.name.to_owned()).filter(|name| !name.is_empty()),
            label: fold_safe(&names.thread(process, thread)).into_owned(),
            host_calls,
            operations: weight.count,
            timed_operations: weight.timed,
            device_total_ns,
            share: match estimates.zip(estimate) {
                Some((estimates, estimate)) => estimates.share(&estimate),
                None => share(device_total_ns, all_ns),
            },
            estimate,
            is_named: names.has_own_name(process, thread),
        })
    };
    let known = found.len();
    let mut reports: Vec<ThreadReport> = found.into_iter().filter_map(report).collect();
    reports.sort_by_key(|thread| {
        let device_ns = shown(thread.estimate.as_ref(), thread.device_total_ns);
        std::cmp::Reverse((device_ns, thread.operations, thread.host_calls))
    });
    reports.truncate(THREADS_MAX);
    let left_out = known - reports.len();
    (reports, left_out as u64)
}
