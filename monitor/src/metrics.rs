//! One sample of a device: everything that changes.

use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;

use crate::error::GpuMonitorError;
use crate::process::GpuProcess;
use crate::throttle::GpuThrottleMetrics;

/// A sample. What the device or its driver does not report is `None`; so is everything if `problem` is there.
#[derive(Debug, Clone, Serialize)]
pub struct GpuMetrics {
    #[serde(skip)]
    pub timestamp: Instant,
    /// The same moment by the wall clock, for what is sent elsewhere.
    #[serde(serialize_with = "unix_seconds")]
    pub wall_time: SystemTime,
    pub device_index: u32,
    /// Why the sample has no values: the device is lost, or its driver does not answer.
    #[serde(serialize_with = "words", skip_serializing_if = "Option::is_none")]
    pub problem: Option<GpuMonitorError>,
    pub utilization: GpuUtilization,
    pub memory: GpuMemoryMetrics,
    pub thermal: Option<GpuThermalMetrics>,
    pub power: Option<GpuPowerMetrics>,
    pub clocks: Option<GpuClockMetrics>,
    pub pcie: Option<GpuPcieMetrics>,
    pub throttle: Option<GpuThrottleMetrics>,
    pub errors: Option<GpuErrorMetrics>,
    /// `None`: the driver does not list them. The list is as old as `processes_age`.
    pub processes: Option<Vec<GpuProcess>>,
    #[serde(serialize_with = "seconds", skip_serializing_if = "Option::is_none")]
    pub processes_age: Option<Duration>,
    /// How long the driver took for this sample, without what has a pace of its own and is read afterwards.
    #[serde(serialize_with = "microseconds", rename = "read_us")]
    pub read_time: Option<Duration>,
}

impl GpuMetrics {
    /// A sample of now in which nothing is known yet.
    pub fn empty(device_index: u32) -> GpuMetrics {
        GpuMetrics {
            timestamp: Instant::now(),
            wall_time: SystemTime::now(),
            device_index,
            problem: None,
            utilization: GpuUtilization::default(),
            memory: GpuMemoryMetrics::default(),
            thermal: None,
            power: None,
            clocks: None,
            pcie: None,
            throttle: None,
            errors: None,
            processes: None,
            processes_age: None,
            read_time: None,
        }
    }

    /// The sample of that moment, if nothing was read since this one: its values are older by then.
    pub fn repeated(&self, now: Instant) -> Box<GpuMetrics> {
        let mut sample = Box::new(self.clone());
        sample.grow_older(now);
        (sample.timestamp, sample.wall_time) = (now, SystemTime::now());
        sample
    }

    /// Ages are as of now, and no longer as of the sample's time.
    pub fn grow_older(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.timestamp);
        let ages = [
            Some(&mut self.memory.age),
            self.thermal.as_mut().map(|thermal| &mut thermal.age),
            self.pcie.as_mut().map(|pcie| &mut pcie.throughput_age),
            Some(&mut self.processes_age),
        ];
        ages.into_iter().flatten().flatten().for_each(|age| *age += passed);
    }

    /// The sample of a device that cannot be read now.
    pub fn failed(device_index: u32, problem: GpuMonitorError) -> GpuMetrics {
        GpuMetrics { problem: Some(problem), ..GpuMetrics::empty(device_index) }
    }
}

/// How much of the time units were busy, in percent, over the driver's own period (1/6 s to 1 s).
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct GpuUtilization {
    /// Time in which any kernel ran.
    pub gpu_percent: Option<u32>,
    /// Time in which the memory controller moved data.
    pub memory_percent: Option<u32>,
    pub encoder_percent: Option<u32>,
    pub decoder_percent: Option<u32>,
}

/// Device memory, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct GpuMemoryMetrics {
    pub total: Option<u64>,
    /// Without what is reserved, as nvidia-smi prints it.
    pub used: Option<u64>,
    pub free: Option<u64>,
    /// What the driver and the firmware keep for themselves.
    pub reserved: Option<u64>,
    /// Live allocations. Only a tracer knows them: this library leaves it `None`.
    pub allocations: Option<u64>,
    /// How old these values are.
    #[serde(serialize_with = "seconds", skip_serializing_if = "Option::is_none")]
    pub age: Option<Duration>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct GpuThermalMetrics {
    pub temperature_celsius: Option<u32>,
    /// Where the device switches itself off.
    pub temperature_threshold_shutdown: Option<u32>,
    /// Where the device lowers its clocks.
    pub temperature_threshold_slowdown: Option<u32>,
    pub memory_temperature_celsius: Option<u32>,
    /// Of the fan's highest speed.
    pub fan_speed_percent: Option<u32>,
    /// How old these values are.
    #[serde(serialize_with = "seconds", skip_serializing_if = "Option::is_none")]
    pub age: Option<Duration>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct GpuPowerMetrics {
    /// From Ampere on, the average of the last second.
    pub power_draw_watts: Option<f32>,
    pub power_limit_watts: Option<f32>,
    /// Performance state: 0 is the fastest, 15 the slowest.
    pub power_state: Option<u32>,
    /// Energy since the driver was loaded.
    pub energy_joules: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct GpuClockMetrics {
    pub graphics_mhz: Option<u32>,
    pub memory_mhz: Option<u32>,
    pub sm_mhz: Option<u32>,
    pub video_mhz: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct GpuPcieMetrics {
    /// From the device to the host.
    pub tx_bytes_per_sec: Option<u64>,
    /// From the host to the device.
    pub rx_bytes_per_sec: Option<u64>,
    /// How old the two rates are: a driver measures them for 20 ms each, so they have a pace of their own.
    #[serde(serialize_with = "seconds", skip_serializing_if = "Option::is_none")]
    pub throughput_age: Option<Duration>,
    pub link_gen: Option<u32>,
    pub link_width: Option<u32>,
    pub max_link_gen: Option<u32>,
    pub max_link_width: Option<u32>,
    /// Packets that were sent again, since the driver was loaded.
    pub replays: Option<u64>,
}

/// What went wrong in the device.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct GpuErrorMetrics {
    /// Memory errors that were corrected, since the driver was loaded.
    pub ecc_corrected: Option<u64>,
    pub ecc_uncorrected: Option<u64>,
    /// XID errors since this monitor began, and the code of the last one. `None`: the driver has no events.
    pub xid_count: Option<u64>,
    pub xid_last: Option<u64>,
    /// Memory rows replaced because of corrected errors, and of uncorrected ones.
    pub remapped_rows_corrected: Option<u32>,
    pub remapped_rows_uncorrected: Option<u32>,
    /// Whether replacing a row failed.
    pub remapping_failed: Option<bool>,
}

fn unix_seconds<S: serde::Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // Whole milliseconds: a float of 64 bits writes them as they are.
    serializer.serialize_f64(since.as_millis() as f64 / 1e3)
}

fn seconds<S: serde::Serializer>(age: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match age {
        Some(age) => serializer.serialize_f64(age.as_millis() as f64 / 1e3),
        None => serializer.serialize_none(),
    }
}

fn microseconds<S: serde::Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => serializer.serialize_f64((time.as_secs_f64() * 1e7).round() / 10.0),
        None => serializer.serialize_none(),
    }
}

fn words<S: serde::Serializer>(problem: &Option<GpuMonitorError>, serializer: S) -> Result<S::Ok, S::Error> {
    match problem {
        Some(problem) => serializer.collect_str(problem),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_sample_has_the_same_values_and_they_are_older() {
        let age = Some(Duration::from_secs(3));
        let mut first = GpuMetrics::empty(1);
        first.memory = GpuMemoryMetrics { used: Some(7), age, ..GpuMemoryMetrics::default() };
        first.thermal = Some(GpuThermalMetrics { age, ..GpuThermalMetrics::default() });
        first.pcie = Some(GpuPcieMetrics { throughput_age: age, ..GpuPcieMetrics::default() });
        let later = first.timestamp + Duration::from_secs(2);
        let second = first.repeated(later);
        assert_eq!((second.timestamp, second.memory.used, second.device_index), (later, Some(7), 1));
        let older = Some(Duration::from_secs(5));
        assert_eq!((second.memory.age, second.thermal.unwrap().age), (older, older));
        assert_eq!((second.pcie.unwrap().throughput_age, second.processes_age), (older, None));
    }
}
