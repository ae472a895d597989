//! Functions that give values of a device: each reads a key of the script, and a key that is not there is
//! `NVML_ERROR_NOT_SUPPORTED`.

use std::ffi::c_char;

use crate::abi::{
    Code, FieldValue, Handle, INVALID_ARGUMENT, Memory, MemoryV2, NOT_SUPPORTED, PciInfo, SUCCESS,
    Utilization, ViolationTime,
};
use crate::answer::{code, put, put_text};
use crate::call::{Call, enter};

/// # Safety
/// `out` is null or can be written to.
unsafe fn number<T>(function: &str, device: Handle, key: &str, out: *mut T, as_t: fn(u64) -> T) -> Code {
    code(enter(function, device).and_then(|call| {
        let value = call.value(key).ok_or(NOT_SUPPORTED)?;
        // SAFETY: the caller guarantees it.
        unsafe { put(out, as_t(value)) }
    }))
}

/// One function a row: its name, the script's key, the type of the number.
macro_rules! numbers {
    ($($function:ident $key:literal $number:ty;)*) => {
        $(
            /// # Safety
            /// `out` is null or can be written to.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $function(device: Handle, out: *mut $number) -> Code {
                // SAFETY: the caller guarantees it.
                unsafe { number(stringify!($function), device, $key, out, |value| value as $number) }
            }
        )*
    };
}

numbers! {
    nvmlDeviceGetIndex "index" u32;
    nvmlDeviceGetMinorNumber "minor" u32;
    nvmlDeviceGetPowerUsage "power" u32;
    nvmlDeviceGetEnforcedPowerLimit "limit" u32;
    nvmlDeviceGetPowerManagementLimit "limit" u32;
    nvmlDeviceGetPerformanceState "pstate" u32;
    nvmlDeviceGetPowerState "pstate" u32;
    nvmlDeviceGetTotalEnergyConsumption "energy" u64;
    nvmlDeviceGetCurrPcieLinkGeneration "gen" u32;
    nvmlDeviceGetCurrPcieLinkWidth "width" u32;
    nvmlDeviceGetMaxPcieLinkGeneration "max_gen" u32;
    nvmlDeviceGetMaxPcieLinkWidth "max_width" u32;
    nvmlDeviceGetPcieReplayCounter "replays" u32;
    nvmlDeviceGetFanSpeed "fan" u32;
    nvmlDeviceGetNumFans "fans" u32;
    nvmlDeviceGetMemoryBusWidth "bus_bits" u32;
    nvmlDeviceGetNumGpuCores "cores" u32;
    nvmlDeviceGetArchitecture "architecture" u32;
    nvmlDeviceGetCurrentClocksEventReasons "reasons" u64;
    nvmlDeviceGetCurrentClocksThrottleReasons "reasons" u64;
}

/// One function a row: its name, and the script's keys by the number that is asked for.
macro_rules! choices {
    ($($function:ident $keys:expr;)*) => {
        $(
            /// # Safety
            /// `out` is null or can be written to.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $function(device: Handle, which: u32, out: *mut u32) -> Code {
                let keys: &[&str] = &$keys;
                let Some(key) = keys.get(which as usize) else { return INVALID_ARGUMENT };
                // SAFETY: the caller guarantees it.
                unsafe { number(stringify!($function), device, key, out, |value| value as u32) }
            }
        )*
    };
}

choices! {
    nvmlDeviceGetClockInfo ["graphics", "sm", "memclock", "video"];
    nvmlDeviceGetMaxClockInfo ["max_graphics", "max_sm", "max_memclock", "max_video"];
    nvmlDeviceGetTemperature ["temp"];
    nvmlDeviceGetTemperatureThreshold ["shutdown", "slowdown", "memory_max", "gpu_max"];
    nvmlDeviceGetPcieThroughput ["tx", "rx"];
    nvmlDeviceGetFanSpeed_v2 ["fan", "fan1", "fan2", "fan3"];
}

/// # Safety
/// Both are null or can be written to.
unsafe fn pair(function: &str, device: Handle, keys: [&str; 2], one: *mut u32, other: *mut u32) -> Code {
    code(enter(function, device).and_then(|call| {
        let value = |key| call.value(key).ok_or(NOT_SUPPORTED);
        // SAFETY: the caller guarantees it.
        unsafe { put(one, value(keys[0])? as u32).and(put(other, value(keys[1])? as u32)) }
    }))
}

macro_rules! pairs {
    ($($function:ident $one:literal $other:literal;)*) => {
        $(
            /// # Safety
            /// Both are null or can be written to.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $function(device: Handle, one: *mut u32, other: *mut u32) -> Code {
                // SAFETY: the caller guarantees it.
                unsafe { pair(stringify!($function), device, [$one, $other], one, other) }
            }
        )*
    };
}

pairs! {
    nvmlDeviceGetEncoderUtilization "encoder" "period_us";
    nvmlDeviceGetDecoderUtilization "decoder" "period_us";
    nvmlDeviceGetPowerManagementLimitConstraints "limit_min" "limit_max";
    nvmlDeviceGetCudaComputeCapability "major" "minor_version";
    nvmlDeviceGetEccMode "ecc" "ecc";
    nvmlDeviceGetMigMode "mig" "mig";
}

macro_rules! texts {
    ($($function:ident $key:literal;)*) => {
        $(
            /// # Safety
            /// `out` is null or has `length` bytes.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $function(device: Handle, out: *mut c_char, length: u32) -> Code {
                code(enter(stringify!($function), device).and_then(|call| {
                    let text = call.device().text($key).ok_or(NOT_SUPPORTED)?;
                    // SAFETY: the caller guarantees it.
                    unsafe { put_text(out, length, text) }
                }))
            }
        )*
    };
}

texts! {
    nvmlDeviceGetName "name";
    nvmlDeviceGetUUID "uuid";
    nvmlDeviceGetSerial "serial";
}

/// # Safety
/// `out` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUtilizationRates(device: Handle, out: *mut Utilization) -> Code {
    code(enter("nvmlDeviceGetUtilizationRates", device).and_then(|call| {
        let gpu = call.value("gpu").ok_or(NOT_SUPPORTED)? as u32;
        let memory = call.value("mem").ok_or(NOT_SUPPORTED)? as u32;
        // SAFETY: the caller guarantees it.
        unsafe { put(out, Utilization { gpu, memory }) }
    }))
}

/// Total, used and reserved.
fn memory_of(call: &Call) -> Result<(u64, u64, u64), Code> {
    let value = |key| call.value(key).ok_or(NOT_SUPPORTED);
    Ok((value("total")?, value("used")?, call.value("reserved").unwrap_or(0)))
}

/// # Safety
/// `out` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo(device: Handle, out: *mut Memory) -> Code {
    code(enter("nvmlDeviceGetMemoryInfo", device).and_then(|call| {
        let (total, used, reserved) = memory_of(&call)?;
        let used = used.wrapping_add(reserved);
        // SAFETY: the caller guarantees it.
        unsafe { put(out, Memory { total, free: total.wrapping_sub(used), used }) }
    }))
}

/// # Safety
/// `out` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: Handle, out: *mut MemoryV2) -> Code {
    code(enter("nvmlDeviceGetMemoryInfo_v2", device).and_then(|call| {
        let (total, used, reserved) = memory_of(&call)?;
        let free = total.wrapping_sub(used).wrapping_sub(reserved);
        // SAFETY: the caller guarantees it.
        unsafe { put(out, MemoryV2 { version: 0x0200_0028, total, reserved, free, used }) }
    }))
}

/// # Safety
/// `out` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPciInfo_v3(device: Handle, out: *mut PciInfo) -> Code {
    code(enter("nvmlDeviceGetPciInfo_v3", device).and_then(|call| {
        let text = call.device().text("pci").ok_or(NOT_SUPPORTED)?;
        // SAFETY: the caller guarantees it.
        unsafe { put(out, pci_info(text)) }
    }))
}

/// The address `00000000:1B:00.0` in NVML's struct.
pub fn pci_info(text: &str) -> PciInfo {
    let parts: Vec<u32> =
        text.split([':', '.']).map(|part| u32::from_str_radix(part, 16).unwrap_or(0)).collect();
    let part = |at: usize| parts.get(at).copied().unwrap_or(0);
    let mut info = PciInfo {
        legacy_id: [0; 16],
        domain: part(0),
        bus: part(1),
        device: part(2),
        ids: 0x2330_10de,
        subsystem_ids: 0,
        id: [0; 32],
    };
    let legacy = text.get(4..).unwrap_or(text);
    info.legacy_id.iter_mut().zip(legacy.bytes().take(15)).for_each(|(to, byte)| *to = byte as c_char);
    info.id.iter_mut().zip(text.bytes().take(31)).for_each(|(to, byte)| *to = byte as c_char);
    info
}

/// # Safety
/// `out` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetViolationStatus(
    device: Handle,
    policy: u32,
    out: *mut ViolationTime,
) -> Code {
    code(enter("nvmlDeviceGetViolationStatus", device).and_then(|call| {
        let key = match policy {
            0 => "power_violation",
            1 => "thermal_violation",
            _ => return Err(NOT_SUPPORTED),
        };
        let violation_ns = call.value(key).ok_or(NOT_SUPPORTED)?;
        // SAFETY: the caller guarantees it.
        unsafe { put(out, ViolationTime { reference_us: 0, violation_ns }) }
    }))
}

/// # Safety
/// `out` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTotalEccErrors(
    device: Handle,
    kind: u32,
    _counter: u32,
    out: *mut u64,
) -> Code {
    let key = if kind == 0 { "ecc_corrected" } else { "ecc_uncorrected" };
    // SAFETY: the caller guarantees it.
    unsafe { number("nvmlDeviceGetTotalEccErrors", device, key, out, |value| value) }
}

/// # Safety
/// All are null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetRemappedRows(
    device: Handle,
    corrected: *mut u32,
    uncorrected: *mut u32,
    pending: *mut u32,
    failed: *mut u32,
) -> Code {
    code(enter("nvmlDeviceGetRemappedRows", device).and_then(|call| {
        let outs = [corrected, uncorrected, pending, failed];
        for (out, key) in
            outs.into_iter().zip(["rows_corrected", "rows_uncorrected", "rows_pending", "rows_failed"])
        {
            // SAFETY: the caller guarantees it.
            unsafe { put(out, call.value(key).ok_or(NOT_SUPPORTED)? as u32)? };
        }
        Ok(())
    }))
}

/// Knows one field: the memory's temperature.
///
/// # Safety
/// `values` is null or has `count` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetFieldValues(
    device: Handle,
    count: i32,
    values: *mut FieldValue,
) -> Code {
    code(enter("nvmlDeviceGetFieldValues", device).and_then(|call| {
        if values.is_null() {
            return Err(INVALID_ARGUMENT);
        }
        for at in 0..count.max(0) as usize {
            // SAFETY: the caller guarantees it.
            let entry = unsafe { &mut *values.add(at) };
            let value = call.value("memory_temp").filter(|_| entry.field == 82);
            entry.code = if value.is_some() { SUCCESS } else { NOT_SUPPORTED };
            entry.kind = 1;
            entry.value = value.unwrap_or(0);
        }
        Ok(())
    }))
}
