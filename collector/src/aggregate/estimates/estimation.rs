//! The estimate: rows of operations without times with the time that they probably took, and sums of these
//! with their errors.

use std::collections::BTreeMap;
use std::hash::Hash;

use rustc_hash::FxHashMap;

use super::collapsed::{self, function_of};
use super::interval::{self, LaunchPool, Mean, Spreads};
use super::key::{EstimateKey, KeyWork};
use super::placement::{self, PlacedRow};
use super::table::Estimates;
use super::units::Units;
use super::{WindowCounts, key_sums::UnitSum};
use crate::aggregate::{Owner, StackKey, Weight};

/// The least error, as a part of what is estimated: windows of some seconds of a program whose kernels are
/// all alike differ by less than clocks drift in between.
const ERROR_LEAST: f64 = 0.001;

/// What operations without device times took.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Estimate {
    /// Operations with an estimate, and their time. A node of a graph counts as one.
    pub calls: u64,
    pub ns: f64,
    /// Half of the 95 % interval around `ns`.
    pub error_ns: f64,
    /// The same around the number of all calls of the group: some of them have no stack, and are where others
    /// of their kernel were. 0 where that is exact.
    pub calls_error: f64,
    /// Operations without an estimate: none like them was timed.
    pub unmeasured: u64,
}

/// Operations without device times of one row of [`crate::aggregate::Stacks`] and one key.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct EstimatedRow {
    pub key: StackKey,
    pub calls: u64,
    /// `None` if none like them was timed.
    pub ns: Option<f64>,
    /// Index of the mean that `ns` comes from, and how often that mean is taken.
    mean: u32,
    times: f64,
}

/// The mean of rows that have none.
const NO_MEAN: u32 = u32::MAX;

impl EstimatedRow {
    fn placed(placed: &PlacedRow, means: &[Mean]) -> EstimatedRow {
        let PlacedRow { key, calls, .. } = *placed;
        let (mean, times) = placed.mean.map_or((NO_MEAN, 0.0), |(mean, times)| (mean as u32, times));
        let ns = means.get(mean as usize).and_then(|mean| mean.per_call).map(|per_call| per_call * times);
        EstimatedRow { key, calls, ns, mean, times }
    }

    /// The key whose mean it has, or would have.
    pub fn mean_key(&self, estimates: &Estimates) -> Option<EstimateKey> {
        estimates.cells.get(self.mean as usize).map(|(key, _)| *key)
    }

    /// As a weight of operations that have a time; of none if none like them was timed.
    pub fn weight(&self) -> Weight {
        let timed = if self.ns.is_some() { self.calls } else { 0 };
        Weight { ns: self.ns.unwrap_or(0.0).round() as u64, count: self.calls, timed }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Estimation {
    rows: Vec<EstimatedRow>,
    means: Vec<Mean>,
    pools: Vec<LaunchPool>,
    units: usize,
    spreads: Spreads,
    pub windows: WindowCounts,
    /// Operations that have no row.
    beyond: u64,
}

impl Estimation {
    pub fn new(estimates: &Estimates) -> Estimation {
        let mut units = Units::default();
        let mut means: Vec<Mean> =
            estimates.cells.iter().map(|(key, _)| mean(estimates, *key, &mut units)).collect();
        let mut rows = Vec::new();
        for ((key, cell), count) in estimates.untimed.sorted() {
            let Some((of, known)) = estimates.cells.get(cell as usize) else { continue };
            let has_mean = means.get(cell as usize).is_some_and(|mean| mean.per_call.is_some());
            let nodes = match of.work {
                KeyWork::Graph(graph) if !has_mean => estimates.nodes.get(&of.launches(graph)),
                _ => None,
            };
            if let Some(nodes) = nodes {
                rows.extend(nodes.iter().filter_map(|node| node_row(estimates, &means, *node, key, *count)));
                continue;
            }
            let leaf = known.row.map_or(key.leaf, |row| row.leaf);
            let before = estimates.before.get(&(key.process, key.stack, key.leaf));
            if let Some(mean) = means.get_mut(cell as usize).filter(|mean| mean.per_call.is_none()) {
                mean.per_call = before.map(|(calls, ns)| *ns as f64 / *calls as f64);
            }
            let per_call = means.get(cell as usize).and_then(|mean| mean.per_call);
            let times = *count as f64;
            let ns = per_call.map(|ns| ns * times);
            rows.push(EstimatedRow { key: StackKey { leaf, ..key }, calls: *count, ns, mean: cell, times });
        }
        let mut pools = Vec::new();
        let placed = placement::divided(&estimates.launches, &mut means, &mut pools, &mut units);
        rows.extend(placed.iter().map(|placed| EstimatedRow::placed(placed, &means)));
        by_function(&mut rows, estimates, &mut means, &mut units);
        rows.sort_by_key(|row| (row.key, row.mean));
        let spreads = Spreads::new(&means);
        let (windows, beyond) = (estimates.windows.counts, estimates.beyond);
        Estimation { rows, means, pools, units: units.len(), spreads, windows, beyond }
    }

    pub fn rows(&self) -> &[EstimatedRow] {
        &self.rows
    }

    /// All rows together.
    pub fn total(&self) -> Estimate {
        let mut sums = self.sums(|_, groups| groups.push(()));
        let mut total = sums.remove(&()).unwrap_or_default();
        total.unmeasured += self.beyond;
        total
    }

    /// Sums of rows, by the groups that `groups` adds for each. A row counts once in each of its groups.
    pub fn sums<G: Hash + Eq>(
        &self,
        mut groups: impl FnMut(&EstimatedRow, &mut Vec<G>),
    ) -> FxHashMap<G, Estimate> {
        let mut sums: FxHashMap<G, (Estimate, BTreeMap<u32, f64>)> = FxHashMap::default();
        let mut of_row = Vec::new();
        for row in &self.rows {
            groups(row, &mut of_row);
            for group in of_row.drain(..) {
                let (sum, times) = sums.entry(group).or_default();
                match row.ns {
                    Some(ns) => {
                        sum.calls = sum.calls.saturating_add(row.calls);
                        sum.ns += ns;
                        *times.entry(row.mean).or_default() += row.times;
                    }
                    None => sum.unmeasured = sum.unmeasured.saturating_add(row.calls),
                }
            }
        }
        let mut deviations = vec![0.0; self.units];
        let finished = sums.into_iter().map(|(group, (sum, times))| {
            let of_means =
                times.iter().filter_map(|(mean, times)| Some((self.means.get(*mean as usize)?, *times)));
            let error_ns = interval::half_width(of_means, &self.pools, self.spreads, &mut deviations);
            let of_means =
                times.iter().filter_map(|(mean, times)| Some((self.means.get(*mean as usize)?, *times)));
            let calls_error = interval::calls_half_width(of_means, &self.pools, &mut deviations);
            (group, Estimate { error_ns: error_ns.max(sum.ns * ERROR_LEAST), calls_error, ..sum })
        });
        finished.collect()
    }
}

/// Gives rows without a mean that of their function.
fn by_function(rows: &mut [EstimatedRow], estimates: &Estimates, means: &mut Vec<Mean>, units: &mut Units) {
    let of_row = |row: &EstimatedRow| row.mean_key(estimates).as_ref().and_then(function_of);
    let wanted = rows.iter().filter(|row| row.ns.is_none()).filter_map(of_row);
    let first = means.len();
    let mut numbers = FxHashMap::default();
    for (function, mean) in collapsed::means(wanted, &estimates.cells, units) {
        numbers.insert(function, means.len());
        means.push(mean);
    }
    if means.len() == first {
        return;
    }
    for row in rows.iter_mut().filter(|row| row.ns.is_none()) {
        let number = of_row(row).and_then(|function| numbers.get(&function)).copied();
        let per_call = number.and_then(|number| means.get(number)).and_then(|mean| mean.per_call);
        if let Some((number, per_call)) = number.zip(per_call) {
            row.mean = number as u32;
            row.ns = Some(per_call * row.times);
        }
    }
}

/// The nodes of one key that `launches` launches executed without device times. `launch` is the row of these.
fn node_row(
    estimates: &Estimates,
    means: &[Mean],
    node: u32,
    launch: StackKey,
    launches: u64,
) -> Option<EstimatedRow> {
    let (_, cell) = estimates.cells.get(node as usize)?;
    let mean = means.get(node as usize)?;
    let made = cell.row?;
    // The ranges of a node that was made in none are those of its launch.
    let (ranges, owner) = match made.owner {
        Owner::Capture { replay_stack, replay_ranges } => (
            if made.ranges == replay_ranges { launch.ranges } else { made.ranges },
            Owner::Capture { replay_stack, replay_ranges: launch.ranges },
        ),
        owner => (launch.ranges, owner),
    };
    let key = StackKey { stack: made.stack, ranges, owner, leaf: made.leaf, ..launch };
    let times = launches as f64;
    let calls = (times * mean.operations_per_call).round() as u64;
    Some(EstimatedRow { key, calls, ns: mean.per_call.map(|ns| ns * times), mean: node, times })
}

/// The mean of a key's timed operations; of nodes of a graph per launch of it.
fn mean(estimates: &Estimates, key: EstimateKey, units: &mut Units) -> Mean {
    let Some(cell) = estimates.known(&key) else { return Mean::default() };
    let launches = match key.work {
        KeyWork::Node { graph, .. } => estimates.known(&key.launches(graph)),
        KeyWork::GraphLaunches(_) => return Mean::default(),
        _ => Some(cell),
    };
    let Some(launches) = launches else { return Mean::default() };
    let count = launches.units.iter().map(|of| f64::from(of.count)).sum::<f64>();
    let sum = cell.units.iter().map(|of| of.ns as f64).sum::<f64>();
    if count == 0.0 {
        let per_call = (launches.other.0 > 0).then(|| cell.other.1 as f64 / launches.other.0 as f64);
        let operations_per_call = cell.other.0 as f64 / launches.other.0.max(1) as f64;
        return Mean { per_call, operations_per_call, ..Mean::default() };
    }
    let per_call = sum / count;
    let time_of = |unit: u32| {
        let at = cell.units.binary_search_by_key(&unit, |of| of.unit).ok();
        at.and_then(|at| cell.units.get(at)).map_or(0.0, |of| of.ns as f64)
    };
    let residual =
        |of: &UnitSum| (units.of(key.process, of.unit), time_of(of.unit) - per_call * f64::from(of.count));
    let residuals = launches.units.iter().map(residual).collect();
    let operations = cell.units.iter().map(|of| f64::from(of.count)).sum::<f64>();
    Mean::new(per_call, operations / count, count, sum, residuals)
}
