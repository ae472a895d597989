//! Which GPUs this machine has, and what they are doing now.
//!
//! [`Inventory::read`] lists all devices. A [`GpuMonitor`] reads one device: [`GpuMonitor::collect`] takes
//! one sample. Background collection takes one each interval and keeps the last ones; one thread takes those
//! of all devices, and where a driver call does not return, another thread goes on without that device, whose
//! samples report it. What a device or its driver does not report is `None`, never 0.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// Where a backend is left out, some of what they share is unused.
#![cfg_attr(not(all(feature = "nvml", feature = "rocm", feature = "intel")), allow(dead_code))]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod alarm;
mod backends;
mod background;
mod config;
mod cuda_properties;
mod device;
mod error;
mod history;
mod identity;
mod inventory;
mod metrics;
mod monitor;
#[cfg(feature = "nvml")]
mod nvml;
mod pace;
mod pci;
mod plausible;
mod process;
mod rounds;
mod source;
mod subscription;
#[cfg(any(feature = "rocm", feature = "intel"))]
mod sysfs;
mod throttle;
mod worker;

pub use background::GpuMonitorHandle;
pub use config::{MonitorConfig, NVML_VARIABLE, Sources, TraceExporter};
pub use cuda_properties::CudaProperties;
pub use device::{DeviceLink, GpuBackend, GpuDeviceInfo, GpuVendor, LinkPath, PcieLink};
pub use error::GpuMonitorError;
pub use inventory::Inventory;
pub use metrics::{
    GpuClockMetrics, GpuErrorMetrics, GpuMemoryMetrics, GpuMetrics, GpuPcieMetrics, GpuPowerMetrics,
    GpuThermalMetrics, GpuUtilization,
};
pub use monitor::GpuMonitor;
pub use process::{GpuProcess, ProcessKind};
pub use throttle::{GpuThrottleMetrics, ThrottleReasons};
