//! Samples of one of NVIDIA's devices.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, PcieUtilCounter, PerformancePolicy, TemperatureSensor,
    TemperatureThreshold,
};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::UtilizationInfo;
use nvml_wrapper::{Device, EventSet, Nvml};

use super::processes::Processes;
use super::{failure, library, raw, sensors};
use crate::config::MonitorConfig;
use crate::device::GpuDeviceInfo;
use crate::error::GpuMonitorError;
use crate::identity::Identities;
use crate::metrics::{
    GpuClockMetrics, GpuErrorMetrics, GpuMemoryMetrics, GpuMetrics, GpuPcieMetrics, GpuPowerMetrics,
    GpuThermalMetrics, GpuUtilization,
};
use crate::pace::{Adaptive, Paced};
use crate::plausible::{self, known};
use crate::process::GpuProcess;
use crate::source::{Opened, Source};
use crate::throttle::{GpuThrottleMetrics, ThrottleReasons};

// What calls take on an H100 (`scripts/bench-nvml-calls`), all of it processor time: the energy counter
// 3 ms, the processes' utilisation 2.7 ms, each counter of lowered clocks 0.9 ms, a list of processes 0.03
// to 0.1 ms, the link's width 0.1 ms, memory 0.04 ms, any other call some 10 µs. The driver averages power
// and utilisation over 0.17 to 1 s.
/// How many sensor intervals pass between two readings of what hardly changes, and of the link.
const STATE_EVERY: u32 = 4;
const LINK_EVERY: u32 = 50;
/// How seldom a clock that does not change is read: a reading is a tenth of a sample's cost.
const STEADY_CLOCK: Duration = Duration::from_millis(200);
/// How many sensor intervals pass between two readings of memory that does not change: one takes as long as
/// four other calls.
const STEADY_MEMORY_EVERY: u32 = 2;
/// How many process intervals pass between two readings of the processes' utilisation.
const USED_EVERY: u32 = 8;

/// Between two attempts to get a lost device back.
const REOPEN_EVERY: Duration = Duration::from_secs(1);

pub fn open(info: &GpuDeviceInfo, config: &MonitorConfig) -> Opened {
    let nvml = library::load(&config.sources)?;
    let device = match handle(nvml, info) {
        Ok(device) => Some(Arc::new(device)),
        // It may come back.
        Err(GpuMonitorError::DeviceLost { .. }) => None,
        Err(error) => return Err(error),
    };
    let fixed = device.as_ref().map(|device| Fixed::read(device)).unwrap_or_default();
    let sensor = Some(config.sensor_interval);
    Ok(Box::new(NvmlSource {
        nvml,
        info: info.clone(),
        device,
        opened: Instant::now(),
        fixed,
        sm_mhz: Adaptive::new(Duration::ZERO, STEADY_CLOCK),
        reasons: Adaptive::new(Duration::ZERO, config.sensor_interval),
        memory: Adaptive::new(config.load_interval, config.sensor_interval * STEADY_MEMORY_EVERY),
        load: Paced::new(Some(config.load_interval)),
        state: Paced::new(sensor.map(|every| every * STATE_EVERY)),
        thermal: Paced::new(sensor),
        processes: Processes::new(Identities::new(&config.sources.proc)),
        listed: Paced::new(config.processes.then_some(config.process_interval)),
        used: Paced::new(config.slow_interval.map(|_| config.process_interval * USED_EVERY)),
        link: Paced::new(sensor.map(|every| every * LINK_EVERY)),
        throughput: Paced::new(config.slow_interval),
        counters: Paced::new(config.slow_interval.map(|every| every.max(config.counters_interval))),
        energy: Paced::new(Some(config.energy_interval)),
        events: None,
        xids: (0, None),
        failure: None,
    }))
}

/// NVML's devices are the first of the inventory, so both count alike. The UUID is asked first: after a loss
/// numbers may have moved.
fn handle(nvml: &'static Nvml, info: &GpuDeviceInfo) -> Result<Device<'static>, GpuMonitorError> {
    let by_uuid = info.uuid.clone().map(|uuid| nvml.device_by_uuid(uuid));
    let device = match by_uuid {
        Some(Ok(device)) => Ok(device),
        Some(Err(error)) if failure::is_loss(&error) => Err(error),
        _ => nvml.device_by_index(info.index),
    };
    device.map_err(|error| failure::explain("nvmlDeviceGetHandleByIndex_v2", info.index, &error))
}

struct NvmlSource {
    nvml: &'static Nvml,
    info: GpuDeviceInfo,
    /// `None`: the device is lost.
    device: Option<Arc<Device<'static>>>,
    opened: Instant,
    fixed: Fixed,
    /// Read with each sample while it changes.
    sm_mhz: Adaptive<Option<u32>>,
    /// Why clocks are lowered: read with each sample while they or it change.
    reasons: Adaptive<Option<u64>>,
    memory: Adaptive<GpuMemoryMetrics>,
    load: Paced<Load>,
    state: Paced<EngineState>,
    thermal: Paced<GpuThermalMetrics>,
    processes: Processes,
    listed: Paced<Option<Vec<GpuProcess>>>,
    /// When the processes' utilisation was last asked for.
    used: Paced<()>,
    link: Paced<(Option<u32>, Option<u32>)>,
    /// Transmitted and received, bytes a second.
    throughput: Paced<(Option<u64>, Option<u64>)>,
    counters: Paced<Counters>,
    energy: Paced<Option<f64>>,
    events: Option<EventSet<'static>>,
    /// How many, and the last one.
    xids: (u64, Option<u64>),
    /// The first call of this sample that failed for no ordinary reason.
    failure: Option<GpuMonitorError>,
}

/// What is read once.
#[derive(Debug, Default)]
struct Fixed {
    power_limit_watts: Option<f32>,
    shutdown: Option<u32>,
    slowdown: Option<u32>,
    max_link: (Option<u32>, Option<u32>),
    /// A device without any is not asked for their speed again and again.
    fans: u32,
    has_events: bool,
}

/// How much a device is used.
#[derive(Debug, Default)]
struct Load {
    gpu_percent: Option<u32>,
    memory_percent: Option<u32>,
    power_draw_watts: Option<f32>,
    /// Why there is nothing of all that.
    failure: Option<GpuMonitorError>,
}

/// What hardly changes, or explains little.
#[derive(Debug, Default)]
struct EngineState {
    encoder_percent: Option<u32>,
    decoder_percent: Option<u32>,
    power_state: Option<u32>,
    graphics_mhz: Option<u32>,
    memory_mhz: Option<u32>,
    video_mhz: Option<u32>,
}

/// What is read now and then.
#[derive(Debug, Default)]
struct Counters {
    errors: GpuErrorMetrics,
    power_ns: Option<u64>,
    thermal_ns: Option<u64>,
    replays: Option<u64>,
}

impl Fixed {
    fn read(device: &Device<'_>) -> Fixed {
        let threshold = |of| device.temperature_threshold(of).ok().and_then(plausible::celsius);
        Fixed {
            power_limit_watts: device.enforced_power_limit().ok().and_then(plausible::watts),
            shutdown: threshold(TemperatureThreshold::Shutdown),
            slowdown: threshold(TemperatureThreshold::Slowdown),
            max_link: (
                device.max_pcie_link_gen().ok().and_then(plausible::generation),
                device.max_pcie_link_width().ok().and_then(plausible::lanes),
            ),
            fans: sensors::fans(device),
            has_events: false,
        }
    }
}

impl Source for NvmlSource {
    fn sample(&mut self) -> Result<GpuMetrics, GpuMonitorError> {
        let device = self.device()?;
        self.failure = None;
        let mut sample = GpuMetrics::empty(self.info.index);
        let now = sample.timestamp;
        self.read_clock(&device, now);
        self.read_memory(&device, now);
        self.read_load(&device, now);
        self.read_sensors(&device, now);
        let is_unreadable = self.load.get(now).and_then(|(load, _)| load.failure.clone());
        if let Some(problem) = self.failure.take().filter(lost).or(is_unreadable) {
            if lost(&problem) {
                self.forget();
            }
            return Err(problem);
        }
        self.add_paced(&mut sample);
        Ok(sample)
    }

    fn hurry(&mut self) {
        self.sm_mhz.hurry();
        self.reasons.hurry();
        self.memory.hurry();
    }

    fn is_slow_due(&self) -> bool {
        let now = Instant::now();
        self.device.is_some() && (self.throughput.is_due(now) || self.counters.is_due(now))
    }

    fn read_slow(&mut self) {
        let (Some(device), now) = (self.device.clone(), Instant::now()) else { return };
        if self.throughput.is_due(now) {
            // The driver counts for 20 ms in each call.
            let rate = |counter| {
                let kilobytes: Option<u32> = device.pcie_throughput(counter).ok();
                kilobytes.map(|rate| u64::from(rate) * 1000)
            };
            self.throughput.set((rate(PcieUtilCounter::Send), rate(PcieUtilCounter::Receive)));
        }
        if self.counters.is_due(now) {
            self.read_events(&device);
            let counters = self.counters(&device);
            self.counters.set(counters);
        }
    }
}

impl NvmlSource {
    /// The handle; of a lost device a new one, now and then.
    fn device(&mut self) -> Result<Arc<Device<'static>>, GpuMonitorError> {
        if let Some(device) = &self.device {
            return Ok(Arc::clone(device));
        }
        if self.opened.elapsed() < REOPEN_EVERY {
            let (index, why) = (self.info.index, "it did not answer the last call".into());
            return Err(GpuMonitorError::DeviceLost { index, why });
        }
        self.opened = Instant::now();
        let device = Arc::new(handle(self.nvml, &self.info)?);
        self.fixed = Fixed::read(&device);
        self.device = Some(Arc::clone(&device));
        Ok(device)
    }

    /// Nothing that was read of a lost device holds any more.
    fn forget(&mut self) {
        self.device = None;
        self.opened = Instant::now();
        self.events = None;
        self.sm_mhz.clear();
        self.reasons.clear();
        self.memory.clear();
        self.load.clear();
        self.state.clear();
        self.thermal.clear();
        self.listed.clear();
        self.link.clear();
        self.throughput.clear();
        self.counters.clear();
        self.energy.clear();
    }

    /// The value; the first failure that is no ordinary absence is kept.
    fn noted<T>(&mut self, call: &str, result: Result<T, NvmlError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                if self.failure.is_none() && !failure::is_absence(&error) || failure::is_loss(&error) {
                    self.failure = Some(failure::explain(call, self.info.index, &error));
                }
                None
            }
        }
    }

    fn mhz(&mut self, device: &Device<'_>, clock: Clock) -> Option<u32> {
        self.noted("nvmlDeviceGetClockInfo", device.clock_info(clock)).and_then(plausible::mhz)
    }

    fn read_clock(&mut self, device: &Device<'_>, now: Instant) {
        if self.sm_mhz.is_due(now) {
            let mhz = self.mhz(device, Clock::SM);
            if self.sm_mhz.get(now).is_none_or(|(last, _)| *last != mhz) {
                self.reasons.hurry();
            }
            self.sm_mhz.set(mhz);
        }
        if self.reasons.is_due(now) {
            let reasons = self.noted("nvmlDeviceGetCurrentClocksEventReasons", raw::clock_reasons(device));
            self.reasons.set(reasons);
        }
    }

    fn read_memory(&mut self, device: &Device<'_>, now: Instant) {
        if self.memory.is_due(now) {
            let memory = self.noted("nvmlDeviceGetMemoryInfo_v2", sensors::memory(device));
            self.memory.set(memory.unwrap_or_default());
        }
    }

    fn read_load(&mut self, device: &Device<'_>, now: Instant) {
        if !self.load.is_due(now) {
            return;
        }
        let rates = self.noted("nvmlDeviceGetUtilizationRates", device.utilization_rates());
        let power = self.noted("nvmlDeviceGetPowerUsage", device.power_usage());
        let mut load = Load {
            gpu_percent: rates.as_ref().and_then(|rates| plausible::percent(rates.gpu)),
            memory_percent: rates.as_ref().and_then(|rates| plausible::percent(rates.memory)),
            power_draw_watts: power.and_then(plausible::watts),
            failure: None,
        };
        let has_memory = self.memory.get(now).is_some_and(|(memory, _)| memory.total.is_some());
        if (load.gpu_percent, load.memory_percent) == (None, None) && !has_memory {
            load.failure = self.failure.clone();
        }
        self.load.set(load);
    }

    fn read_sensors(&mut self, device: &Device<'_>, now: Instant) {
        if self.energy.is_due(now) {
            let energy = device.total_energy_consumption().ok();
            self.energy.set(energy.map(|millijoules| millijoules as f64 / 1e3));
        }
        if self.state.is_due(now) {
            let used = |info: Result<UtilizationInfo, _>| {
                info.ok().and_then(|info| plausible::percent(info.utilization))
            };
            let power_state = device.performance_state().ok().map(|state| state.as_c());
            let state = EngineState {
                encoder_percent: used(device.encoder_utilization()),
                decoder_percent: used(device.decoder_utilization()),
                power_state: power_state.filter(|state| *state <= 15),
                graphics_mhz: self.mhz(device, Clock::Graphics),
                memory_mhz: self.mhz(device, Clock::Memory),
                video_mhz: self.mhz(device, Clock::Video),
            };
            self.state.set(state);
        }
        if self.thermal.is_due(now) {
            let celsius = self.noted("nvmlDeviceGetTemperature", device.temperature(TemperatureSensor::Gpu));
            self.thermal.set(GpuThermalMetrics {
                temperature_celsius: celsius.and_then(plausible::celsius),
                temperature_threshold_shutdown: self.fixed.shutdown,
                temperature_threshold_slowdown: self.fixed.slowdown,
                memory_temperature_celsius: sensors::memory_temperature(device),
                fan_speed_percent: sensors::fan(device, self.fixed.fans),
                age: None,
            });
        }
        if self.link.is_due(now) {
            self.link.set((
                device.current_pcie_link_gen().ok().and_then(plausible::generation),
                device.current_pcie_link_width().ok().and_then(plausible::lanes),
            ));
        }
        if self.listed.is_due(now) {
            let reads_use = self.used.is_due(now);
            if reads_use {
                self.used.set(());
            }
            let processes = self.processes.read(device, reads_use).ok();
            self.listed.set(processes);
        }
    }

    /// Adds what was read at its own pace, with its age.
    fn add_paced(&self, sample: &mut GpuMetrics) {
        let now = Instant::now();
        let load = self.load.get(now).map(|(load, _)| load);
        let state = self.state.get(now).map(|(state, _)| state);
        sample.utilization = GpuUtilization {
            gpu_percent: load.and_then(|load| load.gpu_percent),
            memory_percent: load.and_then(|load| load.memory_percent),
            encoder_percent: state.and_then(|state| state.encoder_percent),
            decoder_percent: state.and_then(|state| state.decoder_percent),
        };
        sample.memory = self.memory.get(now).map_or_else(GpuMemoryMetrics::default, |(memory, age)| {
            GpuMemoryMetrics { age: memory.total.map(|_| age), ..memory.clone() }
        });
        sample.power = known(GpuPowerMetrics {
            power_draw_watts: load.and_then(|load| load.power_draw_watts),
            power_limit_watts: self.fixed.power_limit_watts,
            power_state: state.and_then(|state| state.power_state),
            energy_joules: self.energy.get(now).and_then(|(joules, _)| *joules),
        });
        sample.clocks = known(GpuClockMetrics {
            graphics_mhz: state.and_then(|state| state.graphics_mhz),
            memory_mhz: state.and_then(|state| state.memory_mhz),
            video_mhz: state.and_then(|state| state.video_mhz),
            sm_mhz: self.sm_mhz.get(now).and_then(|(mhz, _)| *mhz),
        });
        sample.thermal = self.thermal.get(now).and_then(|(thermal, age)| {
            known(thermal.clone()).map(|thermal| GpuThermalMetrics { age: Some(age), ..thermal })
        });
        if let Some((Some(processes), age)) = self.listed.get(now) {
            sample.processes = Some(processes.clone());
            sample.processes_age = Some(age);
        }
        let counters = self.counters.get(now).map(|(counters, _)| counters);
        sample.throttle = known(GpuThrottleMetrics {
            reasons: self.reasons.get(now).and_then(|(reasons, _)| reasons.map(ThrottleReasons)),
            power_ns: counters.and_then(|counters| counters.power_ns),
            thermal_ns: counters.and_then(|counters| counters.thermal_ns),
        });
        let link = self.link.get(now).map_or((None, None), |(link, _)| *link);
        let throughput = self.throughput.get(now).filter(|(rates, _)| **rates != (None, None));
        sample.pcie = known(GpuPcieMetrics {
            tx_bytes_per_sec: throughput.and_then(|(rates, _)| rates.0),
            rx_bytes_per_sec: throughput.and_then(|(rates, _)| rates.1),
            throughput_age: throughput.map(|(_, age)| age),
            link_gen: link.0,
            link_width: link.1,
            max_link_gen: self.fixed.max_link.0,
            max_link_width: self.fixed.max_link.1,
            replays: counters.and_then(|counters| counters.replays),
        });
        sample.errors = counters.and_then(|counters| {
            let (count, last) = self.xids;
            let xid_count = self.fixed.has_events.then_some(count);
            known(GpuErrorMetrics { xid_count, xid_last: last, ..counters.errors.clone() })
        });
    }

    fn counters(&self, device: &Device<'_>) -> Counters {
        let ecc = |kind| device.total_ecc_errors(kind, EccCounter::Volatile).ok();
        let rows = raw::remapped_rows(device).ok();
        let violation = |policy| device.violation_status(policy).ok().map(|time| time.violation_time);
        Counters {
            errors: GpuErrorMetrics {
                ecc_corrected: ecc(MemoryError::Corrected),
                ecc_uncorrected: ecc(MemoryError::Uncorrected),
                xid_count: None,
                xid_last: None,
                remapped_rows_corrected: rows.map(|rows| rows.corrected),
                remapped_rows_uncorrected: rows.map(|rows| rows.uncorrected),
                remapping_failed: rows.map(|rows| rows.has_failed),
            },
            power_ns: violation(PerformancePolicy::Power),
            thermal_ns: violation(PerformancePolicy::Thermal),
            replays: device.pcie_replay_counter().ok().map(u64::from),
        }
    }

    /// Takes the XID errors that came since the last time, and registers for them at first.
    fn read_events(&mut self, device: &Device<'static>) {
        // The wrapper calls this one without asking whether it is there.
        if self.nvml.lib().nvmlEventSetFree.is_err() {
            return;
        }
        if self.events.is_none() {
            let set = self.nvml.create_event_set().ok();
            let set = set.and_then(|set| device.register_events(EventTypes::CRITICAL_XID_ERROR, set).ok());
            self.fixed.has_events = set.is_some();
            self.events = set;
        }
        let Some(events) = &self.events else { return };
        for _ in 0..EVENTS_MAX {
            let Ok(event) = events.wait(0) else { break };
            if event.event_type.contains(EventTypes::CRITICAL_XID_ERROR) {
                self.xids.0 += 1;
                self.xids.1 = event.event_data.map(|data| xid(&data)).or(self.xids.1);
            }
        }
    }
}

/// How many events are taken at a time: a device that has more has them next time.
const EVENTS_MAX: usize = 64;

fn lost(problem: &GpuMonitorError) -> bool {
    matches!(problem, GpuMonitorError::DeviceLost { .. })
}

fn xid(error: &nvml_wrapper::enums::event::XidError) -> u64 {
    use nvml_wrapper::enums::event::XidError;
    match error {
        XidError::Value(code) => *code,
        // NVML's number for one that it does not know.
        XidError::Unknown => 999,
    }
}
