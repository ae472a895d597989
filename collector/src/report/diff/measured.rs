//! One figure on both sides: means over the runs, their difference, and what of it is beyond noise.

use serde::Serialize;

use crate::student::t95;

/// A figure before and after. The means are over the runs of a side.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MeasuredTwice {
    /// `None` if any run of the side lacks the figure.
    pub before: Option<f64>,
    pub after: Option<f64>,
    pub difference: Option<f64>,
    /// The difference as a share of the figure before; `None` if that is 0.
    pub change: Option<f64>,
    /// Between these the true difference lies in 95 % of such measurements. `None` unless both sides have
    /// several runs; of `step_time` with one run each, by the spread of its steps.
    pub interval: Option<[f64; 2]>,
    /// Whether the interval leaves out 0.
    pub beyond_noise: Option<bool>,
}

impl MeasuredTwice {
    /// Of the runs on both sides.
    pub fn new(before: &[Option<f64>], after: &[Option<f64>]) -> MeasuredTwice {
        let known = |runs: &[Option<f64>]| runs.iter().copied().collect::<Option<Vec<f64>>>();
        let (before, after) = (known(before), known(after));
        let means = [&before, &after].map(|runs| runs.as_deref().and_then(mean));
        let [Some(mean_before), Some(mean_after)] = means else {
            return MeasuredTwice { before: means[0], after: means[1], ..MeasuredTwice::default() };
        };
        let difference = mean_after - mean_before;
        let moments = [before, after].map(|runs| runs.as_deref().and_then(Moments::of));
        let measured = MeasuredTwice {
            before: means[0],
            after: means[1],
            difference: Some(difference),
            change: (mean_before != 0.0).then(|| difference / mean_before),
            ..MeasuredTwice::default()
        };
        match moments {
            [Some(before), Some(after)] => measured.with_interval(before, after),
            _ => measured,
        }
    }

    /// The same with the interval that the spread within both sides leaves.
    pub fn with_interval(self, before: Moments, after: Moments) -> MeasuredTwice {
        let [least, most] = welch(before, after);
        let beyond_noise = Some(least > 0.0 || most < 0.0);
        MeasuredTwice { interval: Some([least, most]), beyond_noise, ..self }
    }

    /// The growth in percent, infinite for what was not there before.
    pub fn growth_percent(&self) -> Option<f64> {
        match (self.difference?, self.change) {
            (_, Some(change)) => Some(100.0 * change),
            (0.0, None) => Some(0.0),
            (_, None) => Some(f64::INFINITY),
        }
    }

    /// How large the difference is; 0 if it is not known.
    pub fn distance(&self) -> f64 {
        self.difference.map_or(0.0, f64::abs)
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Mean, variance of one value, and the number of values.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Moments {
    pub mean: f64,
    pub variance: f64,
    pub count: f64,
}

impl Moments {
    /// `None` for fewer than two values.
    fn of(values: &[f64]) -> Option<Moments> {
        let freedom = values.len().checked_sub(1).filter(|freedom| *freedom > 0)? as f64;
        let mean = mean(values)?;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Some(Moments { mean, variance: squares / freedom, count: values.len() as f64 })
    }
}

/// Welch's interval for the difference of two means, at 95 %: the sides may differ in number and in spread.
fn welch(before: Moments, after: Moments) -> [f64; 2] {
    let of_mean = |side: Moments| (side.variance / side.count, side.count - 1.0);
    let (variance_before, freedom_before) = of_mean(before);
    let (variance_after, freedom_after) = of_mean(after);
    let variance = variance_before + variance_after;
    let difference = after.mean - before.mean;
    if variance == 0.0 {
        return [difference; 2];
    }
    let of_sides = variance_before.powi(2) / freedom_before + variance_after.powi(2) / freedom_after;
    let half = t95(variance.powi(2) / of_sides) * variance.sqrt();
    [difference - half, difference + half]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(before: &[f64], after: &[f64]) -> MeasuredTwice {
        let known = |runs: &[f64]| runs.iter().copied().map(Some).collect::<Vec<_>>();
        MeasuredTwice::new(&known(before), &known(after))
    }

    /// 3 runs of mean 20 and variance 4, against 3 of mean 30 and variance 1: the mean's variances are 4/3
    /// and 1/3, so the degrees of freedom are (5/3)² / ((16/9 + 1/9) / 2) = 2.94, and t is 4.3027.
    #[test]
    fn interval_is_welch_s() {
        let measured = of(&[18.0, 20.0, 22.0], &[29.0, 30.0, 31.0]);
        let half = 4.3027 * (5.0f64 / 3.0).sqrt();
        let [least, most] = measured.interval.unwrap();
        assert!((least - (10.0 - half)).abs() < 1e-9 && (most - (10.0 + half)).abs() < 1e-9, "{measured:?}");
        assert_eq!((measured.difference, measured.change), (Some(10.0), Some(0.5)));
        assert_eq!(measured.beyond_noise, Some(true));
        let near = of(&[18.0, 20.0, 22.0], &[19.0, 21.0, 23.0]);
        assert_eq!((near.difference, near.beyond_noise), (Some(1.0), Some(false)));
    }

    #[test]
    fn single_runs_claim_nothing() {
        let measured = of(&[100.0], &[50.0]);
        assert_eq!((measured.interval, measured.beyond_noise), (None, None));
        assert_eq!(of(&[100.0], &[50.0, 51.0]).interval, None);
        assert_eq!(measured.growth_percent(), Some(-50.0));
        // Runs that do not differ among themselves leave no doubt.
        let same = of(&[7.0, 7.0], &[7.0, 7.0]);
        assert_eq!((same.interval, same.beyond_noise), (Some([0.0, 0.0]), Some(false)));
    }

    #[test]
    fn figure_that_a_run_lacks_is_not_compared() {
        let measured = MeasuredTwice::new(&[Some(1.0), None], &[Some(4.0), Some(6.0)]);
        assert_eq!((measured.before, measured.after, measured.difference), (None, Some(5.0), None));
        assert_eq!(measured.growth_percent(), None);
        assert_eq!(MeasuredTwice::new(&[], &[Some(4.0)]).difference, None);
        assert_eq!(of(&[0.0], &[4.0]).growth_percent(), Some(f64::INFINITY));
        assert_eq!(of(&[0.0], &[0.0]).growth_percent(), Some(0.0));
    }
}
