//! One device that is being read.

use std::fmt;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::background::{GpuMonitorHandle, InUse, ended};
use crate::config::MonitorConfig;
use crate::device::GpuDeviceInfo;
use crate::error::GpuMonitorError;
use crate::history::History;
use crate::inventory::Inventory;
use crate::metrics::GpuMetrics;
use crate::rounds;
use crate::source::Backend;
use crate::subscription::{Recipient, Wanted};
use crate::worker::{self, Command, Seat, Shared};

/// Reads one device. Can be shared between threads.
pub struct GpuMonitor {
    device: GpuDeviceInfo,
    config: MonitorConfig,
    used: Arc<InUse>,
    shared: Arc<Shared>,
    /// What fills the history.
    _background: Option<GpuMonitorHandle>,
}

impl GpuMonitor {
    /// Begins to read that device with the default configuration: ten samples a second go to the history.
    pub fn new(device_index: u32) -> Result<GpuMonitor, GpuMonitorError> {
        GpuMonitor::with_config(device_index, &MonitorConfig::default())
    }

    /// To read several devices, [`Inventory::monitor`] saves listing them each time.
    pub fn with_config(device_index: u32, config: &MonitorConfig) -> Result<GpuMonitor, GpuMonitorError> {
        Inventory::read(config).monitor(device_index, config)
    }

    pub(crate) fn start(
        backend: Backend,
        device: &GpuDeviceInfo,
        config: &MonitorConfig,
    ) -> Result<GpuMonitor, GpuMonitorError> {
        let shared = Shared::new(device.index, config.history_size, !config.background_collection);
        let shared = Arc::new(shared);
        let (commands, receiver) = mpsc::channel();
        let (opened, answer) = mpsc::sync_channel(1);
        let (its_device, its_config, its_shared) = (device.clone(), config.clone(), Arc::clone(&shared));
        let work = move || match its_shared.busy(|| (backend.open)(&its_device, &its_config)) {
            Ok(source) => {
                let seat = Arc::new(Seat::new(source, its_shared));
                let _ = opened.send(Ok(Arc::clone(&seat)));
                worker::run(&seat, &receiver, rounds::notify);
            }
            Err(error) => {
                let _ = opened.send(Err(error));
            }
        };
        let thread = thread::Builder::new().name(format!("gpu-{}", device.index)).spawn(work);
        thread.map_err(|error| GpuMonitorError::NoThread(error.to_string()))?;
        let seat = answer.recv_timeout(config.start_limit).unwrap_or_else(|_| {
            let subject = format!("device {}", device.index);
            Err(GpuMonitorError::NoAnswer { subject, waited: config.start_limit })
        })?;
        rounds::join(&seat, commands.clone())?;
        let used = Arc::new(InUse { seat, commands });
        let background = config.background_collection.then(|| {
            let keeps = Arc::clone(&shared);
            let recipient = Recipient::new(Box::new(move |sample| keeps.keep(*sample)));
            GpuMonitorHandle::begin(&used, config.poll_interval, Wanted::All, config.answer_limit, recipient)
        });
        let config = config.clone();
        Ok(GpuMonitor { device: device.clone(), config, used, shared, _background: background })
    }

    /// What does not change about the device.
    pub fn device_info(&self) -> &GpuDeviceInfo {
        &self.device
    }

    /// Takes a sample now. Waits for a driver call that is under way, at most
    /// [`MonitorConfig::answer_limit`]; while a call hangs, this returns the error at once.
    pub fn collect(&self) -> Result<GpuMetrics, GpuMonitorError> {
        let limit = self.config.answer_limit;
        if let Some(problem) = self.shared.hang(limit) {
            return Err(problem);
        }
        let (answer, sample) = mpsc::sync_channel(1);
        self.used.commands.send(Command::Sample(answer)).map_err(|_| ended())?;
        let sample = sample.recv_timeout(limit).unwrap_or_else(|error| match error {
            RecvTimeoutError::Disconnected => Err(ended()),
            RecvTimeoutError::Timeout => {
                let subject = format!("device {}", self.device.index);
                Err(GpuMonitorError::NoAnswer { subject, waited: limit })
            }
        });
        sample.map(|sample| *sample)
    }

    /// Calls `callback` with a sample each interval (1 ms at least) until the handle is dropped. A device
    /// that cannot be read gives samples with [`GpuMetrics::problem`]. The callback runs on the thread that
    /// takes the samples, so a slow one delays them.
    pub fn start_background(
        &self,
        interval: Duration,
        callback: impl Fn(GpuMetrics) + Send + 'static,
    ) -> GpuMonitorHandle {
        self.begin(interval, Wanted::All, callback)
    }

    /// The same without samples that only repeat the last one, since nothing was to be read for them: for who
    /// looks at the latest sample now and then. While a device is steady, few are left.
    pub fn start_changes(
        &self,
        interval: Duration,
        callback: impl Fn(GpuMetrics) + Send + 'static,
    ) -> GpuMonitorHandle {
        self.begin(interval, Wanted::Changing, callback)
    }

    fn begin(
        &self,
        interval: Duration,
        wanted: Wanted,
        callback: impl Fn(GpuMetrics) + Send + 'static,
    ) -> GpuMonitorHandle {
        let (keeps_all, shared) = (self.shared.keeps_all, Arc::clone(&self.shared));
        let recipient = Recipient::new(Box::new(move |sample: Box<GpuMetrics>| {
            if keeps_all {
                shared.keep(GpuMetrics::clone(&sample));
            }
            callback(*sample);
        }));
        let limit = self.config.answer_limit;
        GpuMonitorHandle::begin(&self.used, interval, wanted, limit, recipient)
    }

    /// The samples of that long until now, oldest first, at most [`MonitorConfig::history_size`]: those of
    /// the background collection, or all that were taken if the configuration has it off.
    pub fn history(&self, duration: Duration) -> Vec<GpuMetrics> {
        self.kept().last(duration)
    }

    /// One value of each of those samples, which saves copying them. The device's thread waits meanwhile.
    pub fn history_of<T>(&self, duration: Duration, value: impl Fn(&GpuMetrics) -> T) -> Vec<T> {
        self.kept().map(duration, value)
    }

    /// The newest of those samples, however old it is.
    pub fn latest(&self) -> Option<GpuMetrics> {
        self.kept().latest().cloned()
    }

    fn kept(&self) -> MutexGuard<'_, History> {
        self.shared.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many samples fell out because an earlier one, or its callback, took longer than the interval.
    pub fn missed_samples(&self) -> u64 {
        self.shared.missed()
    }
}

impl fmt::Debug for GpuMonitor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("GpuMonitor").field("device", &self.device.index).finish_non_exhaustive()
    }
}

impl Inventory {
    /// Begins to read the device with that index.
    pub fn monitor(&self, index: u32, config: &MonitorConfig) -> Result<GpuMonitor, GpuMonitorError> {
        let at = index as usize;
        let (Some(device), Some(backend)) = (self.devices.get(at), self.backends.get(at)) else {
            let problem = self.problems.first().filter(|_| self.devices.is_empty()).cloned();
            let count = self.devices.len() as u32;
            return Err(problem.unwrap_or(GpuMonitorError::NoSuchDevice { index, count }));
        };
        GpuMonitor::start(*backend, device, config)
    }
}
