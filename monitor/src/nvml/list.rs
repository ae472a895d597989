//! What does not change about NVIDIA's devices.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Instant;

use nvml_wrapper::enum_wrappers::device::Clock;
use nvml_wrapper::enums::device::DeviceArchitecture;
use nvml_wrapper::{Device, Nvml};

use super::{failure, library, topology};
use crate::config::MonitorConfig;
use crate::device::{GpuBackend, GpuDeviceInfo, GpuVendor, PcieLink};
use crate::error::GpuMonitorError;
use crate::pci;
use crate::plausible;
use crate::source::Found;

/// More devices than that are no driver's answer.
const DEVICES_MAX: u32 = 1024;

pub fn list(config: &MonitorConfig, first: u32) -> Result<Found, GpuMonitorError> {
    let nvml = library::load(&config.sources)?;
    let count =
        nvml.device_count().map_err(|error| failure::explain("nvmlDeviceGetCount_v2", first, &error))?;
    if count > DEVICES_MAX {
        return Err(GpuMonitorError::BadLibrary(format!("it reports {count} devices")));
    }
    let system = Arc::new(System::read(nvml));
    let mut found = Found::default();
    let mut handles = Vec::new();
    for (index, answer) in (first..).zip(described(nvml, count, first, &system, config)) {
        match answer {
            Ok((device, handle)) => {
                found.devices.push(device);
                handles.push((index, handle));
            }
            // It keeps its index: those behind it are other devices.
            Err(error) => {
                found.devices.push(system.device(index, "unknown".into()));
                found.problems.push(error);
            }
        }
    }
    found.links = topology::links(nvml, &handles);
    Ok(found)
}

type Described = Result<(GpuDeviceInfo, Device<'static>), GpuMonitorError>;

/// Each device, by a thread of its own: one whose driver call never returns keeps the others' list no longer
/// than half of the limit.
fn described(
    nvml: &'static Nvml,
    count: u32,
    first: u32,
    system: &Arc<System>,
    config: &MonitorConfig,
) -> Vec<Described> {
    let limit = config.start_limit / 2;
    let (sender, answers) = mpsc::channel();
    let no_answer = |index| GpuMonitorError::NoAnswer { subject: format!("device {index}"), waited: limit };
    let mut described: Vec<Described> = (first..first + count).map(|index| Err(no_answer(index))).collect();
    for number in 0..count {
        let (sender, system, sysfs) = (sender.clone(), Arc::clone(system), config.sources.sysfs.clone());
        let read = move || {
            let index = first + number;
            let device = nvml.device_by_index(number);
            let device =
                device.map_err(|error| failure::explain("nvmlDeviceGetHandleByIndex_v2", index, &error));
            let answer = device.map(|device| (describe(&device, index, &system, &sysfs), device));
            // Nobody waits any more if this fails.
            let _ = sender.send((number, answer));
        };
        if let Err(error) = thread::Builder::new().name("gpu-list".into()).spawn(read)
            && let Some(slot) = described.get_mut(number as usize)
        {
            *slot = Err(GpuMonitorError::NoThread(error.to_string()));
        }
    }
    drop(sender);
    let deadline = Instant::now() + limit;
    while let Ok((number, answer)) = answers.recv_timeout(deadline.saturating_duration_since(Instant::now()))
    {
        if let Some(slot) = described.get_mut(number as usize) {
            *slot = answer;
        }
    }
    described
}

/// What all devices of the driver share.
struct System {
    driver: Option<String>,
    cuda: Option<(u32, u32)>,
}

impl System {
    fn read(nvml: &Nvml) -> System {
        let cuda = nvml.sys_cuda_driver_version().ok().and_then(|version| u32::try_from(version).ok());
        let cuda = cuda.filter(|version| (1000..1_000_000).contains(version));
        System {
            driver: nvml.sys_driver_version().ok(),
            cuda: cuda.map(|version| (version / 1000, version % 1000 / 10)),
        }
    }

    fn device(&self, index: u32, name: String) -> GpuDeviceInfo {
        GpuDeviceInfo {
            driver_version: self.driver.clone(),
            cuda_version: self.cuda,
            ..GpuDeviceInfo::new(index, name, GpuVendor::Nvidia, GpuBackend::Nvml)
        }
    }
}

fn describe(device: &Device<'_>, index: u32, system: &System, sysfs: &Path) -> GpuDeviceInfo {
    let max_mhz = |clock| device.max_clock_info(clock).ok().and_then(plausible::mhz);
    let capability = device.cuda_compute_capability().ok();
    let pci_bus_id = device.pci_info().ok().and_then(|pci| pci::bus_id(&pci.bus_id));
    let numa = pci_bus_id.as_ref().and_then(|id| pci::numa_node(sysfs, id));
    let limits = device.power_management_limit_constraints().ok();
    let architecture = device.architecture().ok().filter(|name| *name != DeviceArchitecture::Unknown);
    GpuDeviceInfo {
        vram_total: super::sensors::memory(device).ok().and_then(|memory| memory.total),
        compute_capability: capability.and_then(|version| {
            Some((u32::try_from(version.major).ok()?, u32::try_from(version.minor).ok()?))
        }),
        pci_bus_id,
        uuid: device.uuid().ok(),
        architecture: architecture.map(|name| format!("{name:?}")),
        link: Some(PcieLink {
            generation: device.current_pcie_link_gen().ok().and_then(plausible::generation),
            width: device.current_pcie_link_width().ok().and_then(plausible::lanes),
            max_generation: device.max_pcie_link_gen().ok().and_then(plausible::generation),
            max_width: device.max_pcie_link_width().ok().and_then(plausible::lanes),
        }),
        numa_node: numa,
        max_graphics_mhz: max_mhz(Clock::Graphics),
        max_sm_mhz: max_mhz(Clock::SM),
        max_memory_mhz: max_mhz(Clock::Memory),
        memory_bus_bits: device.memory_bus_width().ok(),
        power_limit_watts: device.enforced_power_limit().ok().and_then(plausible::watts),
        power_limit_max_watts: limits.and_then(|limits| plausible::watts(limits.max_limit)),
        ecc: device.is_ecc_enabled().ok().map(|state| state.currently_enabled),
        mig: device.mig_mode().ok().map(|mode| mode.current != 0),
        ..system.device(index, device.name().unwrap_or_else(|_| "unknown".into()))
    }
}
