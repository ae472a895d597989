//! The error of a sum of means.
//!
//! A sum takes the mean of each key some number of times. Its variance is that of the sums of residuals by
//! unit (windows are drawn independently of each other, operations of one window are not), each key's with
//! the correction for a finite population: what was timed has no error.

use std::collections::BTreeMap;

use crate::student::t95;

/// The mean of one key.
#[derive(Clone, Debug, Default)]
pub struct Mean {
    /// `None` if nothing was timed.
    pub per_call: Option<f64>,
    /// 1, or how many nodes of the key a launch of their graph has.
    pub operations_per_call: f64,
    /// What was timed in scheduled windows: how often, and for how long in all; 0 if nothing was.
    pub count: f64,
    pub sum: f64,
    /// By unit, the time that exceeds what the mean predicts for it. Of a pooled mean: its time in the unit.
    pub residuals: Vec<(u32, f64)>,
    /// The number of units, and the sum of the squares of what exceeds the prediction.
    pub units: usize,
    pub squares: f64,
    /// Of a place that shares its launches with others.
    pub pooled: Option<Pooled>,
}

/// A mean per launch of a pool, of one of the sites that the pool's launches were made at.
#[derive(Clone, Debug, Default)]
pub struct Pooled {
    pub pool: u32,
    /// By unit, how many of the pool's launches were made there.
    pub counts: Vec<(u32, f64)>,
}

/// Launches in scheduled windows, by unit.
#[derive(Clone, Debug, Default)]
pub struct LaunchPool {
    pub units: Vec<(u32, f64)>,
}

impl Mean {
    pub fn new(per_call: f64, operations_per_call: f64, count: f64, sum: f64, of: Vec<(u32, f64)>) -> Mean {
        let squares = of.iter().map(|(_, residual)| residual * residual).sum();
        let (per_call, units) = (Some(per_call), of.len());
        Mean { per_call, operations_per_call, count, sum, residuals: of, units, squares, pooled: None }
    }

    fn units(&self) -> f64 {
        self.units as f64
    }

    /// The variance of the sum over the units that were timed; `None` with fewer than two.
    fn variance(&self) -> Option<f64> {
        let units = self.units();
        (units >= 2.0).then(|| self.squares * units / (units - 1.0))
    }

    /// The factor from residuals to the error of a sum that takes the mean that many times: of such a number
    /// of operations without times the sum of which is not certain either.
    fn factor(&self, times: f64) -> f64 {
        (times * (times + self.count)).sqrt() / self.count
    }
}

/// The variance of a single unit's mean relative to the mean's square, over all keys with two units or more;
/// `None` if no key is in two.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spreads {
    timed: Option<f64>,
    pooled: Option<f64>,
}

impl Spreads {
    pub fn new(means: &[Mean]) -> Spreads {
        let of = |is_pooled| spread(means.iter().filter(move |mean| mean.pooled.is_some() == is_pooled));
        Spreads { timed: of(false), pooled: of(true) }
    }

    fn of(&self, mean: &Mean) -> Option<f64> {
        if mean.pooled.is_some() { self.pooled } else { self.timed }
    }
}

fn spread<'a>(means: impl Iterator<Item = &'a Mean>) -> Option<f64> {
    let known = means.filter(|mean| mean.sum > 0.0).filter_map(|mean| Some((mean, mean.variance()?)));
    let (spreads, weights) = known.fold((0.0, 0.0), |(spreads, weights), (mean, variance)| {
        (spreads + variance * mean.units() / mean.sum, weights + mean.sum)
    });
    (weights > 0.0).then(|| spreads / weights)
}

/// Half of the 95 % interval of a sum of means, each taken some number of times. `deviations` has a zero for
/// each unit, and is left so.
pub fn half_width<'a>(
    means: impl Iterator<Item = (&'a Mean, f64)>,
    pools: &[LaunchPool],
    spreads: Spreads,
    deviations: &mut [f64],
) -> f64 {
    let mut touched = Vec::new();
    // Of keys that were in one unit only: each by itself.
    let mut lone = 0.0;
    // Means from outside of the schedule, whose error may be as large as what is estimated with them.
    let mut uncertain_ns = 0.0;
    // Welch and Satterthwaite's degrees of freedom.
    let (mut own, mut own_by_degrees) = (0.0, 0.0);
    let mut predicted: BTreeMap<u32, f64> = BTreeMap::new();
    for (mean, times) in means {
        let ns = mean.per_call.unwrap_or(0.0) * times;
        let variance = match (mean.units() as u64, spreads.of(mean)) {
            (2.., _) => {
                let units = mean.units();
                let factor = mean.factor(times) * (units / (units - 1.0)).sqrt();
                for (unit, residual) in &mean.residuals {
                    if let Some(deviation) = deviations.get_mut(*unit as usize) {
                        *deviation += factor * residual;
                        touched.push(*unit);
                    }
                }
                if let Some(of) = &mean.pooled {
                    *predicted.entry(of.pool).or_default() += factor * mean.per_call.unwrap_or(0.0);
                }
                mean.variance().unwrap_or(0.0) * mean.factor(times).powi(2)
            }
            (1, Some(spread)) => {
                let variance = ns * ns * spread * (1.0 + mean.count / times.max(1.0));
                lone += variance;
                variance
            }
            _ => {
                uncertain_ns += ns;
                continue;
            }
        };
        own += variance;
        own_by_degrees += variance * variance / (mean.units() - 1.0).max(1.0);
    }
    subtract(&predicted, pools, deviations, &mut touched);
    let variance = lone + take_squares(&mut touched, deviations);
    let degrees = if own_by_degrees > 0.0 { own * own / own_by_degrees } else { 1.0 };
    let degrees = degrees.min((touched.len().max(2) - 1) as f64);
    t95(degrees) * variance.sqrt() + uncertain_ns
}

/// Subtracts from each unit what the means of pools predict for it.
fn subtract(
    predicted: &BTreeMap<u32, f64>,
    pools: &[LaunchPool],
    deviations: &mut [f64],
    touched: &mut Vec<u32>,
) {
    for (pool, per_launch) in predicted {
        for (unit, launches) in pools.get(*pool as usize).map_or(&[][..], |pool| pool.units.as_slice()) {
            if let Some(deviation) = deviations.get_mut(*unit as usize) {
                *deviation -= per_launch * launches;
                touched.push(*unit);
            }
        }
    }
}

/// The sum of the squares of the deviations of these units, each once, which are zero afterwards.
fn take_squares(touched: &mut Vec<u32>, deviations: &mut [f64]) -> f64 {
    touched.sort_unstable();
    touched.dedup();
    let mut sum = 0.0;
    for unit in touched {
        if let Some(deviation) = deviations.get_mut(*unit as usize) {
            sum += *deviation * *deviation;
            *deviation = 0.0;
        }
    }
    sum
}

/// Half of the 95 % interval of a number of calls, of which those of pools are divided among sites. Means
/// that are not of a pool take whole numbers, which have no error.
pub fn calls_half_width<'a>(
    means: impl Iterator<Item = (&'a Mean, f64)>,
    pools: &[LaunchPool],
    deviations: &mut [f64],
) -> f64 {
    let mut touched = Vec::new();
    let mut predicted: BTreeMap<u32, f64> = BTreeMap::new();
    // Of pools with too few units: how many launches, and the part of them that is in the sum.
    let mut uncertain: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    for (mean, times) in means {
        let Some(of) = &mean.pooled else { continue };
        let units = mean.units();
        if units < 2.0 {
            let (launches, part) = uncertain.entry(of.pool).or_default();
            *launches = times.max(*launches);
            *part += mean.operations_per_call;
            continue;
        }
        let factor = mean.factor(times) * (units / (units - 1.0)).sqrt();
        for (unit, count) in &of.counts {
            if let Some(deviation) = deviations.get_mut(*unit as usize) {
                *deviation += factor * count;
                touched.push(*unit);
            }
        }
        *predicted.entry(of.pool).or_default() += factor * mean.operations_per_call;
    }
    subtract(&predicted, pools, deviations, &mut touched);
    let variance = take_squares(&mut touched, deviations);
    let of_few = uncertain.values().filter(|(_, part)| *part < 1.0 - 1e-9);
    let of_few: f64 = of_few.map(|(launches, part)| launches * part).sum();
    t95((touched.len().max(2) - 1) as f64) * variance.sqrt() + of_few
}
