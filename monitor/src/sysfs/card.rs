//! The cards of `/sys/class/drm`, and what does not change about them.

use std::fs;
use std::path::{Path, PathBuf};

use super::file;
use super::sensors::Sensors;
use crate::config::MonitorConfig;
use crate::device::{GpuBackend, GpuDeviceInfo, GpuVendor, PcieLink};
use crate::source::Found;
use crate::{pci, plausible};

/// One card.
#[derive(Clone, Debug)]
pub struct Card {
    /// `/sys/class/drm/card0`.
    pub drm: PathBuf,
    /// Its PCI device's folder.
    pub device: PathBuf,
    pub bus_id: String,
    pub vendor: GpuVendor,
    pub backend: GpuBackend,
}

/// In the order of their addresses. Connectors (`card0-DP-1`) are none.
pub fn cards(sysfs: &Path) -> Vec<Card> {
    let entries = fs::read_dir(sysfs.join("class/drm")).into_iter().flatten().flatten();
    let mut cards: Vec<Card> = entries.filter_map(|entry| card(&entry.path())).collect();
    cards.sort_by(|one, other| one.bus_id.cmp(&other.bus_id));
    cards
}

fn card(drm: &Path) -> Option<Card> {
    let number = drm.file_name()?.to_str()?.strip_prefix("card")?;
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let device = drm.join("device");
    let driver = fs::read_link(device.join("driver")).ok()?;
    let backend = match driver.file_name()?.to_str()? {
        "amdgpu" => GpuBackend::Amdgpu,
        "i915" => GpuBackend::I915,
        "xe" => GpuBackend::Xe,
        _ => return None,
    };
    let events = file::text(&device.join("uevent"))?;
    let bus_id = events.lines().find_map(|line| line.strip_prefix("PCI_SLOT_NAME="))?;
    let vendor = GpuVendor::from_pci_id(file::hexadecimal(&device.join("vendor"))?);
    Some(Card { drm: drm.to_owned(), bus_id: pci::bus_id(bus_id)?, device, vendor, backend })
}

pub fn list(config: &MonitorConfig, first: u32, vendor: GpuVendor) -> Found {
    let cards = cards(&config.sources.sysfs).into_iter().filter(|card| card.vendor == vendor);
    let devices = cards.zip(first..).map(|(card, index)| describe(&card, index, &config.sources.sysfs));
    Found { devices: devices.collect(), ..Found::default() }
}

fn describe(card: &Card, index: u32, sysfs: &Path) -> GpuDeviceInfo {
    let device = &card.device;
    let own_name = file::text(&device.join("product_name"));
    let name = own_name.unwrap_or_else(|| {
        let id = file::hexadecimal(&device.join("device"));
        format!(
            "{} device {}",
            card.vendor,
            id.map_or_else(|| "unknown".to_owned(), |id| format!("{id:#06x}"))
        )
    });
    let sensors = Sensors::find(device);
    let max_graphics = match card.backend {
        GpuBackend::Amdgpu => file::highest_mhz(&device.join("pp_dpm_sclk")),
        GpuBackend::I915 => {
            file::number(&card.drm.join("gt_RP0_freq_mhz")).and_then(|mhz| mhz.try_into().ok())
        }
        _ => file::number(&device.join("tile0/gt0/freq0/rp0_freq")).and_then(|mhz| mhz.try_into().ok()),
    };
    GpuDeviceInfo {
        vram_total: vram_total(card),
        driver_version: file::text(&device.join("driver/module/version")),
        pci_bus_id: Some(card.bus_id.clone()),
        uuid: file::text(&device.join("unique_id")),
        link: Some(link(device)),
        numa_node: pci::numa_node(sysfs, &card.bus_id),
        max_graphics_mhz: max_graphics.and_then(plausible::mhz),
        max_memory_mhz: file::highest_mhz(&device.join("pp_dpm_mclk")).and_then(plausible::mhz),
        power_limit_watts: sensors.power_limit_watts(),
        power_limit_max_watts: sensors.watts("power1_cap_max"),
        ..GpuDeviceInfo::new(index, name, card.vendor, card.backend)
    }
}

pub fn vram_total(card: &Card) -> Option<u64> {
    let name = match card.backend {
        GpuBackend::Amdgpu => "mem_info_vram_total",
        // The first tile's; nothing is said where there are more.
        GpuBackend::Xe if !card.device.join("tile1").exists() => "tile0/physical_vram_size_bytes",
        _ => return None,
    };
    file::number(&card.device.join(name)).and_then(plausible::bytes)
}

pub fn link(device: &Path) -> PcieLink {
    let lanes = |name: &str| {
        let lanes = file::number(&device.join(name)).and_then(|lanes| u32::try_from(lanes).ok());
        lanes.and_then(plausible::lanes)
    };
    PcieLink {
        generation: file::generation(&device.join("current_link_speed")),
        width: lanes("current_link_width"),
        max_generation: file::generation(&device.join("max_link_speed")),
        max_width: lanes("max_link_width"),
    }
}
