//! How metrics are emitted: how often, with which temporality, and with which resource.

use crate::spans::{Naming, Sampling};

/// The default of OpenTelemetry's SDKs.
const INTERVAL_NS: u64 = 60_000_000_000;
/// The most kernels with points of their own.
pub const KERNELS_MAX: usize = 1000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Temporality {
    /// Since the process began.
    Cumulative,
    /// Since metrics were last emitted.
    Delta,
}

/// The preferred temporality by kind of instrument. Up-down counters are always cumulative.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Preference {
    /// Of counters and histograms.
    pub counted: Temporality,
    /// Of observed totals, which are kept elsewhere.
    pub observed: Temporality,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    pub interval_ns: u64,
    pub preference: Preference,
    /// The number of kernels with points of their own; the others share one.
    pub kernels: usize,
    /// Decides which operations may be exemplars: those that become spans.
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
    /// Parses OTEL_METRIC_EXPORT_INTERVAL and OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE; an empty
    /// value counts as unset. Also returns complaints about malformed values.
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
