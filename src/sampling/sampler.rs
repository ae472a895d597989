//! The sampler of a session: finds the devices that programs use among those of the machine, and has each
//! read at an interval.
//!
//! A thread of its own does all that can take long: drivers are loaded when the first device is used, and
//! listing devices takes a while. A session that uses no device loads no driver.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use gputrace_collector::batch::{DeviceIdentity, DeviceMetric, DeviceSamples};
use gputrace_collector::label;
use gputrace_collector::session::DeviceSampler;
use gputrace_collector::stream::monotonic_ns;
use gputrace_monitor::{
    GpuMonitor, GpuMonitorError, GpuMonitorHandle, Inventory, MonitorConfig, NVML_VARIABLE,
};

use crate::sampling::reading::{self, DeviceLimits};
use crate::sampling::request::DeviceMetricsRequest;
use crate::sampling::shared::Untaken;

/// The most that the session's end waits for the last samples, or for a driver that is being loaded.
const END_LIMIT: Duration = Duration::from_millis(500);
/// Between two readings of the energy counter, each of which takes a driver 3 ms of processor time. It is
/// also read when the sampling of a device begins and ends.
const ENERGY_INTERVAL: Duration = Duration::from_secs(10);
/// PCIe throughput, and the counters of errors and of lowered clocks, where they are asked for.
const SLOW_INTERVAL: Duration = Duration::from_secs(1);
const COUNTERS_INTERVAL: Duration = Duration::from_secs(10);
/// The multiprocessors' clock while it does not change: it explains what was slow.
const CLOCK_INTERVAL: Duration = Duration::from_millis(200);

enum Command {
    Begin(DeviceIdentity),
    End(DeviceIdentity),
    Change(DeviceMetricsRequest),
    Finish,
}

/// Changes a running session's sampling.
#[derive(Clone, Debug)]
pub struct SamplerHandle(Sender<Command>);

impl SamplerHandle {
    /// From now on devices are sampled as asked, or not. Does not wait. False if the session has ended.
    pub fn change(&self, request: DeviceMetricsRequest) -> bool {
        self.0.send(Command::Change(request)).is_ok()
    }
}

/// See [`DeviceSampler`]. Its thread is started with the session, and sleeps until a device is used.
pub struct Sampler {
    commands: Sender<Command>,
    untaken: Arc<Untaken>,
    /// Closed by the thread when it has ended.
    ended: Receiver<()>,
}

impl Sampler {
    /// `None` if the system refuses a thread: then nothing is sampled, and the session records all the same.
    pub fn start(request: DeviceMetricsRequest) -> Option<(Sampler, SamplerHandle)> {
        let (commands, receiver) = mpsc::channel();
        let (ends, ended) = mpsc::channel();
        let untaken = Arc::new(Untaken::default());
        let shared = Arc::clone(&untaken);
        let work = move || {
            let _ends: Sender<()> = ends;
            // Dropped before `_ends`: who hears of the end can send no more commands.
            let receiver = receiver;
            Work { request, in_use: BTreeMap::new(), machine: None, untaken: shared }.run(&receiver);
        };
        thread::Builder::new().name("gputrace-sampler".into()).spawn(work).ok()?;
        let handle = SamplerHandle(commands.clone());
        Some((Sampler { commands, untaken, ended }, handle))
    }

    fn send(&self, command: Command) {
        // A thread that panicked takes no more samples.
        let _ = self.commands.send(command);
    }
}

impl DeviceSampler for Sampler {
    fn begin(&mut self, device: DeviceIdentity, is_simulated: bool) {
        // No driver knows a simulated device, but for the simulated NVML of tests.
        if !is_simulated || std::env::var_os(NVML_VARIABLE).is_some() {
            self.send(Command::Begin(device));
        }
    }

    fn end(&mut self, device: DeviceIdentity) {
        self.send(Command::End(device));
    }

    fn take(&mut self) -> Vec<DeviceSamples> {
        self.untaken.take()
    }

    fn finish(self: Box<Self>) -> Vec<DeviceSamples> {
        self.send(Command::Finish);
        // Closed once the thread has ended. One that a driver holds is left behind.
        let _ = self.ended.recv_timeout(END_LIMIT);
        self.untaken.take()
    }
}

/// What reads a device.
struct DeviceReader {
    handle: GpuMonitorHandle,
    monitor: GpuMonitor,
    interval_ns: u64,
}

/// What the sampler's thread owns.
struct Work {
    request: DeviceMetricsRequest,
    /// The devices in use, and what reads them: `None` while sampling is off, or if nothing can.
    in_use: BTreeMap<DeviceIdentity, Option<DeviceReader>>,
    /// The devices of the machine, once one is needed.
    machine: Option<Inventory>,
    untaken: Arc<Untaken>,
}

impl Work {
    fn run(mut self, commands: &Receiver<Command>) {
        for command in commands {
            match command {
                Command::Begin(device) => {
                    let reader = self.start(device);
                    self.in_use.insert(device, reader);
                }
                Command::Finish => break,
                Command::End(device) => self.end(device),
                Command::Change(request) => {
                    self.request = request;
                    for device in self.in_use.keys().copied().collect::<Vec<_>>() {
                        self.end(device);
                        let reader = self.start(device);
                        self.in_use.insert(device, reader);
                    }
                }
            }
        }
        for device in self.in_use.keys().copied().collect::<Vec<_>>() {
            self.end(device);
        }
    }

    /// Ends the sampling of a device with a sample that has its energy counter, which a new reader reads
    /// first.
    fn end(&mut self, device: DeviceIdentity) {
        let Some(Some(DeviceReader { handle, monitor, interval_ns })) = self.in_use.remove(&device) else {
            return;
        };
        handle.stop();
        let index = monitor.device_info().index;
        drop(monitor);
        let config = MonitorConfig { slow_interval: None, ..self.config() };
        let last = self.machine.as_ref().and_then(|machine| machine.monitor(index, &config).ok());
        if let Some(Ok(metrics)) = last.map(|monitor| monitor.collect()) {
            self.untaken.add(
                device,
                interval_ns,
                Some(reading::sample(&metrics, monotonic_ns())),
                String::new(),
            );
        }
    }

    fn config(&self) -> MonitorConfig {
        MonitorConfig {
            background_collection: false,
            history_size: 0,
            slow_interval: self.request.slow.then_some(SLOW_INTERVAL),
            counters_interval: COUNTERS_INTERVAL,
            load_interval: self.request.interval.unwrap_or_default(),
            clock_interval: CLOCK_INTERVAL,
            energy_interval: ENERGY_INTERVAL,
            processes: false,
            ..MonitorConfig::default()
        }
    }

    /// Begins to sample a device. A device that cannot be read is reported in the trace.
    fn start(&mut self, device: DeviceIdentity) -> Option<DeviceReader> {
        let interval = self.request.interval?;
        let interval_ns = interval.as_nanos() as u64;
        let monitor = match self.open(device) {
            Ok(monitor) => monitor,
            Err(problem) => {
                self.untaken.add(device, interval_ns, None, problem.to_string());
                return None;
            }
        };
        let untaken = Arc::clone(&self.untaken);
        let limits = DeviceLimits::of(monitor.device_info());
        let last_energy = Mutex::new(None);
        let handle = monitor.start_background(interval, move |metrics| {
            let problem = metrics.problem.as_ref().map(ToString::to_string).unwrap_or_default();
            let mut sample = limits.beside(reading::sample(&metrics, monotonic_ns()));
            // The reading of an earlier sample says nothing of this one's time.
            let energy = sample.get(DeviceMetric::Energy);
            let mut last_energy = last_energy.lock().unwrap_or_else(PoisonError::into_inner);
            if energy.is_some() && energy == *last_energy {
                sample = sample.with(DeviceMetric::Energy, None);
            } else {
                *last_energy = energy;
            }
            untaken.add(device, interval_ns, Some(sample), problem);
        });
        Some(DeviceReader { handle, monitor, interval_ns })
    }

    fn open(&mut self, device: DeviceIdentity) -> Result<GpuMonitor, GpuMonitorError> {
        let config = self.config();
        let machine = self.machine.get_or_insert_with(|| Inventory::read(&config));
        let uuid = label::uuid(device.uuid);
        let has_uuid = |of: &Option<String>| {
            of.as_ref().is_some_and(|of| !uuid.is_empty() && of.eq_ignore_ascii_case(&format!("GPU-{uuid}")))
        };
        let bus_id = device.pci_bus_id();
        let by_uuid = machine.devices.iter().find(|known| has_uuid(&known.uuid));
        // A part of a device (MIG) has a UUID of its own.
        let found = by_uuid
            .or_else(|| machine.devices.iter().find(|known| known.pci_bus_id.as_ref() == Some(&bus_id)));
        match found {
            Some(found) => machine.monitor(found.index, &config),
            None => Err(machine.problems.first().cloned().unwrap_or_else(|| {
                GpuMonitorError::NoDriver(format!(
                    "none of the drivers that can be read has the device at {bus_id}"
                ))
            })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a machine without the driver that is asked for, so that no device is ever read.
    #[test]
    fn session_that_ends_is_not_waited_for_and_takes_no_more_changes() {
        let request = DeviceMetricsRequest { interval: None, slow: false };
        let (mut sampler, handle) = Sampler::start(request).unwrap();
        sampler.begin(DeviceIdentity::default(), false);
        assert!(handle.change(DeviceMetricsRequest { interval: None, slow: true }));
        sampler.end(DeviceIdentity::default());
        assert!(Box::new(sampler).finish().is_empty());
        assert!(!handle.change(request), "the session has ended");
    }
}
