//! Anomalies: runs of a kernel that took far longer than its median.

use serde::Serialize;

use crate::aggregate::{Aggregates, KernelKey, KernelOutliers};
use crate::label::Labels;
use crate::model::{Process, Totals};
use crate::report::lines::{charged_location, innermost};
use crate::report::{CodeLocation, DeviceMomentReport};

/// A kernel's anomalies are listed if they cost at least one in this many parts of the wall time. Cheaper
/// ones nobody notices, and most programs that run for seconds have a few of microseconds.
pub const REPORTED_PARTS: u64 = 1000;

#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AnomaliesReport {
    /// All anomalies.
    pub runs: u64,
    /// Runs of kernels without enough history to judge them.
    pub unjudged: u64,
    /// Anomalies that are not in the list: of evicted processes, and of kernels beyond the capacity.
    pub left_out: u64,
    /// Anomalies of kernels that are not in the list because they cost too little.
    pub negligible: u64,
    /// The kernel whose anomalies cost the most first.
    pub list: Vec<AnomalyReport>,
}

/// The anomalies of one kernel of one process.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AnomalyReport {
    pub pid: u32,
    pub name: String,
    pub full_name: String,
    pub runs: u64,
    /// What they took beyond their medians, in sum.
    pub over_ns: u64,
    /// The remaining fields are those of the worst run: its duration, and the median with its shape.
    pub worst_ns: u64,
    pub median_ns: u64,
    pub sigmas: f64,
    /// The start of the run, since tracing of the process began.
    pub at_ns: u64,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub tid: Option<u32>,
    pub line: Option<CodeLocation>,
    pub stack: Vec<CodeLocation>,
    /// What the device did at that time; absent if it was not sampled then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_state: Option<DeviceMomentReport>,
}

pub(super) fn anomalies(
    totals: &Totals,
    aggregates: &Aggregates,
    wall_ns: u64,
    labels: &mut Labels<'_>,
) -> AnomaliesReport {
    let found = &aggregates.anomalies;
    let counts = AnomaliesReport {
        runs: found.runs,
        unjudged: found.unjudged,
        left_out: found.beyond,
        ..AnomaliesReport::default()
    };
    if found.runs == 0 {
        return counts;
    }
    let mut list = Vec::new();
    let (mut of_evicted, mut negligible) = (0, 0);
    for (key, runs) in found.sorted() {
        if runs.over_ns.saturating_mul(REPORTED_PARTS) < wall_ns {
            negligible += runs.runs;
            continue;
        }
        match totals.process(key.process) {
            Some(process) => {
                let device_state = DeviceMomentReport::of(&runs.worst, aggregates);
                list.push(AnomalyReport { device_state, ..report(process, labels, key, runs) });
            }
            None => of_evicted += runs.runs,
        }
    }
    AnomaliesReport { list, left_out: counts.left_out + of_evicted, negligible, ..counts }
}

fn report(
    process: &Process,
    Labels { kernels, stacks, .. }: &mut Labels<'_>,
    key: KernelKey,
    runs: &KernelOutliers,
) -> AnomalyReport {
    let worst = &runs.worst;
    let name = kernels.name(key.process, key.name);
    let thread = worst.call.as_ref().and_then(|call| process.definitions.thread(call.thread));
    AnomalyReport {
        pid: process.begin.pid,
        name: name.short.to_string(),
        full_name: name.full.to_string(),
        runs: runs.runs,
        over_ns: runs.over_ns,
        worst_ns: worst.timing.duration_ns,
        median_ns: worst.anomaly.median_ns.round() as u64,
        sigmas: (worst.anomaly.sigmas * 10.0).round() / 10.0,
        at_ns: process.since_begin_ns(worst.timing.start_ns),
        grid: worst.kernel.grid,
        block: worst.kernel.block,
        tid: thread.map(|thread| thread.tid),
        line: charged_location(stacks, key.process, worst.stack),
        stack: innermost(stacks, key.process, worst.stack),
        device_state: None,
    }
}
