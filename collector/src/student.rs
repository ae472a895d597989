//! Student's t: how wide a 95 % interval is, in standard errors.

/// Student's t for 95 % on both sides. Degrees of freedom that are no whole number are rounded down, so
/// that the interval is rather too wide.
pub fn t95(freedom: f64) -> f64 {
    const FEW: [f64; 10] = [12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281];
    const NORMAL: f64 = 1.959_964;
    let freedom = freedom.floor().max(1.0);
    if let Some(known) = FEW.get(freedom as usize - 1) {
        return *known;
    }
    // Cornish and Fisher's expansion around the normal distribution's quantile.
    let z = NORMAL;
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + first / freedom + second / freedom.powi(2) + third / freedom.powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values are those of printed tables.
    #[test]
    fn quantiles_are_those_of_student_s_distribution() {
        for (freedom, expected) in [
            (1.0, 12.7062),
            (2.0, 4.3027),
            (2.9, 4.3027),
            (10.0, 2.2281),
            (11.0, 2.2010),
            (15.0, 2.1314),
            (30.0, 2.0423),
            (60.0, 2.0003),
            (120.0, 1.9799),
            (1e9, 1.9600),
        ] {
            assert!((t95(freedom) - expected).abs() < 2e-4, "{freedom}: {}", t95(freedom));
        }
    }
}
