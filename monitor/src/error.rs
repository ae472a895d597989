//! Why a device cannot be read, by what can be done about it.

use std::time::Duration;

use thiserror::Error;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GpuMonitorError {
    /// No driver is installed, or a container was started without it.
    #[error("no GPU driver: {0}")]
    NoDriver(String),
    /// The driver is there and this user may not use it.
    #[error("no permission: {0}")]
    NoPermission(String),
    /// The driver's library and the kernel's module have different versions: the machine needs a restart.
    #[error("the driver's library and its kernel module have different versions: {0}")]
    VersionMismatch(String),
    /// The library is not the driver's, or is too old.
    #[error("the driver's library cannot be used: {0}")]
    BadLibrary(String),
    #[error("there is no device {index}; there {}", match count { 0 => "is none".to_owned(), 1 => "is 1".to_owned(), count => format!("are {count}") })]
    NoSuchDevice { index: u32, count: u32 },
    /// The device fell off the bus, was reset, or was taken away. It may come back.
    #[error("device {index} is lost: {why}")]
    DeviceLost { index: u32, why: String },
    /// A driver call has not returned.
    #[error("the driver does not answer for {subject} (waited {:.1} s)", waited.as_secs_f64())]
    NoAnswer { subject: String, waited: Duration },
    /// A driver call failed for another reason.
    #[error("{call} failed: {why}")]
    Driver { call: String, why: String },
    /// The system refused a thread.
    #[error("cannot start a thread: {0}")]
    NoThread(String),
}

impl GpuMonitorError {
    /// What to do about it, where something can be done.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            GpuMonitorError::NoDriver(_) => {
                "install the vendor's driver, or start the container with its GPUs (docker run --gpus all)"
            }
            GpuMonitorError::NoPermission(_) => "join the group that owns the device files in /dev",
            GpuMonitorError::VersionMismatch(_) => "restart the machine, or load the new kernel module",
            GpuMonitorError::BadLibrary(_) => "look at GPUTRACE_NVML, and at what libnvidia-ml.so.1 is",
            GpuMonitorError::NoSuchDevice { .. } => "gputrace devices lists them",
            GpuMonitorError::DeviceLost { .. } => "dmesg may say why (NVRM: Xid)",
            GpuMonitorError::NoAnswer { .. } => "dmesg may say why; the samples go on once it answers",
            GpuMonitorError::Driver { .. } | GpuMonitorError::NoThread(_) => return None,
        })
    }
}
