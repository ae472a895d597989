//! The error of a sum of means.
//!
//! A sum takes the mean of each key some number of times. Its variance is that of the sums of residuals by
//! unit (windows are drawn independently of each other, operations of one window are not), each key's with
//! the correction for a finite population: what was timed has no error.

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
    /// By unit, the time that exceeds what the mean predicts for the unit.
    pub residuals: Vec<(u32, f64)>,
}

impl Mean {
    fn units(&self) -> f64 {
        self.residuals.len() as f64
    }

    /// The variance of the sum over the units that were timed; `None` with fewer than two.
    fn variance(&self) -> Option<f64> {
        let units = self.units();
        let squares: f64 = self.residuals.iter().map(|(_, residual)| residual * residual).sum();
        (units >= 2.0).then(|| squares * units / (units - 1.0))
    }

    /// The factor from residuals to the error of a sum that takes the mean that many times: of such a number
    /// of operations without times the sum of which is not certain either.
    fn factor(&self, times: f64) -> f64 {
        (times * (times + self.count)).sqrt() / self.count
    }
}

/// The variance of a single unit's mean relative to the mean's square, over all keys with two units or more.
pub fn pooled_spread(means: &[Mean]) -> Option<f64> {
    let known = means.iter().filter(|mean| mean.sum > 0.0).filter_map(|mean| Some((mean, mean.variance()?)));
    let (spreads, weights) = known.fold((0.0, 0.0), |(spreads, weights), (mean, variance)| {
        (spreads + variance * mean.units() / mean.sum, weights + mean.sum)
    });
    (weights > 0.0).then(|| spreads / weights)
}

/// Half of the 95 % interval of a sum of means, each taken some number of times. `deviations` has a zero for
/// each unit, and is left so.
pub fn half_width<'a>(
    means: impl Iterator<Item = (&'a Mean, f64)>,
    spread: Option<f64>,
    deviations: &mut [f64],
) -> f64 {
    let mut touched = Vec::new();
    // Of keys that were in one unit only: each by itself.
    let mut lone = 0.0;
    // Means from outside of the schedule, whose error may be as large as what is estimated with them.
    let mut uncertain_ns = 0.0;
    // Welch and Satterthwaite's degrees of freedom.
    let (mut own, mut own_by_degrees) = (0.0, 0.0);
    for (mean, times) in means {
        let ns = mean.per_call.unwrap_or(0.0) * times;
        let variance = match (mean.units() as u64, spread) {
            (2.., _) => {
                let units = mean.units();
                let factor = mean.factor(times) * (units / (units - 1.0)).sqrt();
                for (unit, residual) in &mean.residuals {
                    if let Some(deviation) = deviations.get_mut(*unit as usize) {
                        *deviation += factor * residual;
                        touched.push(*unit);
                    }
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
    touched.sort_unstable();
    touched.dedup();
    let mut variance = lone;
    for unit in &touched {
        if let Some(deviation) = deviations.get_mut(*unit as usize) {
            variance += *deviation * *deviation;
            *deviation = 0.0;
        }
    }
    let degrees = if own_by_degrees > 0.0 { own * own / own_by_degrees } else { 1.0 };
    let degrees = degrees.min((touched.len().max(2) - 1) as f64);
    t95(degrees) * variance.sqrt() + uncertain_ns
}
