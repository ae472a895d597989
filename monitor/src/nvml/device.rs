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
/// How many sensor intervals pass between two readings of what hardly changes, of the same after some
/// readings without a change, and of the link.
const STATE_EVERY: u32 = 4;
const STEADY_STATE_EVERY: u32 = 10;
const LINK_EVERY: u32 = 50;
/// How many sensor intervals pass between two readings of memory that does not change: one takes as long as
/// four other calls.
const STEADY_MEMORY_EVERY: u32 = 2;
/// How many process intervals pass between two lists of processes that do not change, and between two
/// readings of their utilisation.
const STEADY_LIST_EVERY: u32 = 2;
const USED_EVERY: u32 = 12;

/// What is repeated at most before something is read.
const IDLE_MAX: Duration = Duration::from_secs(1);
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
    let sensor = config.sensor_interval;
    let list = config.process_interval;
    Ok(Box::new(NvmlSource {
        nvml,
        info: info.clone(),
        device,
        opened: Instant::now(),
        fixed,
        sm_mhz: Adaptive::new(Duration::ZERO, config.clock_interval),
        reasons: Adaptive::new(Duration::ZERO, sensor),
        memory: Adaptive::new(config.load_interval, sensor * STEADY_MEMORY_EVERY),
        load: Paced::new(Some(config.load_interval)),
        state: Adaptive::new(sensor * STATE_EVERY, sensor * STEADY_STATE_EVERY),
        thermal: Paced::new(Some(sensor)),
        processes: Processes::new(Identities::new(&config.sources.proc)),
        listed: config.processes.then(|| Adaptive::new(list, list * STEADY_LIST_EVERY)),
        used: Paced::new(config.slow_interval.map(|_| list * USED_EVERY)),
        link: Paced::new(Some(sensor * LINK_EVERY)),
        throughput: Paced::new(config.slow_interval),
        lowered: Paced::new(config.slow_interval.map(|every| every.max(config.counters_interval))),
        counters: Paced::new(config.slow_interval.map(|_| config.counters_interval)),
        energy: Paced::new(Some(config.energy_interval)),
        events: None,
        xids: (0, None),
        failure: None,
        last: None,
        next_reading: Instant::now(),
        slow_due: Instant::now(),
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
    state: Adaptive<EngineState>,
    thermal: Paced<GpuThermalMetrics>,
    processes: Processes,
    /// `None`: they are never listed.
    listed: Option<Adaptive<Option<Vec<GpuProcess>>>>,
    /// When the processes' utilisation was last asked for.
    used: Paced<()>,
    link: Paced<(Option<u32>, Option<u32>)>,
    /// Transmitted and received, bytes a second.
    throughput: Paced<(Option<u64>, Option<u64>)>,
    /// For how long clocks were lowered for power and for heat, in ns.
    lowered: Paced<(Option<u64>, Option<u64>)>,
    counters: Paced<Counters>,
    energy: Paced<Option<f64>>,
    events: Option<EventSet<'static>>,
    /// How many, and the last one.
    xids: (u64, Option<u64>),
    /// The first call of this sample that failed for no ordinary reason.
    failure: Option<GpuMonitorError>,
    /// The sample of the last reading, which is repeated until the next one is due: most samples of a steady
    /// device touch nothing else.
    last: Option<Box<GpuMetrics>>,
    next_reading: Instant,
    /// When [`Source::read_slow`] has something to read.
    slow_due: Instant,
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
#[derive(Debug, Default, PartialEq)]
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
    fn sample(&mut self) -> Result<Box<GpuMetrics>, GpuMonitorError> {
        let now = Instant::now();
        if let Some(last) = &self.last
            && now < self.next_reading
        {
            return Ok(last.repeated(now));
        }
        self.last = None;
        let device = self.device()?;
        self.failure = None;
        let mut sample = Box::new(GpuMetrics::empty(self.info.index));
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
        self.next_reading = self.due(now);
        self.last = Some(sample.clone());
        Ok(sample)
    }

    fn hurry(&mut self) {
        self.last = None;
        self.sm_mhz.hurry();
        self.reasons.hurry();
        self.memory.hurry();
    }

    fn repeats_until(&self) -> Option<Instant> {
        self.last.as_ref().map(|_| self.next_reading)
    }

    fn is_slow_due(&self) -> bool {
        self.device.is_some() && Instant::now() >= self.slow_due
    }

    fn read_slow(&mut self) {
        let (Some(device), now) = (self.device.clone(), Instant::now()) else { return };
        // The next sample has what is read here.
        self.last = None;
        if self.throughput.is_due(now) {
            // The driver counts for 20 ms in each call.
            let rate = |counter| {
                let kilobytes: Option<u32> = device.pcie_throughput(counter).ok();
                kilobytes.map(|rate| u64::from(rate) * 1000)
            };
            let rates = (rate(PcieUtilCounter::Send), rate(PcieUtilCounter::Receive));
            self.throughput.set(rates, Instant::now());
        }
        if self.lowered.is_due(now) {
            let violation = |policy| device.violation_status(policy).ok().map(|time| time.violation_time);
            let lowered = (violation(PerformancePolicy::Power), violation(PerformancePolicy::Thermal));
            self.lowered.set(lowered, now);
        }
        if self.counters.is_due(now) {
            self.read_events(&device);
            let counters = counters(&device);
            self.counters.set(counters, now);
        }
        let dues = [self.throughput.due(now), self.lowered.due(now), self.counters.due(now)];
        self.slow_due = dues.into_iter().min().unwrap_or(now);
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

    /// When the next value is due, but for what takes long.
    fn due(&self, now: Instant) -> Instant {
        let dues = [
            self.sm_mhz.due(now),
            self.reasons.due(now),
            self.memory.due(now),
            self.load.due(now),
            self.state.due(now),
            self.thermal.due(now),
            self.link.due(now),
            self.energy.due(now),
        ];
        let listed = self.listed.as_ref().map(|listed| listed.due(now));
        dues.into_iter().chain(listed).fold(now + IDLE_MAX, Instant::min)
    }

    /// Nothing that was read of a lost device holds any more.
    fn forget(&mut self) {
        self.last = None;
        self.slow_due = Instant::now();
        self.device = None;
        self.opened = Instant::now();
        self.events = None;
        self.sm_mhz.clear();
        self.reasons.clear();
        self.memory.clear();
        self.load.clear();
        self.state.clear();
        self.thermal.clear();
        if let Some(listed) = &mut self.listed {
            listed.clear();
        }
        self.link.clear();
        self.throughput.clear();
        self.lowered.clear();
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
        if self.sm_mhz.is_nearly_due(now) {
            let mhz = self.mhz(device, Clock::SM);
            if self.sm_mhz.get(now).is_none_or(|(last, _)| *last != mhz) {
                self.reasons.hurry();
                self.state.hurry();
            }
            self.sm_mhz.set(mhz, now);
        }
        if self.reasons.is_nearly_due(now) {
            let reasons = self.noted("nvmlDeviceGetCurrentClocksEventReasons", raw::clock_reasons(device));
            self.reasons.set(reasons, now);
        }
    }

    fn read_memory(&mut self, device: &Device<'_>, now: Instant) {
        if self.memory.is_nearly_due(now) {
            let memory =
                self.noted("nvmlDeviceGetMemoryInfo_v2", sensors::memory(device)).unwrap_or_default();
            // A process that comes or goes changes it.
            if self.memory.get(now).is_none_or(|(last, _)| *last != memory)
                && let Some(listed) = &mut self.listed
            {
                listed.stir();
            }
            self.memory.set(memory, now);
        }
    }

    fn read_load(&mut self, device: &Device<'_>, now: Instant) {
        if !self.load.is_nearly_due(now) {
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
        self.load.set(load, now);
    }

    fn read_sensors(&mut self, device: &Device<'_>, now: Instant) {
        if self.energy.is_due(now) {
            let energy = device.total_energy_consumption().ok();
            self.energy.set(energy.map(|millijoules| millijoules as f64 / 1e3), now);
        }
        if self.state.is_nearly_due(now) {
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
            self.state.set(state, now);
        }
        if self.thermal.is_nearly_due(now) {
            let celsius = self.noted("nvmlDeviceGetTemperature", device.temperature(TemperatureSensor::Gpu));
            let thermal = GpuThermalMetrics {
                temperature_celsius: celsius.and_then(plausible::celsius),
                temperature_threshold_shutdown: self.fixed.shutdown,
                temperature_threshold_slowdown: self.fixed.slowdown,
                memory_temperature_celsius: sensors::memory_temperature(device),
                fan_speed_percent: sensors::fan(device, self.fixed.fans),
                age: None,
            };
            self.thermal.set(thermal, now);
        }
        if self.link.is_nearly_due(now) {
            let link = (
                device.current_pcie_link_gen().ok().and_then(plausible::generation),
                device.current_pcie_link_width().ok().and_then(plausible::lanes),
            );
            self.link.set(link, now);
        }
        if let Some(listed) = &mut self.listed
            && listed.is_nearly_due(now)
        {
            let processes = self.processes.read(device, &mut self.used, now).ok();
            listed.set(processes, now);
        }
    }

    /// Adds what was read at its own pace, with its age.
    fn add_paced(&self, sample: &mut GpuMetrics) {
        let now = sample.timestamp;
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
        let listed = self.listed.as_ref().and_then(|listed| listed.get(now));
        if let Some((Some(processes), age)) = listed {
            sample.processes = Some(processes.clone());
            sample.processes_age = Some(age);
        }
        let lowered = self.lowered.get(now).map_or((None, None), |(lowered, _)| *lowered);
        sample.throttle = known(GpuThrottleMetrics {
            reasons: self.reasons.get(now).and_then(|(reasons, _)| reasons.map(ThrottleReasons)),
            power_ns: lowered.0,
            thermal_ns: lowered.1,
        });
        let counters = self.counters.get(now).map(|(counters, _)| counters);
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

fn counters(device: &Device<'_>) -> Counters {
    let ecc = |kind| device.total_ecc_errors(kind, EccCounter::Volatile).ok();
    let rows = raw::remapped_rows(device).ok();
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
        replays: device.pcie_replay_counter().ok().map(u64::from),
    }
}

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
