//! What sampled devices did: energy, power, temperature, clocks, memory; and at the time of an anomaly.

use serde::Serialize;

use crate::aggregate::{Aggregates, DeviceMoment, Energy, Level, Outlier, SampledDevice};
use crate::batch::DeviceMetric;
use crate::label::throttle;
use crate::label::units::{bytes, count, duration};
use crate::report::json::tenths;

/// A clock is lower than usual if it is below this share of the usual one: clocks move by a step or two all
/// the time.
const LOWER: f64 = 0.95;

/// One sampled device. What it does not report is absent.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DeviceMetricsReport {
    pub interval_ns: u64,
    pub samples: u64,
    /// Samples without values, since the device could not be read.
    pub failed_samples: u64,
    /// Time between the samples, without times in which nothing was sampled.
    pub sampled_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy: Option<EnergyReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_watts: Option<LevelReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_limit_watts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_celsius: Option<LevelReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_temperature_celsius: Option<LevelReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_clock_mhz: Option<LevelReport>,
    /// The highest that the device can be set to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_clock_max_mhz: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_clock_mhz: Option<LevelReport>,
    /// Absent if the device does not report why its clocks are lowered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled: Option<Vec<ThrottledReport>>,
    /// By the device's own counters, which are read only on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled_for_power_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled_for_heat_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_peak_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_busy_percent: Option<LevelReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_busy_percent: Option<LevelReport>,
    /// From the device to the host; read only on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie_sent_bytes_per_second: Option<LevelReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie_received_bytes_per_second: Option<LevelReport>,
    /// Of the link at its best, in one direction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie_peak_bytes_per_second: Option<f64>,
    /// Why the device was not sampled, or not at some time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EnergyReport {
    pub joules: f64,
    /// `counter`, the device's own; `power`, the integral of the sampled power; or `both`, the second where
    /// the first was not read.
    pub source: &'static str,
}

/// The mean over the samples, and the smallest and largest of them.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LevelReport {
    pub mean: f64,
    pub min: f64,
    pub max: f64,
}

impl LevelReport {
    /// In units of which one has that many of the samples'.
    fn new(level: Level, parts: f64) -> Option<LevelReport> {
        let scaled = |value: f64| tenths(value / parts);
        Some(LevelReport {
            mean: scaled(level.mean()?),
            min: scaled(level.min()? as f64),
            max: scaled(level.max()? as f64),
        })
    }
}

/// Time with lowered clocks for a reason, to within an interval for each time that it began.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ThrottledReport {
    pub reason: String,
    pub ns: u64,
}

/// What the device did at the time of an anomaly.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DeviceMomentReport {
    /// The lowest SM clock from the last sample before the run to the first one after it.
    pub sm_clock_mhz: u64,
    /// Of the 30 s before; absent if too little of them was sampled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usual_sm_clock_mhz: Option<u64>,
    pub throttle_reasons: Vec<String>,
    /// Whether the clock was lower than usual.
    pub is_slower: bool,
}

impl DeviceMetricsReport {
    pub(super) fn new(device: &SampledDevice) -> DeviceMetricsReport {
        let level = |metric, parts| LevelReport::new(device.level(metric), parts);
        let energy = device.energy().map(|Energy { counted_joules, integrated_joules }| EnergyReport {
            joules: ((counted_joules.unwrap_or(0.0) + integrated_joules.unwrap_or(0.0)) * 1e3).round() / 1e3,
            source: match (counted_joules, integrated_joules) {
                (None, _) => "power",
                (Some(_), None) => "counter",
                (Some(_), Some(_)) => "both",
            },
        });
        let (for_power_ns, for_heat_ns) = device.throttle_counters_ns();
        DeviceMetricsReport {
            interval_ns: device.interval_ns,
            samples: device.samples,
            failed_samples: device.failed,
            sampled_ns: device.covered_ns,
            energy,
            power_watts: level(DeviceMetric::Power, 1e3),
            power_limit_watts: level(DeviceMetric::PowerLimit, 1e3).map(|limit| limit.max),
            temperature_celsius: level(DeviceMetric::Temperature, 1.0),
            memory_temperature_celsius: level(DeviceMetric::MemoryTemperature, 1.0),
            sm_clock_mhz: level(DeviceMetric::SmClock, 1.0),
            sm_clock_max_mhz: level(DeviceMetric::SmClockMax, 1.0).map(|limit| limit.max),
            memory_clock_mhz: level(DeviceMetric::MemoryClock, 1.0),
            throttled: (device.level(DeviceMetric::ThrottleReasons).count > 0).then(|| throttled(device)),
            throttled_for_power_ns: for_power_ns,
            throttled_for_heat_ns: for_heat_ns,
            memory_peak_bytes: device.level(DeviceMetric::MemoryUsed).max(),
            gpu_busy_percent: level(DeviceMetric::GpuBusy, 1.0),
            memory_busy_percent: level(DeviceMetric::MemoryBusy, 1.0),
            pcie_sent_bytes_per_second: level(DeviceMetric::PcieSent, 1.0),
            pcie_received_bytes_per_second: level(DeviceMetric::PcieReceived, 1.0),
            pcie_peak_bytes_per_second: level(DeviceMetric::PciePeak, 1.0).map(|limit| limit.max),
            problem: Some(device.problem.clone()).filter(|problem| !problem.is_empty()),
        }
    }

    /// For the summary: what is known, in up to three lines.
    pub(super) fn lines(&self) -> Vec<String> {
        let energy = self.energy.as_ref().map(|energy| match energy.source {
            "power" => format!("about {} J", count(energy.joules.round() as u64)),
            _ => format!("{} J", count(energy.joules.round() as u64)),
        });
        let power = self.power_watts.map(|power| format!("{:.0} W, peak {:.0} W", power.mean, power.max));
        let heat =
            self.temperature_celsius.map(|heat| format!("{:.0} °C, peak {:.0} °C", heat.mean, heat.max));
        let memory = self.memory_peak_bytes.map(|peak| format!("memory peak {}", bytes(peak)));
        let clock = |name: &str, clock: Option<LevelReport>| {
            clock.map(|clock| match clock.min == clock.max {
                true => format!("{name} {:.0} MHz", clock.mean),
                false => format!("{name} {:.0} MHz, {:.0} to {:.0}", clock.mean, clock.min, clock.max),
            })
        };
        let clocks = [clock("SM", self.sm_clock_mhz), clock("memory", self.memory_clock_mhz)];
        let throttled = self.throttled.iter().flatten();
        let throttled: Vec<_> =
            throttled.map(|reason| format!("{} {}", reason.reason, duration(reason.ns))).collect();
        let joined = |parts: &[Option<String>]| {
            let parts: Vec<_> = parts.iter().flatten().map(String::as_str).collect();
            parts.join("; ")
        };
        let throttled = (!throttled.is_empty()).then(|| format!("clocks lowered: {}", throttled.join(", ")));
        let lines = [joined(&[energy, power, heat, memory]), joined(&clocks), joined(&[throttled])];
        lines.into_iter().filter(|line| !line.is_empty()).collect()
    }

    /// A note about what is missing.
    pub(super) fn notice(&self) -> Option<String> {
        let problem = self.problem.as_ref()?;
        let (failed, samples) = (count(self.failed_samples), count(self.samples));
        Some(match (self.samples, self.failed_samples) {
            (0, _) => format!("device metrics are not sampled: {problem}"),
            _ => format!("{failed} of {samples} samples of a device have no values: {problem}"),
        })
    }
}

/// The reasons that held, the longest first. Idleness is none.
fn throttled(device: &SampledDevice) -> Vec<ThrottledReport> {
    let bits = device.throttled_ns.iter().enumerate().map(|(bit, ns)| (1 << bit, *ns));
    let held = bits.filter(|(bit, ns)| *ns > 0 && *bit != throttle::IDLE);
    let mut list: Vec<_> = held
        .flat_map(|(bit, ns)| {
            throttle::names(bit).into_iter().map(move |reason| ThrottledReport { reason, ns })
        })
        .collect();
    list.sort_by_key(|reason| std::cmp::Reverse(reason.ns));
    list
}

impl DeviceMomentReport {
    pub(super) fn of(outlier: &Outlier, aggregates: &Aggregates) -> Option<DeviceMomentReport> {
        let DeviceMoment { sm_mhz, usual_sm_mhz, reasons } =
            outlier.moment(&aggregates.devices, &aggregates.sampled_devices)?;
        Some(DeviceMomentReport {
            sm_clock_mhz: sm_mhz,
            usual_sm_clock_mhz: usual_sm_mhz,
            throttle_reasons: throttle::names(reasons),
            is_slower: usual_sm_mhz.is_some_and(|usual| (sm_mhz as f64) < LOWER * usual as f64),
        })
    }

    /// "SM clock 1980 → 1200 MHz, power cap"; `None` if the clock explains nothing.
    pub(super) fn line(&self) -> Option<String> {
        let usual = self.usual_sm_clock_mhz.filter(|_| self.is_slower)?;
        let clock = format!("SM clock {usual} → {} MHz", self.sm_clock_mhz);
        Some([&[clock][..], &self.throttle_reasons].concat().join(", "))
    }
}

#[cfg(test)]
#[path = "device_metrics_tests.rs"]
mod tests;
