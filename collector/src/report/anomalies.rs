//! Anomalies: runs of a kernel that took far longer than its median.

use serde::Serialize;

use crate::aggregate::{Aggregates, KernelKey, KernelOutliers};
use crate::label::Labels;
use crate::label::units::{duration, percent};
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
    /// From the last end of an operation before to the run's start; `null` if no such operation is known.
    pub idle_before_ns: Option<u64>,
    /// The stream that executed something for the longest time meanwhile; absent if none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside: Option<BesideReport>,
    /// What the device did at that time; absent if it was not sampled then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_state: Option<DeviceMomentReport>,
}

/// A stream that executed something while a kernel ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BesideReport {
    pub pid: u32,
    /// The stream's number in device records.
    pub stream: u32,
    /// How long, at most as long as the kernel and longer only if the stream's operations ran at once.
    pub ns: u64,
}

/// Other work explains a slow run if it took at least this part of it.
const BESIDE_MIN: f64 = 0.5;
/// A device is cold after it had nothing to do for so long, and for so many times the kernel's median.
const COLD_NS: u64 = 100_000_000;
const COLD_TIMES: u64 = 10;

impl AnomalyReport {
    /// Why the worst run may have been slow, in words; `None` if nothing is known.
    pub(super) fn causes(&self) -> Option<String> {
        let clock = self.device_state.as_ref().and_then(DeviceMomentReport::line);
        let beside = self.beside.and_then(|beside| {
            let part = (beside.ns as f64 / self.worst_ns.max(1) as f64).min(1.0);
            let of =
                if beside.pid == self.pid { String::new() } else { format!(" of process {}", beside.pid) };
            (part >= BESIDE_MIN)
                .then(|| format!("work on stream {}{of} during {} of it", beside.stream, percent(part)))
        });
        let is_cold = |ns: &u64| *ns >= COLD_NS.max(self.median_ns.saturating_mul(COLD_TIMES));
        let cold = self.idle_before_ns.filter(is_cold);
        let cold = cold.map(|ns| format!("the first after {} without work", duration(ns)));
        let causes: Vec<String> = [clock, beside, cold].into_iter().flatten().collect();
        (!causes.is_empty()).then(|| causes.join("; "))
    }
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
                let beside = runs.worst.surroundings.busiest_beside().and_then(|((process, stream), ns)| {
                    Some(BesideReport { pid: totals.process(process)?.begin.pid, stream, ns })
                });
                list.push(AnomalyReport { device_state, beside, ..report(process, labels, key, runs) });
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
        idle_before_ns: worst.surroundings.idle_before_ns,
        beside: None,
        device_state: None,
    }
}
