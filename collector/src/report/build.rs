//! Makes the report from the model's totals and the aggregates.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use gputrace_wire::counter::Counter;
use rustc_hash::FxHashMap;

use crate::aggregate::{Aggregates, DeviceAggregate, SampledDevice};
use crate::batch::{DeviceIdentity, ProcessEnd};
use crate::failed_calls;
use crate::label::StackNames;
use crate::label::units::{count, duration};
use crate::label::{Labels, uuid};
use crate::model::definitions::Device;
use crate::model::recording::is_without_gaps;
use crate::model::{Evicted, Loss, Process, Totals};
use crate::report::IdleReport;
use crate::report::estimated::ReportEstimates;
use crate::report::json::*;
use crate::report::{
    DeviceMetricsReport, FindingsReport, MemoryReport, SeriesReport, ranges, recording, steps, streams,
    threads,
};
use crate::report::{
    anomalies, budget, calls, errors, excerpt, failures, graph_times, kernels, lines, missing_times, modules,
    operators, switched_times, transfers,
};
use crate::trace_file::{Damage, DamageReason};

/// The beginning of a notice about a process that should be in the trace and is not.
pub(super) const NOT_RECORDED: &str = "not recorded: ";

/// Losses of names, stacks or calls. They leave the device records whole, and so the idle times.
const KEEPS_RECORDS: [&str; 12] = [
    Counter::Nested.name(),
    Counter::DefinitionsFull.name(),
    Loss::RefusedDefinitions.name(),
    Loss::UnfinishedDefinitions.name(),
    Loss::LateRecords.name(),
    Loss::ProcessesNotKept.name(),
    Loss::UnknownKernels.name(),
    Counter::StacksFull.name(),
    Counter::StacksUnread.name(),
    Counter::RangesUnnamed.name(),
    Counter::RangesTooDeep.name(),
    Counter::CallersUnread.name(),
];

impl Report {
    /// The report of an analysis.
    pub fn new(totals: &Totals, aggregates: &Aggregates) -> Report {
        Report::with(totals, aggregates, &mut Labels::new(totals, aggregates))
    }

    /// The report with labels that the analysis's other outputs use too.
    pub fn with(totals: &Totals, aggregates: &Aggregates, labels: &mut Labels<'_>) -> Report {
        let counts = &totals.counts;
        let wall_ns = totals.wall_ns();
        let records_lost = totals.damages.iter().any(|(_, damage)| damage.reason != DamageReason::Trailing)
            || totals.losses().keys().any(|reason| !KEEPS_RECORDS.contains(reason));
        let dropped: BTreeMap<String, u64> =
            totals.losses().iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect();
        let is_skipped = |damage: &Damage| matches!(damage.reason, DamageReason::Skipped(_));
        // What a flight recorder or a size limit leaves out, the user asked to leave out.
        let (excerpts, size_limits) = (excerpt::excerpts(totals), excerpt::size_limits(totals));
        let series = excerpt::series(totals);
        let is_asked_for = !excerpts.is_empty() || !size_limits.is_empty();
        let closed_in_order = totals.sessions.iter().all(|session| session.wall_ns.is_some())
            && !totals.damages.iter().any(|(_, damage)| is_skipped(damage));
        let estimates = ReportEstimates::new(totals, aggregates);
        let (lines, no_line) = lines::lines(aggregates, labels, estimates.as_ref());
        let beyond = aggregates.device_stacks.beyond();
        let graph_level = aggregates.graphs.total();
        let (threads, threads_left_out) =
            threads::threads(totals, aggregates, &labels.processes, estimates.as_ref());
        let (kernels, other_kernels) = kernels::kernels(aggregates, &mut labels.kernels, estimates.as_ref());
        let (streams, streams_left_out) = streams::streams(totals, aggregates, estimates.as_ref());
        let mut report = Report {
            schema: SCHEMA,
            version: VERSION,
            simulated: totals.simulated,
            complete: closed_in_order
                && series.iter().all(SeriesReport::is_whole)
                && totals.unrecorded.is_empty()
                && dropped.keys().all(|reason| is_asked_for && reason == Loss::NotInTrace.name())
                && excerpts.iter().map(|excerpt| excerpt.left_out).all(|left_out| left_out.lost == 0)
                && size_limits.iter().map(|limit| limit.left_out).all(|left_out| left_out.lost == 0),
            closed_in_order,
            sessions: totals.sessions.len(),
            command: totals.sessions.first().map(|s| s.begin.command.clone()).unwrap_or_default(),
            wall_ns,
            excerpts,
            size_limits,
            series,
            paused: recording::paused(totals),
            steps: steps::steps(aggregates, totals.begin_monotonic_ns(), is_without_gaps(totals), labels),
            device_times: device_times(totals),
            switched_times: switched_times::switched_times(totals),
            budget: budget::budget(totals),
            device_time_coverage: counts.device_time_coverage(),
            estimate: estimates.as_ref().map(|estimates| estimates.report.clone()),
            counts: ReportCounts {
                launches: counts.launches,
                captured_launches: counts.captured_launches,
                graph_launches: counts.graph_launches,
                graph_node_calls: aggregates.graph_node_calls,
                device_only: counts.device_only,
                executed_operations: counts.executed,
                timed_operations: counts.timed,
                host_to_host: counts.host_to_host,
                untimed_operations: missing_times::untimed_operations(totals),
                invalid_timing: counts.invalid_timing,
                doubled_graph_records: counts.doubled_graph_records,
                failed_calls: counts.failed,
                host_calls: counts.host_calls(),
                unstacked_launches: counts.unstacked,
                counted_launches: counts.counted,
            },
            lines,
            no_line,
            modules: modules::modules_report(aggregates, labels, estimates.as_ref()),
            operators: operators::operators_report(aggregates, labels, estimates.as_ref()),
            beyond_stacks: BeyondStacks { calls: beyond.count, total_ns: beyond.ns },
            ranges: ranges::ranges(totals, aggregates, &labels.processes, estimates.as_ref()),
            devices: aggregates
                .devices
                .iter()
                .chain(&only_sampled(totals, aggregates))
                .enumerate()
                .map(|(index, device)| {
                    let sampled = aggregates.sampled_devices.of(&device.device);
                    device_report((index, device), sampled, !records_lost, totals, &mut labels.stacks)
                })
                .collect(),
            processes: totals.processes.iter().map(process_report).collect(),
            evicted_processes: evicted_report(&totals.evicted),
            threads,
            threads_left_out,
            streams,
            streams_left_out,
            kernels,
            other_kernels,
            anomalies: anomalies::anomalies(totals, aggregates, wall_ns, labels),
            transfers: transfers::transfers(aggregates, estimates.as_ref()),
            memsets: transfers::memsets(aggregates, estimates.as_ref()),
            graph_level: GraphLevelReport {
                calls: graph_level.calls,
                timed_calls: graph_level.durations.count(),
                total_ns: graph_level.durations.total_ns(),
            },
            graphs: graph_times::graphs(totals, aggregates, &labels.kernels, estimates.as_ref()),
            graph_times: graph_times::graph_times(totals),
            calls: calls::calls(aggregates, &labels.processes),
            call_classes: calls::call_classes(aggregates),
            memory: MemoryReport::new(totals, aggregates, labels),
            errors: errors::errors(totals, aggregates, labels),
            failures: failures::failures(totals, &mut labels.stacks),
            in_flight: failures::in_flight(totals, labels),
            dropped,
            damages: totals.damages.iter().map(damage_report).collect(),
            cost: cost(totals, wall_ns),
            notices: [notices(totals, beyond.count, labels.stacks.notices()), not_sampled(aggregates)]
                .concat(),
            findings: None,
            part: None,
        };
        report.findings = FindingsReport::new(&report, aggregates, labels);
        report
    }
}

fn damage_report((path, damage): &(PathBuf, Damage)) -> DamageReport {
    DamageReport {
        trace: path.display().to_string(),
        offset: damage.offset,
        reason: damage.reason.to_string(),
        read_whole: damage.reason == DamageReason::Trailing,
        skipped: matches!(damage.reason, DamageReason::Skipped(_)),
    }
}

fn device_times(totals: &Totals) -> DeviceTimes {
    let counts = &totals.counts;
    if counts.timed == 0 && (counts.on_devices() > 0 || totals.any_on_hooks) {
        DeviceTimes::None
    } else if totals.any_in_windows {
        DeviceTimes::Windows
    } else if counts.timed < counts.on_devices() {
        DeviceTimes::Partial
    } else {
        DeviceTimes::Full
    }
}

fn device_report(
    (index, entry): (usize, &DeviceAggregate),
    sampled: Option<&SampledDevice>,
    nothing_lost: bool,
    totals: &Totals,
    stacks: &mut StackNames<'_>,
) -> DeviceReport {
    let wall_ns = totals.wall_ns();
    let device = &entry.device;
    let time = entry.time(totals);
    // Time without a known operation is idle time only if every operation is known.
    let idle_at_most_ns = time.as_ref().map(|time| time.idle_ns);
    let all_known = nothing_lost && entry.timed == entry.operations && entry.busy.late() == 0;
    DeviceReport {
        index,
        ordinal: device.ordinal,
        name: device.name.clone(),
        // Written as by NVML and nvidia-smi.
        uuid: (device.uuid != [0; 2]).then(|| format!("GPU-{}", uuid(device.uuid))),
        compute_capability: (device.compute_major > 0)
            .then(|| format!("{}.{}", device.compute_major, device.compute_minor)),
        multiprocessors: device.multiprocessors,
        memory_bytes: device.total_memory_bytes,
        simulated: device.simulated,
        operations: entry.operations,
        timed_operations: entry.timed,
        busy_ns: time.as_ref().map(|time| time.busy_ns),
        idle_ns: idle_at_most_ns.filter(|_| all_known),
        idle_at_most_ns,
        active_span_ns: entry.busy.span_ns().map(|(first, last)| last - first),
        late_operations: entry.busy.late(),
        idle: time
            .filter(|_| is_without_gaps(totals))
            .map(|time| IdleReport::new(time.idle, wall_ns, stacks)),
        metrics: sampled.map(DeviceMetricsReport::new),
    }
}

/// The devices that were sampled and executed nothing, as the first process to define each describes it.
fn only_sampled(totals: &Totals, aggregates: &Aggregates) -> Vec<DeviceAggregate> {
    let defined: BTreeMap<DeviceIdentity, Device> = totals
        .processes
        .iter()
        .rev()
        .flat_map(|process| process.definitions.devices().map(|device| (device.identity(), device)))
        .collect();
    let used: BTreeSet<_> = aggregates.devices.iter().map(|entry| entry.device.identity()).collect();
    let sampled = aggregates.sampled_devices.iter();
    sampled
        .filter(|sampled| sampled.samples > 0 && !used.contains(&sampled.identity))
        .filter_map(|sampled| defined.get(&sampled.identity).cloned())
        .map(|device| DeviceAggregate { device, ..DeviceAggregate::default() })
        .collect()
}

/// Why devices were not sampled: each reason once.
fn not_sampled(aggregates: &Aggregates) -> Vec<NoticeReport> {
    let devices = aggregates.sampled_devices.iter().map(DeviceMetricsReport::new);
    let mut why: Vec<String> = devices.filter_map(|metrics| metrics.notice()).collect();
    why.dedup();
    why.into_iter().map(|text| NoticeReport { severity: "information", text, processes: 1 }).collect()
}

fn process_report(process: &Process) -> ProcessReport {
    let info = process.definitions.process().unwrap_or_default();
    ProcessReport {
        pid: process.begin.pid,
        parent_pid: process.begin.parent_pid,
        command: info.command,
        title: info.title.map(|title| title.join(" ")),
        rank: info.rank,
        local_rank: info.local_rank,
        end: match process.end {
            Some((ProcessEnd::Exit, _)) => "exit",
            Some((ProcessEnd::Exec, _)) => "exec",
            Some((ProcessEnd::Vanished, _)) => "vanished",
            Some((ProcessEnd::Running, _)) => "running",
            None => "unknown",
        },
        host_calls: process.counts.host_calls(),
        launches: process.counts.launches,
        executed_operations: process.counts.executed,
        hook_cost_ns: process.hook_cost_ns().map(tenths),
    }
}

fn evicted_report(evicted: &Evicted) -> Option<EvictedReport> {
    let counts = &evicted.counts;
    (evicted.processes > 0).then(|| EvictedReport {
        processes: evicted.processes,
        failed: evicted.failed,
        host_calls: counts.host_calls(),
        launches: counts.launches,
        graph_launches: counts.graph_launches,
        copies: counts.copies,
        memsets: counts.fills,
        executed_operations: counts.executed,
        timed_operations: counts.timed,
        device_total_ns: counts.device_ns,
        dropped: evicted.lost,
    })
}

fn cost(totals: &Totals, wall_ns: u64) -> Cost {
    let sums = &totals.cost;
    let lag_ns = sums.record_lag_max_ns;
    let mut cost = Cost {
        records: totals.counter(Counter::RecordsDelivered),
        records_total_ns: sums.records_ns,
        record_lag_max_ns: (lag_ns > 0).then_some(lag_ns),
        sampled_hooks: sums.sampled_hooks,
        ..Cost::default()
    };
    if cost.sampled_hooks > 0 {
        cost.hook_ns = Some(tenths(sums.sampled_ns / cost.sampled_hooks as f64));
        cost.hooks_total_ns = Some(sums.hooks_ns.round());
        cost.hooks_share_of_wall = (wall_ns > 0).then(|| sums.hooks_ns / wall_ns as f64);
    }
    cost
}

/// The notice about a `cuInit` that failed: nothing of the process can be traced. If it failed because there
/// is no device, that is information and no warning.
fn not_initialised(pid: u32, status: u16) -> NoticeReport {
    let advice = failed_calls::advice_on(status).map_or_else(String::new, |advice| format!(": {advice}"));
    let error = failed_calls::name(status);
    let is_answer = failed_calls::answer("cuInit", status, "").is_some();
    NoticeReport {
        severity: if is_answer { "information" } else { "warning" },
        text: format!("process {pid} has no CUDA: cuInit returned {error} ({status}){advice}"),
        processes: 1,
    }
}

fn evicted_notice(evicted: &Evicted) -> Option<NoticeReport> {
    let who = match evicted.processes {
        0 => return None,
        1 => "1 process that exited is not listed: its".to_owned(),
        many => format!("{} processes that exited first are not listed: their", count(many)),
    };
    let (launches, operations) = (count(evicted.counts.launches), count(evicted.counts.executed));
    let device = duration(evicted.counts.device_ns);
    let mut text = format!(
        "{who} {launches} launches, {operations} executed operations with {device} of device time are in the sums only"
    );
    if evicted.failed > 0 {
        text += &format!("; contexts lost: {}", count(evicted.failed));
    }
    Some(NoticeReport { severity: "information", text, processes: 1 })
}

/// Each text once, in order of first appearance, warnings first.
fn notices(totals: &Totals, beyond_stacks: u64, more: Vec<String>) -> Vec<NoticeReport> {
    let mut notices: Vec<NoticeReport> = Vec::new();
    let mut known: FxHashMap<(&str, u64), (usize, u32)> = FxHashMap::default();
    for (process, notice) in totals.notices() {
        match known.get_mut(&(notice.text.as_str(), notice.severity)) {
            Some((_, last)) if *last == process => {}
            Some((index, last)) => {
                *last = process;
                if let Some(notice) = notices.get_mut(*index) {
                    notice.processes += 1;
                }
            }
            None => {
                known.insert((notice.text.as_str(), notice.severity), (notices.len(), process));
                notices.push(NoticeReport {
                    severity: if notice.severity == 0 { "information" } else { "warning" },
                    text: notice.text.clone(),
                    processes: 1,
                });
            }
        }
    }
    let unrecorded = totals.unrecorded.iter().map(|who| format!("{NOT_RECORDED}{who}"));
    let others = missing_times::explanations(totals).into_iter().chain(more);
    notices.extend(unrecorded.chain(others).map(|text| NoticeReport {
        severity: "warning",
        text,
        processes: 1,
    }));
    notices.extend(totals.not_initialised.iter().map(|(pid, status)| not_initialised(*pid, *status)));
    if beyond_stacks > 0 {
        let operations = count(beyond_stacks);
        notices.push(NoticeReport {
            severity: "warning",
            text: format!("more stacks than are told apart: {operations} operations stand under (other) in the flamegraph and have no line"),
            processes: 1,
        });
    }
    notices.extend(evicted_notice(&totals.evicted));
    notices.sort_by_key(|notice| notice.severity != "warning");
    notices
}
