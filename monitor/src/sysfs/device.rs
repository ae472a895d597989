//! Samples of one of AMD's or Intel's devices.

use std::path::PathBuf;
use std::time::Instant;

use super::card::{self, Card};
use super::clients::{Clients, Reading};
use super::file;
use super::sensors::Sensors;
use crate::config::MonitorConfig;
use crate::device::{GpuBackend, GpuDeviceInfo};
use crate::error::GpuMonitorError;
use crate::identity::Identities;
use crate::metrics::{
    GpuClockMetrics, GpuMemoryMetrics, GpuMetrics, GpuPcieMetrics, GpuPowerMetrics, GpuThermalMetrics,
    GpuUtilization,
};
use crate::pace::Paced;
use crate::plausible::{self, known};
use crate::source::{Opened, Source};
use crate::throttle::{GpuThrottleMetrics, ThrottleReasons};

pub fn open(info: &GpuDeviceInfo, config: &MonitorConfig) -> Opened {
    let is_it = |card: &Card| Some(&card.bus_id) == info.pci_bus_id.as_ref();
    let found = card::cards(&config.sources.sysfs).into_iter().find(is_it);
    let why = "its files are gone from /sys".to_owned();
    let card = found.ok_or(GpuMonitorError::DeviceLost { index: info.index, why })?;
    Ok(Box::new(SysfsSource {
        index: info.index,
        sensors: Sensors::find(&card.device),
        card,
        proc: config.sources.proc.clone(),
        thermal: Paced::new(Some(config.sensor_interval)),
        clients: Clients::new(Identities::of_our_ids(&config.sources.proc)),
        // All that is known of a use that the driver itself does not report.
        read: Paced::new(config.slow_interval.map(|every| every.min(config.counters_interval))),
        energy: None,
    }))
}

struct SysfsSource {
    index: u32,
    card: Card,
    sensors: Sensors,
    proc: PathBuf,
    thermal: Paced<GpuThermalMetrics>,
    clients: Clients,
    /// What `clients` found: looking through all processes takes long.
    read: Paced<Reading>,
    /// The counter of energy when it last moved, for a card that has no reading of its power.
    energy: Option<(Instant, f64)>,
}

impl Source for SysfsSource {
    fn sample(&mut self) -> Result<Box<GpuMetrics>, GpuMonitorError> {
        let device = self.card.device.clone();
        if !device.join("vendor").exists() {
            let why = "its files are gone from /sys".into();
            self.thermal.clear();
            self.read.clear();
            return Err(GpuMonitorError::DeviceLost { index: self.index, why });
        }
        let mut sample = Box::new(GpuMetrics::empty(self.index));
        // Reading a device that sleeps would wake it.
        if file::text(&device.join("power/runtime_status")).as_deref() == Some("suspended") {
            return Ok(sample);
        }
        let now = sample.timestamp;
        let clients = self.read.get(now);
        sample.utilization = utilization(&self.card, clients.and_then(|((_, busiest), _)| *busiest));
        if let Some(((processes, _), age)) = clients {
            sample.processes = Some(processes.clone());
            sample.processes_age = Some(age);
        }
        sample.memory = memory(&self.card);
        if self.thermal.is_due(now) {
            self.thermal.set(self.sensors.thermal(), now);
        }
        let thermal = self.thermal.get(Instant::now());
        sample.thermal = thermal
            .filter(|(thermal, _)| **thermal != GpuThermalMetrics::default())
            .map(|(thermal, age)| GpuThermalMetrics { age: Some(age), ..thermal.clone() });
        sample.power = self.power(now);
        sample.clocks = known(clocks(&self.card, &self.sensors));
        let link = card::link(&device);
        sample.pcie = known(GpuPcieMetrics {
            link_gen: link.generation,
            link_width: link.width,
            max_link_gen: link.max_generation,
            max_link_width: link.max_width,
            ..GpuPcieMetrics::default()
        });
        sample.throttle =
            known(GpuThrottleMetrics { reasons: reasons(&self.card), ..GpuThrottleMetrics::default() });
        Ok(sample)
    }

    fn read_slow(&mut self) {
        if self.read.is_due(Instant::now()) {
            self.read.set(self.clients.read(&self.proc, &self.card.bus_id), Instant::now());
        }
    }
}

impl SysfsSource {
    fn power(&mut self, now: Instant) -> Option<GpuPowerMetrics> {
        let energy = self.sensors.energy_joules();
        let draw = self.sensors.power_watts().or_else(|| self.power_by_energy(now, energy?));
        known(GpuPowerMetrics {
            power_draw_watts: draw,
            power_limit_watts: self.sensors.power_limit_watts(),
            power_state: None,
            energy_joules: energy,
        })
    }

    /// The mean since the last sample.
    fn power_by_energy(&mut self, now: Instant, joules: f64) -> Option<f32> {
        let (then, before) = self.energy.replace((now, joules))?;
        let seconds = now.duration_since(then).as_secs_f64();
        (joules >= before && seconds > 0.0).then(|| ((joules - before) / seconds) as f32)
    }
}

/// Intel's drivers have no file for it: the busiest engine, by the processes that this user may see.
fn utilization(card: &Card, busiest: Option<u32>) -> GpuUtilization {
    let percent = |name: &str| {
        let percent = file::number(&card.device.join(name)).and_then(|percent| u32::try_from(percent).ok());
        percent.and_then(plausible::percent)
    };
    match card.backend {
        GpuBackend::Amdgpu => GpuUtilization {
            gpu_percent: percent("gpu_busy_percent"),
            memory_percent: percent("mem_busy_percent"),
            ..GpuUtilization::default()
        },
        _ => GpuUtilization { gpu_percent: busiest, ..GpuUtilization::default() },
    }
}

fn memory(card: &Card) -> GpuMemoryMetrics {
    let total = card::vram_total(card);
    let used = match card.backend {
        GpuBackend::Amdgpu => file::number(&card.device.join("mem_info_vram_used")),
        _ => None,
    };
    let used = used.filter(|used| total.is_some_and(|total| *used <= total));
    let free = total.zip(used).map(|(total, used)| total - used);
    GpuMemoryMetrics { total, used, free, ..GpuMemoryMetrics::default() }
}

fn clocks(card: &Card, sensors: &Sensors) -> GpuClockMetrics {
    let device = &card.device;
    let mhz = |path: PathBuf| {
        let mhz = file::number(&path).and_then(|mhz| u32::try_from(mhz).ok());
        mhz.and_then(plausible::mhz)
    };
    let (graphics, memory) = match card.backend {
        GpuBackend::Amdgpu => (
            sensors.mhz("freq1_input").or_else(|| file::marked_mhz(&device.join("pp_dpm_sclk"))),
            sensors.mhz("freq2_input").or_else(|| file::marked_mhz(&device.join("pp_dpm_mclk"))),
        ),
        GpuBackend::I915 => (mhz(card.drm.join("gt_act_freq_mhz")), None),
        _ => (mhz(device.join("tile0/gt0/freq0/act_freq")), None),
    };
    GpuClockMetrics { graphics_mhz: graphics, memory_mhz: memory, ..GpuClockMetrics::default() }
}

/// Intel's drivers have a file for each reason; amdgpu has none.
fn reasons(card: &Card) -> Option<ThrottleReasons> {
    let (folder, begin) = match card.backend {
        GpuBackend::I915 => (card.drm.join("gt/gt0"), "throttle_reason_"),
        GpuBackend::Xe => (card.device.join("tile0/gt0/freq0/throttle"), "reason_"),
        _ => return None,
    };
    let holds = |name: &str| file::number(&folder.join(format!("{begin}{name}")));
    holds("pl1")?;
    let mut reasons = ThrottleReasons::default();
    for (names, reason) in [
        (&["pl1", "pl2", "pl4", "vr_tdc"][..], ThrottleReasons::POWER_CAP),
        (&["thermal", "prochot", "vr_thermalert"][..], ThrottleReasons::HARDWARE_THERMAL),
        (&["ratl"][..], ThrottleReasons::SOFTWARE_THERMAL),
    ] {
        if names.iter().any(|name| holds(name).is_some_and(|value| value != 0)) {
            reasons.0 |= reason.0;
        }
    }
    Some(reasons)
}
