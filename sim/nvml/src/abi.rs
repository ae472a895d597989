//! NVML's types and codes, as its header documents them.

use std::ffi::{c_char, c_void};

/// One more than the device's number, as a pointer that nobody reads through.
pub type Handle = *mut c_void;
pub type Code = u32;

pub const SUCCESS: Code = 0;
pub const UNINITIALIZED: Code = 1;
pub const INVALID_ARGUMENT: Code = 2;
pub const NOT_SUPPORTED: Code = 3;
pub const NOT_FOUND: Code = 6;
pub const INSUFFICIENT_SIZE: Code = 7;
pub const TIMEOUT: Code = 10;
pub const GPU_IS_LOST: Code = 15;
pub const UNKNOWN: Code = 999;

/// Of what is not known.
pub const NOT_AVAILABLE_64: u64 = u64::MAX;
pub const NOT_AVAILABLE_32: u32 = u32::MAX;

#[repr(C)]
pub struct Utilization {
    pub gpu: u32,
    pub memory: u32,
}

#[repr(C)]
pub struct Memory {
    pub total: u64,
    pub free: u64,
    pub used: u64,
}

#[repr(C)]
pub struct MemoryV2 {
    pub version: u32,
    pub total: u64,
    pub reserved: u64,
    pub free: u64,
    pub used: u64,
}

#[repr(C)]
pub struct PciInfo {
    pub legacy_id: [c_char; 16],
    pub domain: u32,
    pub bus: u32,
    pub device: u32,
    pub ids: u32,
    pub subsystem_ids: u32,
    pub id: [c_char; 32],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProcessInfo {
    pub pid: u32,
    pub memory: u64,
    pub gpu_instance: u32,
    pub compute_instance: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProcessSample {
    pub pid: u32,
    pub time_us: u64,
    pub sm: u32,
    pub memory: u32,
    pub encoder: u32,
    pub decoder: u32,
}

#[repr(C)]
pub struct ViolationTime {
    pub reference_us: u64,
    pub violation_ns: u64,
}

#[repr(C)]
pub struct EventData {
    pub device: Handle,
    pub kind: u64,
    pub data: u64,
    pub gpu_instance: u32,
    pub compute_instance: u32,
}

/// The value is a union of 8 bytes.
#[repr(C)]
pub struct FieldValue {
    pub field: u32,
    pub scope: u32,
    pub timestamp: i64,
    pub latency_us: i64,
    pub kind: u32,
    pub code: Code,
    pub value: u64,
}
