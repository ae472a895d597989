//! Samples of a device: what it did while the traced programs ran, as its management library reports it.
//!
//! The collector stores and evaluates samples; whoever takes them implements
//! [`DeviceSampler`](crate::session::DeviceSampler).

use gputrace_wire::definition::device as field;

use crate::batch::Definition;

/// A physical device, as a process defines it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct DeviceIdentity {
    /// The CUDA driver's; zeros if it is not known.
    pub uuid: [u64; 2],
    /// PCI domain, bus and device.
    pub pci: [u32; 3],
}

impl DeviceIdentity {
    /// The identity that a `DEVICE` definition has.
    pub fn of(definition: &Definition) -> DeviceIdentity {
        let small = |index| u32::try_from(definition.field(index)).unwrap_or(0);
        DeviceIdentity {
            uuid: [definition.field(field::UUID_LOW), definition.field(field::UUID_HIGH)],
            pci: [small(field::PCI_DOMAIN), small(field::PCI_BUS), small(field::PCI_DEVICE)],
        }
    }

    /// The PCI bus id as the kernel writes it: "0000:01:00.0".
    pub fn pci_bus_id(&self) -> String {
        let [domain, bus, device] = self.pci;
        format!("{domain:04x}:{bus:02x}:{device:02x}.0")
    }
}

/// Declares the metrics: each with its number in the trace file, its name and its unit's symbol.
macro_rules! device_metrics {
    ($($(#[$doc:meta])* $metric:ident = $number:literal, $name:literal, $unit:literal;)*) => {
        /// What a sample may contain. The numbers are those of the trace file, from 1 without gaps.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u16)]
        pub enum DeviceMetric {
            $($(#[$doc])* $metric = $number,)*
        }

        impl DeviceMetric {
            pub const ALL: &'static [DeviceMetric] = &[$(DeviceMetric::$metric,)*];

            /// As outputs call it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(DeviceMetric::$metric => $name,)*
                }
            }

            /// The unit of the value; empty for a number without one.
            pub const fn unit(self) -> &'static str {
                match self {
                    $(DeviceMetric::$metric => $unit,)*
                }
            }
        }
    };
}

device_metrics! {
    Power = 1, "power", "mW";
    /// Consumed since the driver was loaded.
    Energy = 2, "energy", "mJ";
    PowerLimit = 3, "power limit", "mW";
    Temperature = 4, "temperature", "°C";
    MemoryTemperature = 5, "memory temperature", "°C";
    SmClock = 6, "SM clock", "MHz";
    MemoryClock = 7, "memory clock", "MHz";
    /// Why the clocks are lowered, a set of bits as in NVML.
    ThrottleReasons = 8, "throttle reasons", "";
    /// Time with clocks lowered for power since the driver was loaded.
    PowerThrottled = 9, "throttled for power", "ns";
    ThermalThrottled = 10, "throttled for heat", "ns";
    MemoryUsed = 11, "memory used", "B";
    /// Time in which any kernel ran, as the driver counts it.
    GpuBusy = 12, "GPU busy", "%";
    /// Time in which the memory controller moved data.
    MemoryBusy = 13, "memory busy", "%";
    /// From the device to the host.
    PcieSent = 14, "PCIe sent", "B/s";
    PcieReceived = 15, "PCIe received", "B/s";
    /// The highest that the device can be set to.
    SmClockMax = 16, "highest SM clock", "MHz";
    /// Of the PCIe link at its best, in one direction, before packet headers.
    PciePeak = 17, "PCIe peak", "B/s";
}

/// A device at one moment. What it does not report is absent; a sample of a device that could not be read
/// has no value at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceSample {
    /// On CLOCK_MONOTONIC.
    pub monotonic_ns: u64,
    values: [Option<u64>; DeviceMetric::ALL.len()],
}

impl DeviceSample {
    pub fn new(monotonic_ns: u64) -> DeviceSample {
        DeviceSample { monotonic_ns, ..DeviceSample::default() }
    }

    /// The same sample with that value.
    pub fn with(mut self, metric: DeviceMetric, value: Option<u64>) -> DeviceSample {
        if let Some(slot) = self.values.get_mut(metric as usize - 1) {
            *slot = value;
        }
        self
    }

    pub fn get(&self, metric: DeviceMetric) -> Option<u64> {
        self.values.get(metric as usize - 1).copied().flatten()
    }

    pub fn is_empty(&self) -> bool {
        self.values.iter().all(Option::is_none)
    }
}

/// Consecutive samples of one device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeviceSamples {
    pub device: DeviceIdentity,
    /// Between two samples, as asked for.
    pub interval_ns: u64,
    /// Why the device cannot be sampled, or why the last sample without values has none; empty otherwise.
    pub problem: String,
    /// In order of time, at most [`DeviceSamples::SAMPLES_MAX`].
    pub samples: Vec<DeviceSample>,
}

impl DeviceSamples {
    /// The most samples of one batch, so that a file cannot claim memory that it does not have the bytes for.
    pub const SAMPLES_MAX: usize = 4096;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_numbered_from_one_without_gaps() {
        for (index, metric) in DeviceMetric::ALL.iter().enumerate() {
            assert_eq!(*metric as usize, index + 1);
            let sample = DeviceSample::new(7).with(*metric, Some(5));
            let known: Vec<_> = DeviceMetric::ALL.iter().filter(|of| sample.get(**of).is_some()).collect();
            assert_eq!(known, [metric]);
            assert!(!sample.is_empty() && DeviceSample::new(7).is_empty());
        }
    }

    #[test]
    fn identity_is_taken_from_the_definition() {
        let mut fields = vec![0; 24];
        (fields[field::UUID_LOW], fields[field::UUID_HIGH]) = (7, 9);
        (fields[field::PCI_DOMAIN], fields[field::PCI_BUS], fields[field::PCI_DEVICE]) = (1, 0x1b, 2);
        let identity = DeviceIdentity::of(&Definition { fields, ..Definition::default() });
        assert_eq!(identity, DeviceIdentity { uuid: [7, 9], pci: [1, 0x1b, 2] });
        assert_eq!(identity.pci_bus_id(), "0001:1b:02.0");
        assert_eq!(DeviceIdentity::of(&Definition::default()), DeviceIdentity::default());
    }
}
