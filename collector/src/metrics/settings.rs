//! How metrics are told: how often, as totals or as differences, under which names.

use crate::spans::{Naming, Sampling};

/// As OpenTelemetry's SDKs have it.
const INTERVAL_NS: u64 = 60_000_000_000;
/// The most kernels that have points of their own.
pub const KERNELS_MAX: usize = 1000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Temporality {
    /// Since the process began.
    Cumulative,
    /// Since the last time.
    Delta,
}

/// What somebody prefers, by kind of instrument. What goes up and down is cumulative always.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Preference {
    /// Of what is counted event by event.
    pub counted: Temporality,
    /// Of totals that are kept elsewhere and looked at.
    pub observed: Temporality,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    pub interval_ns: u64,
    pub preference: Preference,
    /// How many kernels have points of their own; the others share one.
    pub kernels: usize,
    /// By which exemplars are chosen: they point at what becomes a span.
    pub sampling: Sampling,
    pub naming: Naming,
}

impl Default for Settings {
    fn default() -> Settings {
        let cumulative = Preference { counted: Temporality::Cumulative, observed: Temporality::Cumulative };
        Settings {
            interval_ns: INTERVAL_NS,
            preference: cumulative,
            kernels: 0,
            sampling: Sampling::default(),
            naming: Naming::default(),
        }
    }
}

impl Settings {
    /// From the values of OTEL_METRIC_EXPORT_INTERVAL and OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE;
    /// empty is unset. Also what of them is not used, and why.
    pub fn from_variables(interval: Option<&str>, preference: Option<&str>) -> (Settings, Vec<String>) {
        let mut settings = Settings::default();
        let mut complaints = Vec::new();
        let given =
            |text: Option<&str>| text.map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
        if let Some(text) = given(interval) {
            match text.parse::<u64>() {
                Ok(milliseconds @ 1..) => settings.interval_ns = milliseconds.saturating_mul(1_000_000),
                _ => complaints.push(
                    "OTEL_METRIC_EXPORT_INTERVAL is not used: it is not a number of milliseconds of at least 1"
                        .to_owned(),
                ),
            }
        }
        if let Some(text) = given(preference) {
            use Temporality::{Cumulative, Delta};
            let (counted, observed) = match text.to_ascii_lowercase().as_str() {
                "cumulative" => (Cumulative, Cumulative),
                "delta" => (Delta, Delta),
                "lowmemory" => (Delta, Cumulative),
                _ => {
                    complaints.push(
                        "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE is not used: it is none of cumulative, \
                         delta and lowmemory"
                            .to_owned(),
                    );
                    (Cumulative, Cumulative)
                }
            };
            settings.preference = Preference { counted, observed };
        }
        (settings, complaints)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_read_and_invalid_values_are_reported() {
        let (settings, complaints) = Settings::from_variables(Some(" 1500 "), Some("LowMemory"));
        assert!(complaints.is_empty());
        assert_eq!(settings.interval_ns, 1_500_000_000);
        let Preference { counted, observed } = settings.preference;
        assert_eq!((counted, observed), (Temporality::Delta, Temporality::Cumulative));
        assert_eq!(Settings::from_variables(Some(""), Some(" ")), (Settings::default(), Vec::new()));
        for (interval, preference) in [("0", "sideways"), ("-5", "Deltas"), ("1 s", "1")] {
            let (settings, complaints) = Settings::from_variables(Some(interval), Some(preference));
            assert_eq!((settings, complaints.len()), (Settings::default(), 2));
        }
    }
}
