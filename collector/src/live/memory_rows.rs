//! Who holds a running process's memory: its lines, with how fast they allocate.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::row_limits::{NO_LINE, OTHER_STACKS, ROWS_MAX, STACKS_MAX};
use crate::label::StackNames;
use crate::memory::{NAMES, ProcessMemory, Site, is_of_device};
use crate::model::definitions::Definitions;

/// The least time over which a rate is taken.
const RATE_NS: u64 = 1_000_000_000;

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LiveMemoryRow {
    /// The line that allocated.
    pub name: String,
    /// The kind of memory.
    pub kind: String,
    /// Whether it is part of what the process holds on devices.
    pub is_on_device: bool,
    pub live_bytes: u64,
    pub live: u64,
    /// The most bytes that its stacks had live, each at its own time.
    pub most_bytes: u64,
    /// All allocations so far.
    pub allocations: u64,
    /// Allocations a second, over the last second or more; `None` until they are known.
    pub allocations_per_second: Option<f64>,
}

/// A line and the kind of its memory.
type RateKey = (String, String);

/// How fast the lines of a process allocate.
#[derive(Debug, Default)]
pub(super) struct AllocationRates {
    counted_ns: u64,
    counted: FxHashMap<RateKey, u64>,
    per_second: FxHashMap<RateKey, f64>,
}

impl AllocationRates {
    /// Sets the rates of rows that are as of that time.
    pub fn rate(&mut self, rows: &mut [LiveMemoryRow], now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.counted_ns);
        if passed_ns >= RATE_NS {
            let key = |row: &LiveMemoryRow| (row.name.clone(), row.kind.clone());
            let rate = |row: &LiveMemoryRow| {
                let before = self.counted.get(&key(row))?;
                let made = row.allocations.saturating_sub(*before);
                Some((key(row), made as f64 * 1e9 / passed_ns as f64))
            };
            self.per_second = rows.iter().filter_map(rate).collect();
            self.counted = rows.iter().map(|row| (key(row), row.allocations)).collect();
            self.counted_ns = now_ns;
        }
        for row in rows {
            let key = (row.name.clone(), row.kind.clone());
            row.allocations_per_second = self.per_second.get(&key).copied();
        }
    }
}

/// The lines that hold the most, and of those that hold nothing the ones that allocated the most.
pub(super) fn rows(process: u32, memory: &ProcessMemory, definitions: &Definitions) -> Vec<LiveMemoryRow> {
    let mut sites: Vec<&Site> = memory.sites().iter().collect();
    sites.sort_unstable_by_key(|site| Reverse((site.live.bytes, site.allocated.count)));
    let mut stacks = StackNames::of_running(process, definitions);
    let mut sums: BTreeMap<(String, usize), LiveMemoryRow> = BTreeMap::new();
    for (index, site) in sites.into_iter().enumerate() {
        let name = match index {
            STACKS_MAX.. => OTHER_STACKS.to_owned(),
            _ => stacks.charged_line(process, site.stack).unwrap_or_else(|| NO_LINE.to_owned()),
        };
        let row = sums.entry((name.clone(), site.kind)).or_insert_with(|| LiveMemoryRow {
            name,
            kind: NAMES.get(site.kind).copied().unwrap_or_default().to_owned(),
            is_on_device: is_of_device(site.kind),
            ..LiveMemoryRow::default()
        });
        row.add(&LiveMemoryRow {
            live_bytes: site.live.bytes,
            live: site.live.count,
            most_bytes: site.live_max_bytes,
            allocations: site.allocated.count,
            ..LiveMemoryRow::default()
        });
    }
    top(sums.into_values().collect())
}

/// Adds the rows of another process.
pub(super) fn added(rows: Vec<LiveMemoryRow>, others: &[LiveMemoryRow]) -> Vec<LiveMemoryRow> {
    let mut sums: BTreeMap<RateKey, LiveMemoryRow> = BTreeMap::new();
    for row in rows.iter().chain(others) {
        let sum = sums.entry((row.name.clone(), row.kind.clone())).or_insert_with(|| LiveMemoryRow {
            name: row.name.clone(),
            kind: row.kind.clone(),
            is_on_device: row.is_on_device,
            ..LiveMemoryRow::default()
        });
        sum.add(row);
    }
    top(sums.into_values().collect())
}

impl LiveMemoryRow {
    fn add(&mut self, other: &LiveMemoryRow) {
        self.live_bytes = self.live_bytes.saturating_add(other.live_bytes);
        self.live = self.live.saturating_add(other.live);
        self.most_bytes = self.most_bytes.saturating_add(other.most_bytes);
        self.allocations = self.allocations.saturating_add(other.allocations);
        self.allocations_per_second = match (self.allocations_per_second, other.allocations_per_second) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
    }
}

fn top(mut rows: Vec<LiveMemoryRow>) -> Vec<LiveMemoryRow> {
    rows.sort_by(|a, b| {
        let weight = |row: &LiveMemoryRow| Reverse((row.live_bytes, row.live, row.allocations));
        weight(a).cmp(&weight(b)).then_with(|| (&a.name, &a.kind).cmp(&(&b.name, &b.kind)))
    });
    rows.truncate(ROWS_MAX);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, live_bytes: u64, allocations: u64) -> LiveMemoryRow {
        LiveMemoryRow { name: name.into(), live_bytes, allocations, ..LiveMemoryRow::default() }
    }

    #[test]
    fn rates_are_of_the_last_whole_second() {
        let mut rates = AllocationRates::default();
        let mut rate = |allocations, now_ns| {
            let mut rows = [row("a", 1, allocations)];
            rates.rate(&mut rows, now_ns);
            rows[0].allocations_per_second
        };
        assert_eq!(rate(100, 5 * RATE_NS), None);
        assert_eq!(rate(150, 5 * RATE_NS + RATE_NS / 2), None);
        assert_eq!(rate(300, 7 * RATE_NS), Some(100.0));
        assert_eq!(rate(900, 7 * RATE_NS + 1), Some(100.0));
        assert_eq!(rate(300, 9 * RATE_NS), Some(0.0));
    }

    #[test]
    fn rows_of_several_processes_are_added_and_sorted_by_what_is_live() {
        let first = vec![row("a", 5, 1), row("b", 7, 1)];
        let all = added(first, &[row("a", 4, 2), row("c", 0, 9)]);
        let found: Vec<_> =
            all.iter().map(|row| (row.name.as_str(), row.live_bytes, row.allocations)).collect();
        assert_eq!(found, [("a", 9, 3), ("b", 7, 1), ("c", 0, 9)]);
    }
}
