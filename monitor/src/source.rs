//! What a backend offers: its devices, and samples of one of them.

use crate::config::MonitorConfig;
use crate::device::{DeviceLink, GpuDeviceInfo};
use crate::error::GpuMonitorError;
use crate::metrics::GpuMetrics;

/// A device that is being read. It lives on its worker's thread, and every call may hang.
pub trait Source {
    fn sample(&mut self) -> Result<GpuMetrics, GpuMonitorError>;

    /// Reads what takes long, if it is due. Called once a sample was delivered, so nobody waits for it.
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
