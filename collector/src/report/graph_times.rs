//! How graph launches were timed, by node or as a whole, and the times of launches timed as a whole.

use gputrace_wire::definition::{graph_mode, graph_reason};
use serde::Serialize;

use crate::aggregate::{Aggregates, GraphKey, Leaf};
use crate::label::KernelNames;
use crate::label::units::{count, duration};
use crate::model::definitions::GraphTimes;
use crate::model::{Process, Totals};
use crate::report::EstimatedTime;
use crate::report::estimated::{ReportEstimates, shown};
use crate::report::json::{Spread, tenths};

/// Graphs in the report: those with the most device time.
const GRAPHS_MAX: usize = 1000;
/// Changes in the report: the first ones of a process.
const CHANGES_MAX: usize = 64;

/// How a process's graphs were timed from a moment on.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GraphTimesReport {
    pub pid: u32,
    /// `node` or `graph`.
    pub mode: &'static str,
    /// `asked`, `many_short_nodes`, `looks_again`, `other_client`, `other_client_left`, `refused`,
    /// `unprepared`, or `unknown`.
    pub reason: &'static str,
    /// Since tracing of the process began.
    pub at_ns: u64,
    /// Measured before the change to whole graphs; `None` unless the reason is `many_short_nodes`.
    pub nodes_per_launch: Option<f64>,
    pub mean_node_ns: Option<f64>,
}

/// An executable graph whose launches were recorded as a whole.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GraphReport {
    pub pid: u32,
    /// The graph's number in device records.
    pub graph: Option<u32>,
    /// As in the flamegraph.
    pub label: String,
    /// How many nodes it has, if known.
    pub nodes: Option<u32>,
    pub calls: u64,
    pub timed_calls: u64,
    #[serde(flatten)]
    pub spread: Spread,
    /// Of all calls, where only a part of the operations has device times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<EstimatedTime>,
}

impl GraphReport {
    /// Its device time, estimated where not all of it was measured.
    pub fn time_ns(&self) -> Option<u64> {
        shown(self.estimate.as_ref(), self.spread.total_ns)
    }
}

pub(super) fn graph_times(totals: &Totals) -> Vec<GraphTimesReport> {
    let processes = totals.processes.iter();
    let of = |process: &'_ Process| {
        let times = process.definitions.graph_times().take(CHANGES_MAX);
        times.map(|times| change(process, &times)).collect::<Vec<_>>()
    };
    processes.flat_map(of).collect()
}

fn change(process: &Process, times: &GraphTimes) -> GraphTimesReport {
    let ticks = times.at_ticks.saturating_sub(process.begin.start_ticks);
    let ratio = |sum: u64, of: u64| (of > 0).then(|| tenths(sum as f64 / of as f64));
    GraphTimesReport {
        pid: process.begin.pid,
        mode: if times.mode == graph_mode::GRAPH { "graph" } else { "node" },
        reason: match times.reason {
            graph_reason::ASKED => "asked",
            graph_reason::MANY_SHORT => "many_short_nodes",
            graph_reason::LOOKS_AGAIN => "looks_again",
            graph_reason::OTHER_CLIENT => "other_client",
            graph_reason::OTHER_CLIENT_LEFT => "other_client_left",
            graph_reason::REFUSED => "refused",
            graph_reason::UNPREPARED => "unprepared",
            _ => "unknown",
        },
        at_ns: (ticks as f64 * process.ns_per_tick) as u64,
        nodes_per_launch: ratio(times.nodes, times.launches),
        mean_node_ns: ratio(times.nodes_ns, times.nodes),
    }
}

/// The one with the most device time first. Graphs of evicted processes are only in the total of all graphs.
pub(super) fn graphs(
    totals: &Totals,
    aggregates: &Aggregates,
    names: &KernelNames<'_>,
    estimates: Option<&ReportEstimates>,
) -> Vec<GraphReport> {
    let estimated = estimates.map(|estimates| {
        estimates.by(|row| match row.key.leaf {
            Leaf::Graph(graph) => Some(GraphKey { process: row.key.process, graph }),
            _ => None,
        })
    });
    let mut reports: Vec<GraphReport> = aggregates
        .graphs
        .sorted()
        .into_iter()
        .filter_map(|(key, graph)| {
            Some(GraphReport {
                pid: totals.process(key.process)?.begin.pid,
                graph: (key.graph != 0).then_some(key.graph),
                label: names.graph(key.process, key.graph).to_string(),
                nodes: (graph.nodes != 0).then_some(graph.nodes),
                calls: graph.calls,
                timed_calls: graph.durations.count(),
                spread: Spread::new(&graph.durations),
                estimate: estimated.as_ref().map(|sums| {
                    let estimate = sums.get(&key).copied().unwrap_or_default();
                    EstimatedTime::new(graph.durations.total_ns(), &estimate)
                }),
            })
        })
        .collect();
    reports.sort_by_key(|graph| std::cmp::Reverse((graph.time_ns(), graph.calls)));
    reports.truncate(GRAPHS_MAX);
    reports
}

/// The line `Graphs` of the summary: `by node, from 1.20 s on by graph, since …`.
pub(super) fn line(changes: &[GraphTimesReport]) -> String {
    let first = changes.iter().find(|change| change.mode == "graph").or(changes.first());
    let Some(change) = first else { return "by node".to_owned() };
    let processes = changes.chunk_by(|a, b| a.pid == b.pid).count();
    let many =
        if processes > 1 { format!(" ({} processes)", count(processes as u64)) } else { String::new() };
    let text = match (change.mode, change.reason) {
        ("graph", "asked") => "by graph, as asked".to_owned(),
        ("graph", "many_short_nodes") => {
            let nodes = change.nodes_per_launch.unwrap_or(0.0).round() as u64;
            let mean_ns = change.mean_node_ns.unwrap_or(0.0).round() as u64;
            format!(
                "by node, from {} on by graph, since nodes are many and short: about {} a launch, of {} on average \
                 (--graph-times node keeps their kernels)",
                duration(change.at_ns),
                count(nodes),
                duration(mean_ns),
            )
        }
        ("graph", _) => {
            format!("by graph from {} on, when another client of CUPTI had left", duration(change.at_ns))
        }
        (_, "asked") => "by node, as asked".to_owned(),
        (_, "other_client") => "by node, as another client of CUPTI wants it".to_owned(),
        (_, "refused") => "by node: this CUPTI gives no records of whole graphs".to_owned(),
        (_, "unprepared") => "by node: there may be graphs that this CUPTI cannot begin to time as a whole \
                              (--graph-times graph does so from the start)"
            .to_owned(),
        _ => "by node".to_owned(),
    };
    let is_shared = change.mode == "graph" && changes.iter().any(|change| change.reason == "other_client");
    let again = if is_shared { "; by node while another client of CUPTI wanted it" } else { "" };
    let last = changes.iter().rfind(|later| later.pid == change.pid);
    let since = match last.filter(|last| (last.mode, last.reason) == ("node", "looks_again")) {
        Some(last) => format!("; by node again from {} on", duration(last.at_ns)),
        None => String::new(),
    };
    text + again + &since + &many
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(pid: u32, mode: &'static str, reason: &'static str) -> GraphTimesReport {
        let (nodes_per_launch, mean_node_ns) = (Some(299.6), Some(1_900.0));
        GraphTimesReport { pid, mode, reason, at_ns: 1_200_000_000, nodes_per_launch, mean_node_ns }
    }

    #[test]
    fn line_says_how_since_when_and_why() {
        let many = "by node, from 1.20 s on by graph, since nodes are many and short: about 300 a launch, of 1.90 µs \
                    on average (--graph-times node keeps their kernels)";
        let of = |changes: &[(u32, &'static str, &'static str)]| {
            line(&changes.iter().map(|(pid, mode, reason)| change(*pid, mode, reason)).collect::<Vec<_>>())
        };
        assert_eq!(of(&[]), "by node");
        assert_eq!(of(&[(1, "node", "asked")]), "by node, as asked");
        assert_eq!(of(&[(1, "graph", "asked")]), "by graph, as asked");
        assert_eq!(of(&[(1, "node", "refused")]), "by node: this CUPTI gives no records of whole graphs");
        assert!(of(&[(1, "node", "unprepared")]).starts_with("by node: there may be graphs that"));
        assert_eq!(of(&[(1, "graph", "many_short_nodes")]), many);
        assert_eq!(
            of(&[(1, "graph", "many_short_nodes"), (2, "graph", "many_short_nodes")]),
            format!("{many} (2 processes)")
        );
        assert_eq!(
            of(&[(1, "graph", "asked"), (1, "node", "other_client"), (1, "graph", "other_client_left")]),
            "by graph, as asked; by node while another client of CUPTI wanted it"
        );
        assert_eq!(of(&[(1, "node", "other_client")]), "by node, as another client of CUPTI wants it");
        let short = (1, "graph", "many_short_nodes");
        assert_eq!(of(&[short, (1, "node", "looks_again"), short]), many);
        let looks = [short, (1, "node", "looks_again"), short, (1, "node", "looks_again")];
        assert_eq!(of(&looks), format!("{many}; by node again from 1.20 s on"));
        let two = [looks[0], looks[1], (2, "graph", "many_short_nodes")];
        assert_eq!(of(&two), format!("{many}; by node again from 1.20 s on (2 processes)"));
    }
}
