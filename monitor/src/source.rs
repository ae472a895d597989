//! What a backend offers: its devices, and samples of one of them.

use std::time::Instant;

use crate::config::MonitorConfig;
use crate::device::{DeviceLink, GpuDeviceInfo};
use crate::error::GpuMonitorError;
use crate::metrics::GpuMetrics;

/// A device that is being read, by one thread at a time. Every call may hang.
pub trait Source: Send {
    /// In a box, since it is handed on several times and a copy costs more than an allocation.
    fn sample(&mut self) -> Result<Box<GpuMetrics>, GpuMonitorError>;

    /// Somebody asks for a sample now: what is read less often while it does not change is read with it.
    fn hurry(&mut self) {}

    /// Until when samples only repeat the last one, since nothing is due to be read.
    fn repeats_until(&self) -> Option<Instant> {
        None
    }

    /// Whether [`Source::read_slow`] has something to read.
    fn is_slow_due(&self) -> bool {
        false
    }

    /// Reads what takes long, if it is due. Called on the device's own thread, so nobody waits for it.
    fn read_slow(&mut self) {}
}

/// A device that can be read from now on.
pub type Opened = Result<Box<dyn Source>, GpuMonitorError>;

/// What a backend found. Indices are those of the inventory.
#[derive(Debug, Default)]
pub struct Found {
    pub devices: Vec<GpuDeviceInfo>,
    pub links: Vec<DeviceLink>,
    /// Of single devices that cannot be read.
    pub problems: Vec<GpuMonitorError>,
}

/// A way to read devices. Both functions may hang, so they run on threads of their own.
#[derive(Clone, Copy, Debug)]
pub struct Backend {
    /// Of which driver a hang or an error is reported.
    pub name: &'static str,
    /// The devices; the first one gets that index. A machine without such devices is an empty list, or
    /// [`GpuMonitorError::NoDriver`].
    pub list: fn(&MonitorConfig, u32) -> Result<Found, GpuMonitorError>,
    pub open: fn(&GpuDeviceInfo, &MonitorConfig) -> Opened,
}
