//! Which values of a sampled device are shown as counters in timelines, and in which unit.

use crate::batch::DeviceMetric;
use crate::label::throttle;

/// A value of samples, and how a timeline shows it.
#[derive(Clone, Copy, Debug)]
pub struct DeviceCounter {
    pub metric: DeviceMetric,
    /// What the sampled value is divided by to be in `unit`.
    pub divisor: u64,
    pub unit: &'static str,
}

pub const BYTES: &str = "bytes";

const fn counter(metric: DeviceMetric, unit: &'static str) -> DeviceCounter {
    DeviceCounter { metric, divisor: 1, unit }
}

/// In the order in which they are shown.
pub const DEVICE_COUNTERS: [DeviceCounter; 9] = [
    counter(DeviceMetric::GpuBusy, "%"),
    counter(DeviceMetric::MemoryUsed, BYTES),
    counter(DeviceMetric::MemoryBusy, "%"),
    counter(DeviceMetric::SmClock, "MHz"),
    counter(DeviceMetric::MemoryClock, "MHz"),
    // From milliwatts.
    DeviceCounter { metric: DeviceMetric::Power, divisor: 1000, unit: "W" },
    counter(DeviceMetric::Temperature, "°C"),
    counter(DeviceMetric::PcieSent, "bytes/s"),
    counter(DeviceMetric::PcieReceived, "bytes/s"),
];

/// What the time in which clocks are lowered is called.
pub const LOWERED: &str = "clocks lowered";

/// Each known reason that is set, or is not. An idle device lowers its clocks by itself.
pub fn lowered_for(reasons: u64) -> impl Iterator<Item = (&'static str, bool)> {
    let known = throttle::REASONS.into_iter().filter(|(bit, _)| *bit != throttle::IDLE);
    known.map(move |(bit, name)| (name, reasons & bit != 0))
}

/// How many [`lowered_for`] gives.
pub const LOWERED_REASONS: usize = throttle::REASONS.len() - 1;
