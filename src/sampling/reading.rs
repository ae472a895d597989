//! A reading of `monitor` as a sample of the trace.

use std::time::Instant;

use gputrace_collector::batch::{DeviceMetric, DeviceSample};
use gputrace_monitor::{GpuDeviceInfo, GpuMetrics, PcieLink};

/// What a device can do at most, which each of its samples has beside what it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceLimits {
    sm_clock_mhz: Option<u64>,
    pcie_bytes_per_sec: Option<u64>,
}

impl DeviceLimits {
    pub fn of(device: &GpuDeviceInfo) -> DeviceLimits {
        DeviceLimits {
            sm_clock_mhz: device.max_sm_mhz.or(device.max_graphics_mhz).map(u64::from),
            pcie_bytes_per_sec: device.link.as_ref().and_then(PcieLink::peak_bytes_per_sec),
        }
    }

    /// The sample with the limits, unless it is of a device that could not be read.
    pub fn beside(self, sample: DeviceSample) -> DeviceSample {
        if sample.is_empty() {
            return sample;
        }
        sample
            .with(DeviceMetric::SmClockMax, self.sm_clock_mhz)
            .with(DeviceMetric::PciePeak, self.pcie_bytes_per_sec)
    }
}

/// The sample that a reading is. `now_ns`: the time on CLOCK_MONOTONIC.
pub fn sample(reading: &GpuMetrics, now_ns: u64) -> DeviceSample {
    let age = Instant::now().saturating_duration_since(reading.timestamp);
    let sample = DeviceSample::new(now_ns.saturating_sub(age.as_nanos() as u64));
    let milli = |value: f64| (value * 1e3).round() as u64;
    let power = reading.power.as_ref();
    let thermal = reading.thermal.as_ref();
    let clocks = reading.clocks.as_ref();
    let throttle = reading.throttle.as_ref();
    let pcie = reading.pcie.as_ref();
    let of = |value: Option<u32>| value.map(u64::from);
    sample
        .with(DeviceMetric::Power, power.and_then(|power| Some(milli(power.power_draw_watts?.into()))))
        .with(DeviceMetric::Energy, power.and_then(|power| Some(milli(power.energy_joules?))))
        .with(DeviceMetric::PowerLimit, power.and_then(|power| Some(milli(power.power_limit_watts?.into()))))
        .with(DeviceMetric::Temperature, of(thermal.and_then(|thermal| thermal.temperature_celsius)))
        .with(
            DeviceMetric::MemoryTemperature,
            of(thermal.and_then(|thermal| thermal.memory_temperature_celsius)),
        )
        .with(DeviceMetric::SmClock, of(clocks.and_then(|clocks| clocks.sm_mhz.or(clocks.graphics_mhz))))
        .with(DeviceMetric::MemoryClock, of(clocks.and_then(|clocks| clocks.memory_mhz)))
        .with(DeviceMetric::ThrottleReasons, throttle.and_then(|throttle| Some(throttle.reasons?.0)))
        .with(DeviceMetric::PowerThrottled, throttle.and_then(|throttle| throttle.power_ns))
        .with(DeviceMetric::ThermalThrottled, throttle.and_then(|throttle| throttle.thermal_ns))
        .with(DeviceMetric::MemoryUsed, reading.memory.used)
        .with(DeviceMetric::GpuBusy, of(reading.utilization.gpu_percent))
        .with(DeviceMetric::MemoryBusy, of(reading.utilization.memory_percent))
        .with(DeviceMetric::PcieSent, pcie.and_then(|pcie| pcie.tx_bytes_per_sec))
        .with(DeviceMetric::PcieReceived, pcie.and_then(|pcie| pcie.rx_bytes_per_sec))
}

#[cfg(test)]
mod tests {
    use gputrace_collector::label::throttle;
    use gputrace_monitor::{GpuPowerMetrics, GpuThermalMetrics, ThrottleReasons};

    use super::*;

    #[test]
    fn sample_has_what_the_reading_has() {
        let reading = GpuMetrics {
            power: Some(GpuPowerMetrics {
                power_draw_watts: Some(287.5),
                energy_joules: Some(123_456.789),
                ..GpuPowerMetrics::default()
            }),
            thermal: Some(GpuThermalMetrics {
                temperature_celsius: Some(67),
                ..GpuThermalMetrics::default()
            }),
            ..GpuMetrics::empty(0)
        };
        let sample = sample(&reading, 5_000_000_000);
        assert!((4_000_000_000..=5_000_000_000).contains(&sample.monotonic_ns));
        let known = DeviceMetric::ALL.iter().filter_map(|metric| Some((*metric, sample.get(*metric)?)));
        let expected = [
            (DeviceMetric::Power, 287_500),
            (DeviceMetric::Energy, 123_456_789),
            (DeviceMetric::Temperature, 67),
        ];
        assert!(known.eq(expected), "{sample:?}");
    }

    #[test]
    fn reading_of_a_lost_device_is_an_empty_sample() {
        assert!(sample(&GpuMetrics::empty(0), 7).is_empty());
    }

    /// Neither crate knows the other, and both print the reasons.
    #[test]
    fn throttle_reasons_have_the_same_words_in_reports_as_in_monitor() {
        let monitors = ThrottleReasons::ALL.map(|(reason, name)| (reason.0, name));
        assert_eq!(throttle::REASONS, monitors);
    }
}
