//! What does not change about a device: its name, its size, its place in the machine.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::cuda_properties::CudaProperties;

/// One device. What is not known is `None`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GpuDeviceInfo {
    /// From 0, in the order of [`Inventory::devices`](crate::Inventory::devices): NVIDIA's devices in NVML's
    /// order, which is that of PCI bus ids, then AMD's, then Intel's.
    pub index: u32,
    /// As the vendor calls it: "NVIDIA GeForce RTX 4090".
    pub name: String,
    pub vendor: GpuVendor,
    /// Bytes of device memory.
    pub vram_total: Option<u64>,
    /// NVIDIA's compute capability: major, minor.
    #[serde(serialize_with = "version")]
    pub compute_capability: Option<(u32, u32)>,
    pub driver_version: Option<String>,
    /// "0000:01:00.0": domain of four digits, bus, device, function, as the kernel writes it.
    pub pci_bus_id: Option<String>,
    /// What the device is read by.
    pub backend: GpuBackend,
    pub uuid: Option<String>,
    /// The newest CUDA that the driver supports: major, minor.
    #[serde(serialize_with = "version")]
    pub cuda_version: Option<(u32, u32)>,
    /// "Hopper", "Ada".
    pub architecture: Option<String>,
    /// The PCIe link now and at most. A device that idles lowers its link's generation.
    pub link: Option<PcieLink>,
    /// The NUMA node whose memory is nearest.
    pub numa_node: Option<u32>,
    pub max_graphics_mhz: Option<u32>,
    pub max_sm_mhz: Option<u32>,
    pub max_memory_mhz: Option<u32>,
    pub memory_bus_bits: Option<u32>,
    pub power_limit_watts: Option<f32>,
    /// The highest limit that may be set.
    pub power_limit_max_watts: Option<f32>,
    /// Whether memory errors are corrected.
    pub ecc: Option<bool>,
    /// Whether the device is divided into instances (MIG). Utilisation of a divided device is not known.
    pub mig: Option<bool>,
    /// What only the CUDA driver knows. [`Inventory::read`](crate::Inventory::read) leaves it `None`.
    pub cuda: Option<CudaProperties>,
}

impl GpuDeviceInfo {
    /// A device with these facts; all others are unknown.
    pub fn new(index: u32, name: impl Into<String>, vendor: GpuVendor, backend: GpuBackend) -> GpuDeviceInfo {
        GpuDeviceInfo {
            index,
            name: name.into(),
            vendor,
            vram_total: None,
            compute_capability: None,
            driver_version: None,
            pci_bus_id: None,
            backend,
            uuid: None,
            cuda_version: None,
            architecture: None,
            link: None,
            numa_node: None,
            max_graphics_mhz: None,
            max_sm_mhz: None,
            max_memory_mhz: None,
            memory_bus_bits: None,
            power_limit_watts: None,
            power_limit_max_watts: None,
            ecc: None,
            mig: None,
            cuda: None,
        }
    }
}

/// "9.0".
fn version<S: Serializer>(version: &Option<(u32, u32)>, serializer: S) -> Result<S::Ok, S::Error> {
    match version {
        Some((major, minor)) => serializer.collect_str(&format_args!("{major}.{minor}")),
        None => serializer.serialize_none(),
    }
}

/// Who made a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpuVendor {
    Nvidia,
    Amd,
    Intel,
    Apple,
    /// A vendor with that PCI id.
    Unknown(u32),
}

impl GpuVendor {
    /// The vendor with that PCI id.
    pub fn from_pci_id(id: u32) -> GpuVendor {
        match id {
            0x10de => GpuVendor::Nvidia,
            0x1002 => GpuVendor::Amd,
            0x8086 => GpuVendor::Intel,
            0x106b => GpuVendor::Apple,
            other => GpuVendor::Unknown(other),
        }
    }
}

impl fmt::Display for GpuVendor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GpuVendor::Nvidia => out.write_str("NVIDIA"),
            GpuVendor::Amd => out.write_str("AMD"),
            GpuVendor::Intel => out.write_str("Intel"),
            GpuVendor::Apple => out.write_str("Apple"),
            GpuVendor::Unknown(id) => write!(out, "PCI vendor {id:#06x}"),
        }
    }
}

impl Serialize for GpuVendor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What a device is read by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum GpuBackend {
    /// libnvidia-ml.so.1.
    Nvml,
    /// Files of the kernel's driver for AMD's devices.
    Amdgpu,
    /// Files of the kernel's older driver for Intel's devices.
    I915,
    /// Files of the kernel's newer driver for Intel's devices.
    Xe,
}

/// A PCIe link: generation and lanes now and at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PcieLink {
    pub generation: Option<u32>,
    pub width: Option<u32>,
    /// What device and slot can do together.
    pub max_generation: Option<u32>,
    pub max_width: Option<u32>,
}

impl PcieLink {
    /// Bytes a second in one direction, after line coding and before packet headers; `None` for a generation
    /// that is not known here.
    pub fn bytes_per_sec(generation: u32, width: u32) -> Option<u64> {
        // Megatransfers a second and lane; 8b/10b coding up to generation 2, 128b/130b up to 5, then flits.
        let transfer_bits = match generation {
            1 => 2_500_000_000 * 8 / 10,
            2 => 5_000_000_000 * 8 / 10,
            3 => 8_000_000_000 * 128 / 130,
            4 => 16_000_000_000 * 128 / 130,
            5 => 32_000_000_000 * 128 / 130,
            6 => 64_000_000_000 * 236 / 256,
            _ => return None,
        };
        Some(transfer_bits / 8 * u64::from(width))
    }

    /// Peak of the link at its best, in bytes a second and direction.
    pub fn peak_bytes_per_sec(&self) -> Option<u64> {
        PcieLink::bytes_per_sec(self.max_generation?, self.max_width?)
    }
}

/// How two devices reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DeviceLink {
    /// Indices of the two devices, the lower one first.
    pub devices: (u32, u32),
    /// What lies between them on PCIe.
    pub path: Option<LinkPath>,
    /// Active NVLink connections between the two, where both ends name each other. Devices behind an NVSwitch
    /// have their links to the switch, so this is `None` for them.
    pub nvlinks: Option<u32>,
}

/// The farthest thing between two devices, nearest first; the words of `nvidia-smi topo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum LinkPath {
    /// On one board.
    #[serde(rename = "SOC")]
    Board,
    /// One PCIe switch.
    #[serde(rename = "PIX")]
    OneSwitch,
    /// Several PCIe switches, and no host bridge.
    #[serde(rename = "PXB")]
    SeveralSwitches,
    /// A host bridge.
    #[serde(rename = "PHB")]
    HostBridge,
    /// Host bridges of one NUMA node.
    #[serde(rename = "NODE")]
    Node,
    /// The connection between NUMA nodes.
    #[serde(rename = "SYS")]
    System,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vendors_are_known_by_pci_id() {
        assert_eq!(GpuVendor::from_pci_id(0x10de), GpuVendor::Nvidia);
        assert_eq!(GpuVendor::from_pci_id(0x1002), GpuVendor::Amd);
        assert_eq!(GpuVendor::from_pci_id(0x8086), GpuVendor::Intel);
        assert_eq!(GpuVendor::from_pci_id(0x106b), GpuVendor::Apple);
        assert_eq!(GpuVendor::from_pci_id(7).to_string(), "PCI vendor 0x0007");
    }

    #[test]
    fn peak_bandwidth_follows_generation_and_width() {
        assert_eq!(PcieLink::bytes_per_sec(1, 1), Some(250_000_000));
        assert_eq!(PcieLink::bytes_per_sec(4, 16), Some(31_507_692_304));
        assert_eq!(PcieLink::bytes_per_sec(9, 16), None);
        let link =
            PcieLink { generation: Some(1), width: Some(16), max_generation: Some(3), max_width: None };
        assert_eq!(link.peak_bytes_per_sec(), None);
    }
}
