//! The report as data, with the field names of its JSON form. `docs/report-json.md` is the
//! description; a field changes its meaning only with [`VERSION`].

use std::collections::BTreeMap;

use serde::Serialize;

use crate::aggregate::Durations;
use crate::report::{
    AnomaliesReport, ErrorsReport, ExcerptReport, FailureReport, GraphReport, GraphTimesReport,
    InFlightReport, LineReport, NoLineReport, RangeReport, SeriesReport, SizeLimitReport, StreamReport,
    ThreadReport,
};

pub const SCHEMA: &str = "gputrace-report";
pub const VERSION: u32 = 1;

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    pub schema: &'static str,
    pub version: u32,
    pub simulated: bool,
    /// Whether nothing that was to be recorded is missing.
    pub complete: bool,
    /// Whether every session was closed in order and every input was read.
    #[serde(skip)]
    pub closed_in_order: bool,
    pub sessions: usize,
    /// Of the first session.
    pub command: Vec<String>,
    pub wall_ns: u64,
    /// Sessions of which a flight recorder kept the end.
    pub excerpts: Vec<ExcerptReport>,
    /// Sessions whose trace file has their first part only.
    pub size_limits: Vec<SizeLimitReport>,
    /// Sessions whose trace was cut into files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<SeriesReport>,
    pub device_times: DeviceTimes,
    pub device_time_coverage: f64,
    #[serde(flatten)]
    pub counts: ReportCounts,
    pub devices: Vec<DeviceReport>,
    pub processes: Vec<ProcessReport>,
    /// Threads that made calls, and streams that calls were for.
    pub threads: Vec<ThreadReport>,
    pub threads_left_out: u64,
    pub streams: Vec<StreamReport>,
    pub streams_left_out: u64,
    pub kernels: Vec<KernelReport>,
    pub other_kernels: OtherKernels,
    pub anomalies: AnomaliesReport,
    /// Empty where there are no stacks.
    pub lines: Vec<LineReport>,
    pub no_line: NoLineReport,
    pub beyond_stacks: BeyondStacks,
    /// Empty where the program has none.
    pub ranges: Vec<RangeReport>,
    pub transfers: Vec<TransferReport>,
    pub memsets: MovedReport,
    pub whole_graphs: WholeGraphs,
    /// By executable graph.
    pub graphs: Vec<GraphReport>,
    /// How launches of graphs were timed; by node before the first entry of a process.
    pub graph_times: Vec<GraphTimesReport>,
    pub calls: Vec<CallReport>,
    pub call_classes: Vec<CallReport>,
    /// Calls that failed.
    pub errors: ErrorsReport,
    /// First errors after which a context is lost, by process.
    pub failures: Vec<FailureReport>,
    /// By process and stream.
    pub in_flight: Vec<InFlightReport>,
    pub dropped: BTreeMap<String, u64>,
    /// Traces that hold more or less than they should.
    pub damages: Vec<DamageReport>,
    pub cost: Cost,
    pub notices: Vec<NoticeReport>,
}

/// How device times were taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceTimes {
    /// Of every operation that was executed.
    Full,
    /// For a fraction of the time, by intent.
    Windows,
    /// Some are missing.
    Partial,
    /// Only the host calls are known.
    None,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ReportCounts {
    pub launches: u64,
    pub captured_launches: u64,
    pub graph_launches: u64,
    pub graph_node_calls: u64,
    pub device_only: u64,
    pub executed_operations: u64,
    pub timed_operations: u64,
    /// Executed copies that no device had a part in.
    pub host_to_host: u64,
    /// Operations whose device times were wanted and are missing.
    pub untimed_operations: u64,
    pub invalid_timing: u64,
    /// Records of graph launches in a second form, which are not counted again.
    pub doubled_graph_records: u64,
    pub failed_calls: u64,
    pub host_calls: u64,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct DeviceReport {
    pub index: usize,
    pub ordinal: u32,
    pub name: String,
    pub uuid: Option<String>,
    pub compute_capability: Option<String>,
    pub multiprocessors: u32,
    pub memory_bytes: u64,
    pub simulated: bool,
    pub operations: u64,
    pub timed_operations: u64,
    /// `None` without device times.
    pub busy_ns: Option<u64>,
    /// `None` unless every operation's times are known.
    pub idle_ns: Option<u64>,
    pub idle_at_most_ns: Option<u64>,
    /// From the first start to the last end.
    pub active_span_ns: Option<u64>,
    /// Operations that came too late to be counted in full as busy time.
    pub late_operations: u64,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ProcessReport {
    pub pid: u32,
    pub parent_pid: u32,
    pub command: Vec<String>,
    /// What `ps` showed last, where that was another thing than the command.
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

/// Spread of durations; all `None` where no duration is known.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Spread {
    pub total_ns: Option<u64>,
    pub min_ns: Option<u64>,
    pub mean_ns: Option<f64>,
    pub median_ns: Option<u64>,
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
            median_ns: Some(durations.quantile_ns(0.5)),
            p99_ns: Some(durations.quantile_ns(0.99)),
            max_ns: Some(durations.max_ns()),
        }
    }
}

pub(super) fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct KernelReport {
    pub name: String,
    pub full_name: String,
    /// Where it is written, if the modules of all of that name say so.
    pub source: Option<SourceReport>,
    /// Where others of that name are, 16 places at most with the first.
    pub other_sources: Vec<SourceReport>,
    pub calls: u64,
    pub timed_calls: u64,
    #[serde(flatten)]
    pub spread: Spread,
    /// Of the total of all kernels.
    pub share: Option<f64>,
    /// Over the configurations, weighted by calls.
    pub occupancy: Option<f64>,
    pub configs: Vec<ConfigReport>,
    /// Calls in configurations beyond the number that is kept.
    pub other_config_calls: u64,
}

/// The first line of a kernel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SourceReport {
    /// As the compiler was told it.
    pub file: String,
    pub line: u32,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ConfigReport {
    /// Index in `devices`.
    pub device: usize,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// All 0 where the launch named none.
    pub cluster: [u32; 3],
    pub shared_bytes: u64,
    pub static_shared_bytes: u32,
    pub dynamic_shared_bytes: u32,
    /// `None` where nobody said.
    pub registers: Option<u32>,
    pub occupancy: Option<f64>,
    pub calls: u64,
}

/// Kernels beyond the number of names that is kept.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct OtherKernels {
    pub calls: u64,
    pub total_ns: u64,
}

/// Operations of stacks beyond the number that is kept; they are among those without a line.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct BeyondStacks {
    pub calls: u64,
    pub total_ns: u64,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TransferReport {
    pub direction: &'static str,
    #[serde(flatten)]
    pub moved: MovedReport,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct MovedReport {
    pub calls: u64,
    pub timed_calls: u64,
    pub bytes: u64,
    pub total_ns: Option<u64>,
    pub bandwidth_mbps: Option<f64>,
}

/// Graph launches recorded as a whole.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct WholeGraphs {
    pub calls: u64,
    pub timed_calls: u64,
    pub total_ns: u64,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CallReport {
    /// The driver entry; the class where all its entries are together.
    pub name: String,
    pub class: &'static str,
    pub calls: u64,
    pub failed: u64,
    #[serde(flatten)]
    pub spread: Spread,
}

/// What tracing cost, as far as it was measured: what CUPTI itself adds to the program's calls is not.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Cost {
    pub sampled_hooks: u64,
    pub hook_ns: Option<f64>,
    pub hooks_total_ns: Option<f64>,
    /// Of the hooks alone. Over all threads, so it can be more than 1.
    pub hooks_share_of_wall: Option<f64>,
    pub records: u64,
    /// Handling of device records, off the program's threads.
    pub records_total_ns: f64,
    pub record_lag_max_ns: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct NoticeReport {
    /// `information` or `warning`.
    pub severity: &'static str,
    pub text: String,
    /// How many processes said it.
    pub processes: u64,
}

/// Where reading a trace ended before the file did.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DamageReport {
    pub trace: String,
    pub offset: u64,
    pub reason: String,
    /// Whether all of the trace was read, and what follows is no part of it.
    pub read_whole: bool,
    /// Whether nothing of the trace was read.
    pub skipped: bool,
}

impl SourceReport {
    /// `layers.py:42`: the file without its folder.
    pub fn text(&self) -> String {
        format!("{}:{}", self.file.rsplit('/').next().unwrap_or(&self.file), self.line)
    }
}

impl Report {
    /// The report as one JSON object, indented.
    pub fn to_json(&self) -> String {
        self.to_json_with(None::<&()>)
    }

    /// The same with one more key: how spans were sent, if they were.
    pub fn to_json_with(&self, otlp: Option<&impl Serialize>) -> String {
        #[derive(Serialize)]
        struct Whole<'a, T> {
            #[serde(flatten)]
            report: &'a Report,
            #[serde(skip_serializing_if = "Option::is_none")]
            otlp: Option<&'a T>,
        }
        // Serializing plain data into memory has nothing that can fail.
        let mut text = serde_json::to_string_pretty(&Whole { report: self, otlp }).unwrap_or_default();
        text.push('\n');
        text
    }
}
