//! The processes on a device.

use crate::abi::{Code, Handle, NOT_AVAILABLE_32, NOT_AVAILABLE_64, NOT_FOUND, ProcessInfo, ProcessSample};
use crate::answer::{code, put_list};
use crate::call::enter;

/// # Safety
/// As of [`put_list`].
unsafe fn list(
    function: &str,
    device: Handle,
    graphics: bool,
    count: *mut u32,
    out: *mut ProcessInfo,
) -> Code {
    code(enter(function, device).and_then(|call| {
        let wanted = call.device().processes.iter().filter(|process| process.is_graphics == graphics);
        let entries: Vec<_> = wanted
            .map(|process| ProcessInfo {
                pid: process.pid,
                memory: process.memory.unwrap_or(NOT_AVAILABLE_64),
                gpu_instance: NOT_AVAILABLE_32,
                compute_instance: NOT_AVAILABLE_32,
            })
            .collect();
        // SAFETY: the caller guarantees it.
        unsafe { put_list(out, count, &entries) }
    }))
}

macro_rules! lists {
    ($($function:ident $is_graphics:literal;)*) => {
        $(
            /// # Safety
            /// `count` is null or names the length of `out`, which is null or has that many entries.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $function(device: Handle, count: *mut u32, out: *mut ProcessInfo) -> Code {
                // SAFETY: the caller guarantees it.
                unsafe { list(stringify!($function), device, $is_graphics, count, out) }
            }
        )*
    };
}

lists! {
    nvmlDeviceGetComputeRunningProcesses_v2 false;
    nvmlDeviceGetComputeRunningProcesses_v3 false;
    nvmlDeviceGetGraphicsRunningProcesses_v2 true;
    nvmlDeviceGetGraphicsRunningProcesses_v3 true;
}

/// Each process with a value has one sample, of now.
///
/// # Safety
/// `count` is null or names the length of `out`, which is null or has that many entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetProcessUtilization(
    device: Handle,
    out: *mut ProcessSample,
    count: *mut u32,
    since_us: u64,
) -> Code {
    code(enter("nvmlDeviceGetProcessUtilization", device).and_then(|call| {
        let time_us = call.now.as_micros() as u64;
        let busy = call.device().processes.iter().filter_map(|process| Some((process, process.sm?)));
        let samples: Vec<_> = busy
            .filter(|_| time_us > since_us)
            .map(|(process, sm)| ProcessSample {
                pid: process.pid,
                time_us,
                sm: sm.at(call.now) as u32,
                memory: process.mem,
                encoder: 0,
                decoder: 0,
            })
            .collect();
        if samples.is_empty() {
            return Err(NOT_FOUND);
        }
        // SAFETY: the caller guarantees it.
        unsafe { put_list(out, count, &samples) }
    }))
}
