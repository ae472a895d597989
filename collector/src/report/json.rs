//! The report as data. The fields have the names of the JSON keys, which `docs/report-json.md` describes. A
//! field changes its meaning only with [`VERSION`].

use std::collections::BTreeMap;

use serde::Serialize;

use crate::aggregate::{Durations, LaunchSums, Weight};
use crate::report::{
    AnomaliesReport, BudgetReport, DeviceMetricsReport, ErrorsReport, EstimateReport, EstimatedTime,
    ExcerptReport, FailureReport, FindingsReport, GraphReport, GraphTimesReport, IdleReport, InFlightReport,
    LineReport, MemoryReport, ModulesReport, MovedReport, NoLineReport, OccupancyReport, OperatorsReport,
    PartReport, PausedReport, RangeReport, SeriesReport, SizeLimitReport, StepsReport, StreamReport,
    SwitchedTimesReport, ThreadReport, TransferReport,
};

pub const SCHEMA: &str = "gputrace-report";
pub const VERSION: u32 = 1;

#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Report {
    /// Always `gputrace-report`.
    pub schema: &'static str,
    /// Changes when a field goes or changes its meaning.
    pub version: u32,
    /// Whether any driver or device was a simulation; then no time is a real device's.
    pub simulated: bool,
    /// Whether everything that should be recorded is in the report.
    pub complete: bool,
    /// Whether every session was closed in order and every input was read.
    #[serde(skip)]
    pub closed_in_order: bool,
    /// How many sessions were read.
    pub sessions: usize,
    /// The command of the first session.
    pub command: Vec<String>,
    /// From the begin of the first session to the end of the last; of an excerpt, from its first event to
    /// its last.
    pub wall_ns: u64,
    /// Sessions of which a flight recorder kept the last part.
    pub excerpts: Vec<ExcerptReport>,
    /// Sessions whose trace file holds the first part only.
    pub size_limits: Vec<SizeLimitReport>,
    /// Sessions whose trace was cut into files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<SeriesReport>,
    /// Sessions that were paused for a time.
    #[serde(rename = "recording", skip_serializing_if = "Option::is_none")]
    pub paused: Option<PausedReport>,
    /// What was selected, if this is not the report of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<PartReport>,
    /// What costs time and what would help; absent where too little is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub findings: Option<FindingsReport>,
    /// Of processes that do the same again and again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepsReport>,
    pub device_times: DeviceTimes,
    /// Sessions whose device times were switched while they ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switched_times: Option<SwitchedTimesReport>,
    /// What the session was allowed to cost, and what it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetReport>,
    /// Executed operations with valid times over executed operations without those in `host_to_host`; 1 if
    /// there were none.
    pub device_time_coverage: f64,
    /// Where only a part of the operations has device times: an estimate for all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<EstimateReport>,
    #[serde(flatten)]
    pub counts: ReportCounts,
    /// Devices that were used or sampled, by process and first use.
    pub devices: Vec<DeviceReport>,
    /// Processes that loaded a driver.
    pub processes: Vec<ProcessReport>,
    /// The sums of exited processes that are not in `processes`, if more exited than are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evicted_processes: Option<EvictedReport>,
    /// Threads that made calls.
    pub threads: Vec<ThreadReport>,
    /// Threads that are not in `threads`, which has the 1000 with the most device time.
    pub threads_left_out: u64,
    /// Streams that operations were executed in.
    pub streams: Vec<StreamReport>,
    /// Streams that are not in `streams`, which has the 1000 with the most device time.
    pub streams_left_out: u64,
    /// By short name, the one with the most device time first.
    pub kernels: Vec<KernelReport>,
    pub other_kernels: OtherKernels,
    /// Runs of kernels that took far longer than usual.
    pub anomalies: AnomaliesReport,
    /// Empty if no stacks were recorded.
    pub lines: Vec<LineReport>,
    /// Operations that have no line.
    pub no_line: NoLineReport,
    /// GPU time by PyTorch module; absent if no stack is inside of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modules: Option<ModulesReport>,
    /// GPU time by PyTorch operator; absent if no stack has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operators: Option<OperatorsReport>,
    pub beyond_stacks: BeyondStacks,
    /// Empty if the program has no ranges.
    pub ranges: Vec<RangeReport>,
    /// Copies by direction.
    pub transfers: Vec<TransferReport>,
    /// Memsets of all kinds.
    pub memsets: MovedReport,
    #[serde(rename = "whole_graphs")]
    pub graph_level: GraphLevelReport,
    /// By executable graph, those timed as a whole.
    pub graphs: Vec<GraphReport>,
    /// How graph launches were timed: by node before a process's first entry.
    pub graph_times: Vec<GraphTimesReport>,
    /// Host calls by driver entry.
    pub calls: Vec<CallReport>,
    /// The same by what the calls do.
    pub call_classes: Vec<CallReport>,
    /// Memory of devices, and pinned and managed memory, that the program allocated.
    pub memory: MemoryReport,
    /// Calls that failed.
    pub errors: ErrorsReport,
    /// By process, the first error after which the context is lost.
    pub failures: Vec<FailureReport>,
    /// Operations in flight at a failure, by process and stream.
    pub in_flight: Vec<InFlightReport>,
    /// What was lost, by reason; empty if nothing was.
    pub dropped: BTreeMap<String, u64>,
    /// Traces with missing, unreadable or trailing bytes.
    pub damages: Vec<DamageReport>,
    pub cost: Cost,
    /// What the recording has to say about itself.
    pub notices: Vec<NoticeReport>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EvictedReport {
    pub processes: u64,
    /// Those of them that lost a context.
    pub failed: u64,
    pub host_calls: u64,
    pub launches: u64,
    pub graph_launches: u64,
    pub copies: u64,
    pub memsets: u64,
    pub executed_operations: u64,
    pub timed_operations: u64,
    pub device_total_ns: u64,
    pub dropped: u64,
}

/// Which operations have device times.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum DeviceTimes {
    /// Every executed operation.
    Full,
    /// Those in windows, as the user asked.
    Windows,
    /// Some operations lack times that were wanted.
    Partial,
    /// No operation: only host calls are known.
    None,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ReportCounts {
    /// Kernel launches that the driver accepted for execution.
    pub launches: u64,
    /// Launches on a stream that was being captured; they execute nothing.
    pub captured_launches: u64,
    /// Launches of a whole graph.
    pub graph_launches: u64,
    /// Executed operations that were nodes of a graph launch; each is also counted where its kernel or copy
    /// is.
    pub graph_node_calls: u64,
    /// Device records whose host call is not known.
    pub device_only: u64,
    /// Kernels, copies, memsets and whole graphs that a device executed or, without a record, was asked to.
    pub executed_operations: u64,
    /// Those with valid device times.
    pub timed_operations: u64,
    /// Executed copies from host to host, in which no device took part.
    pub host_to_host: u64,
    /// Operations whose device times were wanted and are missing.
    pub untimed_operations: u64,
    /// Device records with unusable times.
    pub invalid_timing: u64,
    /// Records of graph launches that were recorded in the other form too; they are not counted again.
    pub doubled_graph_records: u64,
    /// Launches, copies and memsets that the driver refused.
    pub failed_calls: u64,
    /// Hooked calls of all kinds, without launches that were only counted.
    pub host_calls: u64,
    /// Launches that were recorded without a stack, and launches that were only counted, to keep a budget;
    /// absent where there are none.
    #[serde(skip_serializing_if = "is_zero")]
    pub unstacked_launches: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub counted_launches: u64,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DeviceReport {
    /// The number that `configs` of kernels and `streams` name it by.
    pub index: usize,
    /// As the first process numbers it that used it.
    pub ordinal: u32,
    pub name: String,
    /// As nvidia-smi writes it; `None` if the device is not described.
    pub uuid: Option<String>,
    pub compute_capability: Option<String>,
    /// 0 if the device is not described.
    pub multiprocessors: u32,
    pub memory_bytes: u64,
    pub simulated: bool,
    /// Operations that it executed.
    pub operations: u64,
    /// Those with device times.
    pub timed_operations: u64,
    /// `None` without device times.
    pub busy_ns: Option<u64>,
    /// `None` unless the times of every operation are known.
    pub idle_ns: Option<u64>,
    /// Wall time without busy time; less if some operations have no times.
    pub idle_at_most_ns: Option<u64>,
    /// From the first start to the last end.
    pub active_span_ns: Option<u64>,
    /// Operations whose records came too late to be counted in full as busy time.
    pub late_operations: u64,
    /// Why it was idle: `idle_at_most_ns` by cause; `None` without device times.
    pub idle: Option<IdleReport>,
    /// Absent if the device was not sampled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<DeviceMetricsReport>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProcessReport {
    pub pid: u32,
    pub parent_pid: u32,
    pub command: Vec<String>,
    /// The title that `ps` showed last, if it differs from the command.
    pub title: Option<String>,
    pub rank: Option<u32>,
    pub local_rank: Option<u32>,
    /// `exit`, `exec`, `vanished`, `running` or `unknown`.
    pub end: &'static str,
    pub host_calls: u64,
    pub launches: u64,
    pub executed_operations: u64,
    pub hook_cost_ns: Option<f64>,
}

/// The spread of durations. All fields are `None` if no duration is known.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Spread {
    pub total_ns: Option<u64>,
    pub min_ns: Option<u64>,
    pub mean_ns: Option<f64>,
    /// The standard deviation, to within 0.4 % of the durations; `None` also for a single one.
    pub deviation_ns: Option<f64>,
    /// Within 0.4 %.
    pub median_ns: Option<u64>,
    /// Within 0.4 %.
    pub p99_ns: Option<u64>,
    pub max_ns: Option<u64>,
}

impl Spread {
    pub(super) fn new(durations: &Durations) -> Spread {
        if durations.count() == 0 {
            return Spread::default();
        }
        Spread {
            total_ns: Some(durations.total_ns()),
            min_ns: Some(durations.min_ns()),
            mean_ns: Some(tenths(durations.mean_ns())),
            deviation_ns: durations.deviation_ns().map(tenths),
            median_ns: Some(durations.quantile_ns(0.5)),
            p99_ns: Some(durations.quantile_ns(0.99)),
            max_ns: Some(durations.max_ns()),
        }
    }
}

pub(super) fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// The device time of a weight, if any of its operations has one.
pub(super) fn device_ns(weight: Weight) -> Option<u64> {
    (weight.timed > 0).then_some(weight.ns)
}

/// `ns` as a share of `all_ns`.
pub(super) fn share(ns: Option<u64>, all_ns: u64) -> Option<f64> {
    ns.filter(|_| all_ns > 0).map(|ns| ns as f64 / all_ns as f64)
}

/// From the begin of a kernel's launches to its ends, without nodes of graphs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LaunchesReport {
    pub calls: u64,
    /// From the begin of the call to the end of the kernel.
    pub total_mean_ns: f64,
    /// In the calls.
    pub api_mean_ns: f64,
    pub api_max_ns: u64,
    /// Launches whose kernel started after the call had ended, and the time between.
    pub queued_calls: u64,
    pub queue_mean_ns: Option<f64>,
    pub queue_max_ns: Option<u64>,
    /// Of the kernels of these launches.
    pub kernel_mean_ns: f64,
    /// Launches whose call took longer than the kernel.
    pub shorter_calls: u64,
}

impl LaunchesReport {
    pub(super) fn new(sums: &LaunchSums) -> Option<LaunchesReport> {
        let mean = |ns: u64, calls: u64| tenths(ns as f64 / calls as f64);
        let has_queue = sums.queued > 0;
        (sums.calls > 0).then(|| LaunchesReport {
            calls: sums.calls,
            total_mean_ns: mean(sums.total_ns, sums.calls),
            api_mean_ns: mean(sums.api_ns, sums.calls),
            api_max_ns: sums.api_max_ns,
            queued_calls: sums.queued,
            queue_mean_ns: has_queue.then(|| mean(sums.queue_ns, sums.queued)),
            queue_max_ns: has_queue.then_some(sums.queue_max_ns),
            kernel_mean_ns: mean(sums.kernel_ns, sums.calls),
            shorter_calls: sums.shorter,
        })
    }
}

/// The executions of one kernel.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KernelReport {
    /// Short, without parameters; distinguished where several kernels shorten alike.
    pub name: String,
    /// Demangled.
    pub full_name: String,
    /// The source line, if it is known for every kernel of the name.
    pub source: Option<SourceReport>,
    /// Further source lines of kernels of the name. With the first, at most 16 are kept.
    pub other_sources: Vec<SourceReport>,
    /// Executions, also those without device times.
    pub calls: u64,
    /// Those with device times, which the spread is of.
    pub timed_calls: u64,
    #[serde(flatten)]
    pub spread: Spread,
    /// Of the device time of all kernels.
    pub share: Option<f64>,
    /// Of all calls, where only a part of the operations has device times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<EstimatedTime>,
    /// Launches of which the call and the kernel have times; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launches: Option<LaunchesReport>,
    /// The mean over the configurations, weighted by calls.
    pub occupancy: Option<f64>,
    /// The same of more than half of the calls.
    #[serde(flatten)]
    pub limited: OccupancyReport,
    /// Launch configurations, the one of the most calls first.
    pub configs: Vec<ConfigReport>,
    /// Calls in configurations beyond the capacity.
    pub other_config_calls: u64,
}

/// The first line of a kernel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SourceReport {
    /// As the compiler recorded it.
    pub file: String,
    pub line: u32,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ConfigReport {
    /// Index in `devices`.
    pub device: usize,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// All 0 if the launch named none.
    pub cluster: [u32; 3],
    pub shared_bytes: u64,
    pub static_shared_bytes: u32,
    pub dynamic_shared_bytes: u32,
    /// `None` if unknown.
    pub registers: Option<u32>,
    pub occupancy: Option<f64>,
    #[serde(flatten)]
    pub limited: OccupancyReport,
    pub calls: u64,
}

pub(super) fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A damaged trace may have sides of any length.
fn volume(sides: [u32; 3]) -> u64 {
    sides.into_iter().fold(1, |product: u64, side| product.saturating_mul(side.into()))
}

impl ConfigReport {
    pub(super) fn blocks(&self) -> u64 {
        volume(self.grid)
    }

    /// Threads of a block.
    pub(super) fn threads(&self) -> u64 {
        volume(self.block)
    }
}

/// Kernels of names beyond the capacity.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OtherKernels {
    pub calls: u64,
    pub total_ns: u64,
}

/// Operations of stacks beyond the capacity. They are among the operations without a line.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BeyondStacks {
    pub calls: u64,
    pub total_ns: u64,
}

/// Graph launches that were timed as a whole.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GraphLevelReport {
    pub calls: u64,
    pub timed_calls: u64,
    pub total_ns: u64,
}

/// Calls of one driver entry, or of one class.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CallReport {
    /// The driver entry; in `call_classes` the class.
    pub name: String,
    pub class: &'static str,
    pub calls: u64,
    pub failed: u64,
    #[serde(flatten)]
    pub spread: Spread,
}

/// The measured cost of tracing. What CUPTI itself adds to the program's calls is not measured.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Cost {
    pub sampled_hooks: u64,
    pub hook_ns: Option<f64>,
    pub hooks_total_ns: Option<f64>,
    /// Of the hooks alone. Summed over all threads, so it can exceed 1.
    pub hooks_share_of_wall: Option<f64>,
    pub records: u64,
    /// Time to process device records, on other threads than the program's.
    pub records_total_ns: f64,
    pub record_lag_max_ns: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NoticeReport {
    /// `information` or `warning`.
    pub severity: &'static str,
    pub text: String,
    /// How many processes gave this notice.
    pub processes: u64,
}

/// Why and where reading a trace ended before the end of the file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DamageReport {
    pub trace: String,
    pub offset: u64,
    pub reason: String,
    /// Whether all of the trace was read. The bytes after it are no part of it.
    pub read_whole: bool,
    /// Whether the trace was not read at all.
    pub skipped: bool,
}

/// What `gputrace report --json` and `gputrace run --json FILE` write; docs/report-json.md describes every
/// field. Times are nanoseconds, sizes are bytes, shares go from 0 to 1, and null is a value that is not
/// known. New fields may come within a version.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct WholeReport<'a, T> {
    #[serde(flatten)]
    report: &'a Report,
    /// How spans and metrics were sent, if they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    otlp: Option<&'a T>,
}

impl SourceReport {
    /// `layers.py:42`: the file without its folder, and the line.
    pub fn text(&self) -> String {
        format!("{}:{}", self.file.rsplit('/').next().unwrap_or(&self.file), self.line)
    }
}

impl Report {
    /// The report as one JSON object, indented.
    pub fn to_json(&self) -> String {
        self.to_json_with(None::<&()>)
    }

    /// The JSON object with one more key, `otlp`: how spans were sent, if they were.
    pub fn to_json_with(&self, otlp: Option<&impl Serialize>) -> String {
        // Serializing plain data into memory cannot fail.
        let mut text = serde_json::to_string_pretty(&WholeReport { report: self, otlp }).unwrap_or_default();
        text.push('\n');
        text
    }
}
