//! Makes the report of the model's totals and the aggregates.

use std::collections::BTreeMap;
use std::path::PathBuf;

use gputrace_wire::counter::Counter;
use gputrace_wire::definition::rung;
use rustc_hash::FxHashMap;

use crate::aggregate::{Aggregates, DeviceAggregate, Moved};
use crate::batch::ProcessEnd;
use crate::failed_calls;
use crate::label::units::count;
use crate::label::{Labels, uuid};
use crate::model::{Loss, Process, Totals};
use crate::report::json::*;
use crate::report::{SeriesReport, ranges, streams, threads};
use crate::report::{
    anomalies, calls, errors, excerpt, failures, graph_times, kernels, lines, missing_times,
};
use crate::trace_file::{Damage, DamageReason};

/// What a notice about processes begins with that should be in the trace and are not.
pub(super) const NOT_RECORDED: &str = "not recorded: ";

/// Losses that take no device record away: names, stacks or calls are missing, not times.
const KEEPS_RECORDS: [&str; 11] = [
    Counter::Nested.name(),
    Counter::DefinitionsFull.name(),
    Loss::RefusedDefinitions.name(),
    Loss::UnfinishedDefinitions.name(),
    Loss::LateRecords.name(),
    Loss::ProcessesNotKept.name(),
    Counter::StacksFull.name(),
    Counter::StacksUnread.name(),
    Counter::RangesUnnamed.name(),
    Counter::RangesTooDeep.name(),
    Counter::CallersUnread.name(),
];

impl Report {
    /// What the sessions come to.
    pub fn new(totals: &Totals, aggregates: &Aggregates) -> Report {
        Report::with(totals, aggregates, &mut Labels::new(totals, aggregates))
    }

    /// The same with the labels of an analysis that has other outputs too.
    pub fn with(totals: &Totals, aggregates: &Aggregates, labels: &mut Labels<'_>) -> Report {
        let counts = &totals.counts;
        let wall_ns = totals.wall_ns();
        let records_lost = totals.damages.iter().any(|(_, damage)| damage.reason != DamageReason::Trailing)
            || totals.losses().keys().any(|reason| !KEEPS_RECORDS.contains(reason));
        let dropped: BTreeMap<String, u64> =
            totals.losses().iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect();
        let is_skipped = |damage: &Damage| matches!(damage.reason, DamageReason::Skipped(_));
        // A flight recorder and a size limit leave out what their user asked them to.
        let (excerpts, size_limits) = (excerpt::excerpts(totals), excerpt::size_limits(totals));
        let series = excerpt::series(totals);
        let is_asked_for = !excerpts.is_empty() || !size_limits.is_empty();
        let closed_in_order = totals.sessions.iter().all(|session| session.wall_ns.is_some())
            && !totals.damages.iter().any(|(_, damage)| is_skipped(damage));
        let (lines, no_line) = lines::lines(aggregates, labels);
        let beyond = aggregates.device_stacks.beyond();
        let whole_graphs = aggregates.graphs.total();
        let (threads, threads_left_out) = threads::threads(totals, aggregates, &labels.processes);
        let (streams, streams_left_out) = streams::streams(totals, aggregates);
        Report {
            schema: SCHEMA,
            version: VERSION,
            simulated: totals.simulated(),
            complete: closed_in_order
                && series.iter().all(SeriesReport::is_whole)
                && totals.unrecorded.is_empty()
                && dropped.keys().all(|reason| is_asked_for && reason == Loss::NotInTrace.name()),
            closed_in_order,
            sessions: totals.sessions.len(),
            command: totals.sessions.first().map(|s| s.begin.command.clone()).unwrap_or_default(),
            wall_ns,
            excerpts,
            size_limits,
            series,
            device_times: device_times(totals),
            device_time_coverage: counts.device_time_coverage(),
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
            },
            lines,
            no_line,
            beyond_stacks: BeyondStacks { calls: beyond.count, total_ns: beyond.ns },
            ranges: ranges::ranges(totals, aggregates, &labels.processes),
            devices: aggregates
                .devices
                .iter()
                .enumerate()
                .map(|(index, device)| device_report(index, device, wall_ns, !records_lost))
                .collect(),
            processes: totals.processes.iter().map(process_report).collect(),
            threads,
            threads_left_out,
            streams,
            streams_left_out,
            kernels: kernels::kernels(aggregates, &mut labels.kernels),
            other_kernels: OtherKernels {
                calls: aggregates.kernels.other().calls,
                total_ns: aggregates.kernels.other().durations.total_ns(),
            },
            anomalies: anomalies::anomalies(totals, aggregates, wall_ns, labels),
            transfers: aggregates
                .transfers
                .copies
                .iter()
                .map(|(direction, moved)| TransferReport {
                    direction: direction.name(),
                    moved: moved_report(moved),
                })
                .collect(),
            memsets: moved_report(&aggregates.transfers.fills),
            whole_graphs: WholeGraphs {
                calls: whole_graphs.calls,
                timed_calls: whole_graphs.durations.count(),
                total_ns: whole_graphs.durations.total_ns(),
            },
            graphs: graph_times::graphs(totals, aggregates, &labels.kernels),
            graph_times: graph_times::graph_times(totals),
            calls: calls::calls(aggregates, &labels.processes),
            call_classes: calls::call_classes(aggregates),
            errors: errors::errors(totals, aggregates, labels),
            failures: failures::failures(totals, &mut labels.stacks),
            in_flight: failures::in_flight(totals, labels),
            dropped,
            damages: totals.damages.iter().map(damage_report).collect(),
            cost: cost(totals, wall_ns),
            notices: notices(totals, beyond.count, labels.stacks.notices()),
        }
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
    let (counts, unkept) = (&totals.counts, &totals.unkept);
    let on_rung = |wanted| totals.processes.iter().any(|process| process.definitions.rung() == wanted);
    if counts.timed == 0 && (counts.on_devices() > 0 || (unkept.hooks || on_rung(rung::HOOKS))) {
        DeviceTimes::None
    } else if unkept.windows || on_rung(rung::WINDOWS) {
        DeviceTimes::Windows
    } else if counts.timed < counts.on_devices() {
        DeviceTimes::Partial
    } else {
        DeviceTimes::Full
    }
}

fn device_report(index: usize, entry: &DeviceAggregate, wall_ns: u64, nothing_lost: bool) -> DeviceReport {
    let device = &entry.device;
    let busy_ns = (entry.timed > 0).then(|| entry.busy.busy_ns());
    // Time without a known operation is idle time only if every operation is known.
    let idle_at_most_ns = busy_ns.map(|busy| wall_ns.saturating_sub(busy));
    let all_known = nothing_lost && entry.timed == entry.operations && entry.busy.late() == 0;
    DeviceReport {
        index,
        ordinal: device.ordinal,
        name: device.name.clone(),
        // As NVML and nvidia-smi write it.
        uuid: (device.uuid != [0; 2]).then(|| format!("GPU-{}", uuid(device.uuid))),
        compute_capability: (device.compute_major > 0)
            .then(|| format!("{}.{}", device.compute_major, device.compute_minor)),
        multiprocessors: device.multiprocessors,
        memory_bytes: device.total_memory_bytes,
        simulated: device.simulated,
        operations: entry.operations,
        timed_operations: entry.timed,
        busy_ns,
        idle_ns: idle_at_most_ns.filter(|_| all_known),
        idle_at_most_ns,
        active_span_ns: entry.busy.span_ns().map(|(first, last)| last - first),
        late_operations: entry.busy.late(),
    }
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

fn moved_report(moved: &Moved) -> MovedReport {
    let timed = moved.durations.count() > 0;
    MovedReport {
        calls: moved.calls,
        timed_calls: moved.durations.count(),
        bytes: moved.bytes,
        total_ns: timed.then(|| moved.durations.total_ns()),
        bandwidth_mbps: timed.then(|| moved.bandwidth_mbps()),
    }
}

fn cost(totals: &Totals, wall_ns: u64) -> Cost {
    let mut sums = totals.unkept.cost.clone();
    totals.processes.iter().for_each(|process| sums.add(process));
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

/// A `cuInit` that failed: without it nothing of the process can be traced. No device is an answer.
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

/// Each text once, in order of first appearance, warnings first.
fn notices(totals: &Totals, beyond_stacks: u64, more: Vec<String>) -> Vec<NoticeReport> {
    let mut notices: Vec<NoticeReport> = Vec::new();
    let mut places: FxHashMap<(&str, u64), (usize, u32)> = FxHashMap::default();
    for (process, notice) in totals.notices() {
        match places.get_mut(&(notice.text.as_str(), notice.severity)) {
            Some((_, last)) if *last == process => {}
            Some((place, last)) => {
                *last = process;
                if let Some(known) = notices.get_mut(*place) {
                    known.processes += 1;
                }
            }
            None => {
                places.insert((notice.text.as_str(), notice.severity), (notices.len(), process));
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
    if totals.told_together > 0 {
        let (processes, were) = match totals.told_together {
            1 => ("1 process that ended".to_owned(), "is"),
            many => (format!("{} processes that ended", count(many)), "are"),
        };
        notices.push(NoticeReport {
            severity: "information",
            text: format!(
                "{processes} {were} told together with others of the same name, as NAME [ended] in the flamegraph: \
                 there is no room for the lines, kernels, calls, failures and ranges of each by itself; sums are \
                 whole"
            ),
            processes: 1,
        });
    }
    notices.sort_by_key(|notice| notice.severity != "warning");
    notices
}
