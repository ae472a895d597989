//! Sampled devices: energy, power, temperature, clocks and memory of each, in bounded memory.

use std::collections::VecDeque;

use crate::batch::{DeviceIdentity, DeviceMetric, DeviceSample, DeviceSamples};
use crate::model::definitions::Device;

/// Devices that are kept; samples of further ones are not.
const DEVICES_MAX: usize = 256;
/// The latest samples that are kept of each device, by which anomalies are explained: ten minutes at ten
/// samples a second.
const RECENT_MAX: usize = 6_000;
/// See [`gap_ns`].
const GAP_INTERVALS: u64 = 4;
const GAP_NS: u64 = 1_000_000_000;
/// The usual clock is that of the time before: this long, at least so many samples.
const USUAL_NS: u64 = 30_000_000_000;
const USUAL_SAMPLES: usize = 5;
/// Of the sorted clocks of that time, the one at this share is the usual one: the device may have idled.
const USUAL_SHARE: f64 = 0.75;

/// Between two samples that are farther apart than this, nothing was sampled. What the device did there is
/// not counted.
pub fn gap_ns(interval_ns: u64) -> u64 {
    interval_ns.saturating_mul(GAP_INTERVALS).max(GAP_NS)
}

/// The smallest and largest value, and the mean over the samples that have one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Level {
    pub count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Level {
    fn add(&mut self, value: Option<u64>) {
        let Some(value) = value else { return };
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.count += 1;
        self.sum += u128::from(value);
    }

    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    pub fn min(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min)
    }

    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }
}

/// What a device did while it was sampled.
#[derive(Clone, Debug, Default)]
pub struct SampledDevice {
    pub identity: DeviceIdentity,
    pub interval_ns: u64,
    /// Why the device was not sampled, or not at some time; empty otherwise.
    pub problem: String,
    pub samples: u64,
    /// Samples without values, among the samples.
    pub failed: u64,
    /// Time between samples, without gaps.
    pub covered_ns: u64,
    levels: [Level; DeviceMetric::ALL.len()],
    energy: EnergySum,
    /// Increases of counters.
    power_throttled_ns: Option<u64>,
    thermal_throttled_ns: Option<u64>,
    /// By bit of the throttle reasons, the time in which it was set; no device has more bits.
    pub throttled_ns: [u64; 32],
    last: Option<DeviceSample>,
    recent: VecDeque<RecentSample>,
}

/// The clock of a recent sample.
#[derive(Clone, Copy, Debug)]
struct RecentSample {
    monotonic_ns: u64,
    sm_mhz: Option<u64>,
    reasons: Option<u64>,
}

/// What a device did at the time of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceMoment {
    /// The lowest SM clock.
    pub sm_mhz: u64,
    /// The usual SM clock of the time before; `None` if that was not sampled.
    pub usual_sm_mhz: Option<u64>,
    /// All reasons for lowered clocks, as in [`DeviceMetric::ThrottleReasons`].
    pub reasons: u64,
}

/// Energy by the device's own counter, and by the integral of its power for the time without readings of
/// that.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Energy {
    pub counted_joules: Option<f64>,
    pub integrated_joules: Option<f64>,
}

/// Adds energy up. The counter is read now and then only, since that takes a driver milliseconds; power
/// between two readings of it does not count.
#[derive(Clone, Copy, Debug, Default)]
struct EnergySum {
    /// The last reading of the counter since the last gap.
    counter_mj: Option<u64>,
    counted_mj: Option<u64>,
    /// Power in milliwatts times nanoseconds: since that reading, and before where no reading covers it.
    since: Option<u128>,
    uncovered: Option<u128>,
}

impl EnergySum {
    fn add_power(&mut self, area: u128) {
        self.since = Some(self.since.unwrap_or(0).saturating_add(area));
    }

    fn add_reading(&mut self, counter_mj: u64) {
        // A counter that went back has begun anew.
        match self.counter_mj.and_then(|before| counter_mj.checked_sub(before)) {
            Some(increase) => {
                self.counted_mj = Some(self.counted_mj.unwrap_or(0).saturating_add(increase));
                self.since = None;
            }
            None => self.begin_anew(),
        }
        self.counter_mj = Some(counter_mj);
    }

    /// Nothing is known of what comes before the next sample.
    fn begin_anew(&mut self) {
        self.uncovered = self.integral();
        (self.counter_mj, self.since) = (None, None);
    }

    fn integral(&self) -> Option<u128> {
        let both = self.uncovered.unwrap_or(0).saturating_add(self.since.unwrap_or(0));
        self.uncovered.or(self.since).map(|_| both)
    }

    fn energy(&self) -> Option<Energy> {
        let counted_joules = self.counted_mj.map(|mj| mj as f64 / 1e3);
        let integrated_joules = self.integral().map(|integral| integral as f64 / 1e12);
        counted_joules.or(integrated_joules).map(|_| Energy { counted_joules, integrated_joules })
    }
}

impl SampledDevice {
    pub fn level(&self, metric: DeviceMetric) -> Level {
        self.levels.get(metric as usize - 1).copied().unwrap_or_default()
    }

    /// The last sample.
    pub fn last(&self) -> Option<&DeviceSample> {
        self.last.as_ref()
    }

    pub fn energy(&self) -> Option<Energy> {
        self.energy.energy()
    }

    /// Time with clocks lowered for power and for heat, by the device's own counters.
    pub fn throttle_counters_ns(&self) -> (Option<u64>, Option<u64>) {
        (self.power_throttled_ns, self.thermal_throttled_ns)
    }

    fn add(&mut self, sample: &DeviceSample) {
        // Several traces may have samples of the same time: those of the first one count.
        if self.last.is_some_and(|last| last.monotonic_ns >= sample.monotonic_ns) {
            return;
        }
        self.samples += 1;
        self.failed += u64::from(sample.is_empty());
        for (level, metric) in self.levels.iter_mut().zip(DeviceMetric::ALL) {
            level.add(sample.get(*metric));
        }
        if let Some(last) = self.last.replace(*sample) {
            self.add_time(&last, sample);
        }
        if let Some(counter_mj) = sample.get(DeviceMetric::Energy) {
            self.energy.add_reading(counter_mj);
        }
        if self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(RecentSample {
            monotonic_ns: sample.monotonic_ns,
            sm_mhz: sample.get(DeviceMetric::SmClock),
            reasons: sample.get(DeviceMetric::ThrottleReasons),
        });
    }

    /// Adds the time between two samples.
    fn add_time(&mut self, last: &DeviceSample, sample: &DeviceSample) {
        let passed_ns = sample.monotonic_ns - last.monotonic_ns;
        if passed_ns > gap_ns(self.interval_ns) {
            self.energy.begin_anew();
            return;
        }
        let add = |sum: &mut Option<u64>, metric| {
            // A counter that went back has begun anew.
            let increase = sample.get(metric).zip(last.get(metric));
            if let Some(increase) = increase.and_then(|(now, before)| now.checked_sub(before)) {
                *sum = Some(sum.unwrap_or(0).saturating_add(increase));
            }
        };
        add(&mut self.power_throttled_ns, DeviceMetric::PowerThrottled);
        add(&mut self.thermal_throttled_ns, DeviceMetric::ThermalThrottled);
        if let Some((now, before)) = sample.get(DeviceMetric::Power).zip(last.get(DeviceMetric::Power)) {
            let area = u128::from(passed_ns) * (u128::from(now) + u128::from(before)) / 2;
            self.energy.add_power(area);
        }
        self.covered_ns = self.covered_ns.saturating_add(passed_ns);
        let reasons = last.get(DeviceMetric::ThrottleReasons).unwrap_or(0);
        for (bit, throttled_ns) in self.throttled_ns.iter_mut().enumerate() {
            if reasons >> bit & 1 == 1 {
                *throttled_ns = throttled_ns.saturating_add(passed_ns);
            }
        }
    }

    /// Whether samples of the whole of that time are there, so that later ones change nothing.
    fn is_past(&self, end_ns: u64) -> bool {
        self.last.is_some_and(|last| last.monotonic_ns >= end_ns)
    }

    /// What the device did from the last sample before `start_ns` to the first one after `end_ns`.
    fn moment(&self, start_ns: u64, end_ns: u64) -> Option<DeviceMoment> {
        let recent = &self.recent;
        let first = recent.partition_point(|clocks| clocks.monotonic_ns <= start_ns).saturating_sub(1);
        let end = recent.partition_point(|clocks| clocks.monotonic_ns < end_ns).saturating_add(1);
        let near_ns = gap_ns(self.interval_ns);
        let is_near = |clocks: &&RecentSample| {
            clocks.monotonic_ns.saturating_add(near_ns) >= start_ns
                && clocks.monotonic_ns <= end_ns.saturating_add(near_ns)
        };
        let during = || recent.iter().take(end).skip(first).filter(is_near);
        let sm_mhz = during().filter_map(|clocks| clocks.sm_mhz).min()?;
        let reasons = during().filter_map(|clocks| clocks.reasons).fold(0, |all, reasons| all | reasons);
        let from_ns = start_ns.saturating_sub(USUAL_NS);
        let before = recent.iter().take(first).filter(|clocks| clocks.monotonic_ns >= from_ns);
        let mut before: Vec<u64> = before.filter_map(|clocks| clocks.sm_mhz).collect();
        before.sort_unstable();
        let usual = before.get((before.len() as f64 * USUAL_SHARE) as usize);
        let usual_sm_mhz = usual.copied().filter(|_| before.len() >= USUAL_SAMPLES);
        Some(DeviceMoment { sm_mhz, usual_sm_mhz, reasons })
    }
}

/// All devices that were sampled.
#[derive(Clone, Debug, Default)]
pub struct SampledDevices(Vec<SampledDevice>);

impl SampledDevices {
    pub fn add(&mut self, samples: &DeviceSamples) {
        let at = match self.0.iter().position(|known| known.identity == samples.device) {
            Some(at) => at,
            None if self.0.len() >= DEVICES_MAX => return,
            None => {
                self.0.push(SampledDevice { identity: samples.device, ..SampledDevice::default() });
                self.0.len() - 1
            }
        };
        let Some(device) = self.0.get_mut(at) else { return };
        device.interval_ns = samples.interval_ns;
        if !samples.problem.is_empty() {
            device.problem.clone_from(&samples.problem);
        }
        samples.samples.iter().for_each(|sample| device.add(sample));
    }

    pub fn iter(&self) -> impl Iterator<Item = &SampledDevice> {
        self.0.iter()
    }

    /// The samples of a device.
    pub fn of(&self, device: &Device) -> Option<&SampledDevice> {
        let identity = device.identity();
        self.0.iter().find(|known| known.identity == identity)
    }

    /// What a device did at a time. `None` before all samples of that time came, unless `is_last`.
    pub fn moment(&self, device: &Device, start_ns: u64, end_ns: u64, is_last: bool) -> Option<DeviceMoment> {
        let sampled = self.of(device)?;
        (is_last || sampled.is_past(end_ns)).then(|| sampled.moment(start_ns, end_ns)).flatten()
    }
}

#[cfg(test)]
#[path = "sampled_tests.rs"]
mod tests;
