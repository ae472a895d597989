//! The top rows of one process, and their sums over several.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::live_process::LiveProcess;
use super::memory_rows::{self, LiveMemoryRow};
use super::row_limits::{NO_LINE, OTHER_STACKS, ROWS_MAX, STACKS_MAX};
use crate::aggregate::{Aggregates, Weight};
use crate::label::{KernelTable, StackNames, stream_name};
use crate::model::definitions::Definitions;

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LiveTables {
    /// The processes that the tables are of.
    pub processes: Vec<LiveProcess>,
    pub kernels: Vec<LiveRow>,
    /// The lines that operations are charged to, as in the report.
    pub lines: Vec<LiveRow>,
    pub streams: Vec<LiveRow>,
    /// By direction, over all processes of the session.
    pub copies: Vec<LiveRow>,
    /// The lines that allocated memory.
    #[serde(default)]
    pub memory: Vec<LiveMemoryRow>,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LiveRow {
    pub name: String,
    pub calls: u64,
    /// Device time; `None` if none of them has any.
    pub total_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

impl LiveTables {
    pub(super) fn new(
        aggregates: &Aggregates,
        (process, about): (u32, LiveProcess),
        definitions: &Definitions,
    ) -> LiveTables {
        LiveTables {
            processes: vec![about],
            kernels: kernels(aggregates, process, definitions),
            lines: lines(aggregates, process, definitions),
            streams: streams(aggregates, process, definitions),
            copies: copies(aggregates),
            memory: Vec::new(),
        }
    }

    /// Adds the rows of another process. Copies are of all processes already.
    pub(super) fn with(self, other: &LiveTables) -> LiveTables {
        LiveTables {
            processes: [self.processes, other.processes.clone()].concat(),
            kernels: added(self.kernels, &other.kernels),
            lines: added(self.lines, &other.lines),
            streams: added(self.streams, &other.streams),
            copies: other.copies.clone(),
            memory: memory_rows::added(self.memory, &other.memory),
        }
    }
}

fn kernels(aggregates: &Aggregates, process: u32, definitions: &Definitions) -> Vec<LiveRow> {
    let of_process = aggregates.kernels.iter().filter(|(key, _)| key.process == process);
    let mut found: Vec<_> = of_process
        .map(|(key, kernel)| (key.name, kernel.calls, kernel.durations.count(), kernel.durations.total_ns()))
        .collect();
    found.sort_unstable_by_key(|(name, calls, _, ns)| (std::cmp::Reverse((*ns, *calls)), *name));
    found.truncate(ROWS_MAX);
    let mut names = KernelTable::default();
    let row = |(name, calls, timed, ns): (u32, u64, u64, u64)| {
        let name = names.name(process, name, Some(definitions)).short.to_string();
        LiveRow { name, calls, total_ns: (timed > 0).then_some(ns), bytes: None }
    };
    found.into_iter().map(row).collect()
}

fn lines(aggregates: &Aggregates, process: u32, definitions: &Definitions) -> Vec<LiveRow> {
    let mut by_stack: FxHashMap<u32, Weight> = FxHashMap::default();
    for (key, weight) in aggregates.device_stacks.iter().filter(|(key, _)| key.process == process) {
        by_stack.entry(key.stack).or_default().add(*weight);
    }
    let mut found: Vec<(u32, Weight)> = by_stack.into_iter().collect();
    found.sort_unstable_by_key(|(stack, weight)| (std::cmp::Reverse((weight.ns, weight.count)), *stack));
    let mut stacks = StackNames::of_running(process, definitions);
    let mut sums: BTreeMap<String, Weight> = BTreeMap::new();
    for (index, (stack, weight)) in found.into_iter().enumerate() {
        let name = match index {
            STACKS_MAX.. => OTHER_STACKS.to_owned(),
            _ => stacks.charged_line(process, stack).unwrap_or_else(|| NO_LINE.to_owned()),
        };
        sums.entry(name).or_default().add(weight);
    }
    top(sums.into_iter().map(|(name, weight)| row(name, weight)).collect())
}

fn streams(aggregates: &Aggregates, process: u32, definitions: &Definitions) -> Vec<LiveRow> {
    let of_process = aggregates.streams.iter().filter(|((number, _), _)| *number == process);
    let rows = of_process.map(|((_, stream), counted)| {
        let number = Some(counted.number).filter(|number| *number != 0);
        let name = stream_name(definitions, stream, number).unwrap_or_else(|| "stream".to_owned());
        row(name, counted.weight)
    });
    top(rows.collect())
}

fn copies(aggregates: &Aggregates) -> Vec<LiveRow> {
    let copies = aggregates.transfers.copies.iter();
    let copies = copies.map(|(direction, moved)| (format!("memcpy {}", direction.name()), moved));
    let fills = Some(("memset".to_owned(), &aggregates.transfers.fills)).filter(|(_, fills)| fills.calls > 0);
    let rows = copies.chain(fills).map(|(name, moved)| LiveRow {
        name,
        calls: moved.calls,
        total_ns: (moved.durations.count() > 0).then(|| moved.durations.total_ns()),
        bytes: Some(moved.bytes),
    });
    top(rows.collect())
}

fn row(name: String, weight: Weight) -> LiveRow {
    LiveRow { name, calls: weight.count, total_ns: (weight.timed > 0).then_some(weight.ns), bytes: None }
}

fn top(mut rows: Vec<LiveRow>) -> Vec<LiveRow> {
    rows.sort_by(|a, b| (b.total_ns, b.calls, &a.name).cmp(&(a.total_ns, a.calls, &b.name)));
    rows.truncate(ROWS_MAX);
    rows
}

/// Adds rows of the same name.
fn added(rows: Vec<LiveRow>, others: &[LiveRow]) -> Vec<LiveRow> {
    let mut sums: BTreeMap<Arc<str>, LiveRow> = BTreeMap::new();
    for row in rows.iter().chain(others) {
        let sum = sums.entry(row.name.as_str().into()).or_default();
        sum.name.clone_from(&row.name);
        sum.calls += row.calls;
        sum.total_ns = match (sum.total_ns, row.total_ns) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
        sum.bytes = row.bytes.map_or(sum.bytes, |bytes| Some(sum.bytes.unwrap_or(0).saturating_add(bytes)));
    }
    top(sums.into_values().collect())
}
