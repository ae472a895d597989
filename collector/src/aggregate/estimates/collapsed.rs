//! Means for kernels of a stack and a launch configuration that were never timed: those of the same function
//! with other ones.
//!
//! Where each request has a size of its own, most keys come once or some times at once, and a tenth of them
//! is timed. Keys that were timed in one window only stand for those that never were, since both are as rare;
//! where there are too few of them, all of the function's launches do.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::interval::Mean;
use super::key::{EstimateKey, KeyWork};
use super::key_sums::KeySums;
use super::units::Units;

/// Launches of keys that were timed in one window, and such windows, of which a mean can be made.
const ONCE_MIN: u64 = 5;
const ONCE_UNITS_MIN: usize = 2;

/// A function of a process.
pub type LaunchedFunction = (u32, u32);

pub fn function_of(key: &EstimateKey) -> Option<LaunchedFunction> {
    match key.work {
        KeyWork::Kernel { function, .. } => Some((key.process, function)),
        _ => None,
    }
}

/// Count and time by unit.
#[derive(Default)]
struct Timed(BTreeMap<u32, (u64, u64)>);

impl Timed {
    fn add(&mut self, sums: &KeySums) {
        for of in &sums.units {
            let unit = self.0.entry(of.unit).or_default();
            *unit = (unit.0 + u64::from(of.count), unit.1.saturating_add(of.ns));
        }
    }

    fn count(&self) -> u64 {
        self.0.values().map(|(count, _)| count).sum()
    }

    fn mean(&self, process: u32, units: &mut Units) -> Mean {
        let count = self.count() as f64;
        let sum = self.0.values().map(|(_, ns)| *ns as f64).sum::<f64>();
        if count == 0.0 {
            return Mean::default();
        }
        let per_call = sum / count;
        let residual = |(unit, (count, ns)): (&u32, &(u64, u64))| {
            (units.of(process, *unit), *ns as f64 - per_call * *count as f64)
        };
        let residuals = self.0.iter().map(residual).collect();
        Mean::new(per_call, 1.0, count, sum, residuals)
    }
}

/// The means of these functions, where any launch of them was timed in a scheduled window.
pub fn means(
    functions: impl Iterator<Item = LaunchedFunction>,
    cells: &[(EstimateKey, KeySums)],
    units: &mut Units,
) -> Vec<(LaunchedFunction, Mean)> {
    let mut timed: FxHashMap<LaunchedFunction, (Timed, Timed)> =
        functions.map(|function| (function, Default::default())).collect();
    if timed.is_empty() {
        return Vec::new();
    }
    for (key, sums) in cells {
        let Some((once, all)) = function_of(key).and_then(|function| timed.get_mut(&function)) else {
            continue;
        };
        all.add(sums);
        if sums.units.len() == 1 {
            once.add(sums);
        }
    }
    let mut means: Vec<(LaunchedFunction, Mean)> = timed
        .into_iter()
        .map(|(function, (once, all))| {
            let is_enough = once.count() >= ONCE_MIN && once.0.len() >= ONCE_UNITS_MIN;
            (function, if is_enough { once } else { all }.mean(function.0, units))
        })
        .filter(|(_, mean)| mean.per_call.is_some())
        .collect();
    means.sort_by_key(|(function, _)| *function);
    means
}
