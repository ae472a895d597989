//! NVML's errors as ours.

use nvml_wrapper::error::NvmlError;

use crate::error::GpuMonitorError;

/// What the failure of a call for that device means.
pub fn explain(call: &str, index: u32, error: &NvmlError) -> GpuMonitorError {
    match error {
        NvmlError::DriverNotLoaded => GpuMonitorError::NoDriver(
            "libnvidia-ml.so.1 is there, and the kernel module nvidia is not loaded".into(),
        ),
        NvmlError::NoPermission => GpuMonitorError::NoPermission(format!("{call}: {error}")),
        NvmlError::OperatingSystem => GpuMonitorError::NoPermission(format!("{call}: {error}")),
        NvmlError::LibRmVersionMismatch => GpuMonitorError::VersionMismatch(format!("{call}: {error}")),
        error if is_loss(error) => GpuMonitorError::DeviceLost { index, why: error.to_string() },
        error => GpuMonitorError::Driver { call: call.into(), why: error.to_string() },
    }
}

/// Whether nothing of the device can be read.
pub fn is_loss(error: &NvmlError) -> bool {
    matches!(error, NvmlError::GpuLost | NvmlError::ResetRequired | NvmlError::IrqIssue)
}

/// Whether the error only means that this device or driver does not have the value.
pub fn is_absence(error: &NvmlError) -> bool {
    matches!(
        error,
        NvmlError::NotSupported
            | NvmlError::FailedToLoadSymbol(_)
            | NvmlError::FunctionNotFound
            | NvmlError::NotFound
            | NvmlError::NoData
            | NvmlError::UnexpectedVariant(_)
    )
}
