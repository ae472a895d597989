//! The latest sample of each device.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use gputrace_monitor::{GpuDeviceInfo, GpuMetrics};

/// Written by the devices' threads, read by whoever sends.
#[derive(Debug)]
pub struct Latest {
    devices: Vec<GpuDeviceInfo>,
    samples: Mutex<Vec<Option<GpuMetrics>>>,
}

impl Latest {
    pub fn new(devices: Vec<GpuDeviceInfo>) -> Latest {
        let samples = Mutex::new(devices.iter().map(|_| None).collect());
        Latest { devices, samples }
    }

    pub fn set(&self, sample: GpuMetrics) {
        let at = self.devices.iter().position(|device| device.index == sample.device_index);
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = at.and_then(|at| samples.get_mut(at)) {
            *slot = Some(sample);
        }
    }

    /// Each device with its sample, if there is one already. Ages of its values are as of now.
    pub fn all(&self) -> Vec<(&GpuDeviceInfo, Option<GpuMetrics>)> {
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let now = Instant::now();
        samples.iter_mut().flatten().for_each(|sample| sample.grow_older(now));
        self.devices.iter().zip(samples).collect()
    }
}
