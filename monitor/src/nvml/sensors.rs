//! Readings of a device that take more than one call.

use nvml_wrapper::Device;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::NVML_FI_DEV_MEMORY_TEMP;

use super::{failure, raw};
use crate::metrics::GpuMemoryMetrics;
use crate::plausible;

/// Total, used and free; without what is reserved, where the driver reports that separately.
pub fn memory(device: &Device<'_>) -> Result<GpuMemoryMetrics, NvmlError> {
    let (total, used, free, reserved) = match device.memory_info() {
        Ok(info) => (info.total, info.used, info.free, Some(info.reserved)),
        Err(error) if failure::is_absence(&error) || matches!(error, NvmlError::InvalidArg) => {
            let info = raw::memory(device)?;
            (info.total, info.used, info.free, None)
        }
        Err(error) => return Err(error),
    };
    let total = plausible::bytes(total);
    let within = |bytes: u64| Some(bytes).filter(|bytes| total.is_some_and(|total| *bytes <= total));
    Ok(GpuMemoryMetrics {
        total,
        used: within(used),
        free: within(free),
        reserved: reserved.and_then(within),
        ..GpuMemoryMetrics::default()
    })
}

pub fn memory_temperature(device: &Device<'_>) -> Option<u32> {
    let fields = device.field_values_for(&[FieldId(NVML_FI_DEV_MEMORY_TEMP)]).ok()?;
    match fields.into_iter().next()?.ok()?.value.ok()? {
        // 0: the device has no such sensor.
        SampleValue::U32(celsius) => plausible::celsius(celsius).filter(|celsius| *celsius > 0),
        _ => None,
    }
}

/// How many fans; 0 if the driver has no speed of the first one.
pub fn fans(device: &Device<'_>) -> u32 {
    match device.fan_speed(0) {
        Err(NvmlError::NotSupported) => 0,
        _ => device.num_fans().unwrap_or(1).min(16),
    }
}

/// The fastest fan.
pub fn fan(device: &Device<'_>, fans: u32) -> Option<u32> {
    (0..fans).filter_map(|fan| device.fan_speed(fan).ok().and_then(plausible::percent)).max()
}
