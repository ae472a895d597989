//! Functions that are for no device, and those that find one.

use std::ffi::{CStr, c_char};

use crate::abi::{Code, GPU_IS_LOST, Handle, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, SUCCESS};
use crate::answer::{code, put, put_text};
use crate::call::{perform, system};
use crate::state;

fn initialise() -> Code {
    code(state::load().and_then(|state| {
        perform(&state.script.system, "nvmlInit_v2", state.now())?;
        state::keep(state);
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> Code {
    initialise()
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInitWithFlags(_flags: u32) -> Code {
    initialise()
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> Code {
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(code: Code) -> *const c_char {
    let text = match code {
        0 => c"Success",
        NOT_SUPPORTED => c"Not Supported",
        GPU_IS_LOST => c"GPU is lost",
        _ => c"an error of the simulated NVML",
    };
    text.as_ptr()
}

/// # Safety
/// `out` is null or has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetDriverVersion(out: *mut c_char, length: u32) -> Code {
    code(system("nvmlSystemGetDriverVersion").and_then(|state| {
        let version = state.script.system.text("driver").ok_or(NOT_SUPPORTED)?;
        // SAFETY: the caller guarantees it.
        unsafe { put_text(out, length, version) }
    }))
}

/// # Safety
/// `out` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetCudaDriverVersion_v2(out: *mut i32) -> Code {
    code(system("nvmlSystemGetCudaDriverVersion_v2").and_then(|state| {
        let version = state.script.system.value("cuda", state.now()).ok_or(NOT_SUPPORTED)?;
        // SAFETY: the caller guarantees it.
        unsafe { put(out, version as i32) }
    }))
}

/// # Safety
/// `out` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetCudaDriverVersion(out: *mut i32) -> Code {
    // SAFETY: the caller guarantees it.
    unsafe { nvmlSystemGetCudaDriverVersion_v2(out) }
}

/// # Safety
/// `out` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(out: *mut u32) -> Code {
    code(system("nvmlDeviceGetCount_v2").and_then(|state| {
        let count = state.script.system.value("count", state.now());
        // SAFETY: the caller guarantees it.
        unsafe { put(out, count.map_or(state.script.devices.len() as u32, |count| count as u32)) }
    }))
}

/// # Safety
/// `out` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: u32, out: *mut Handle) -> Code {
    // SAFETY: the caller guarantees it.
    code(unsafe { find("nvmlDeviceGetHandleByIndex_v2", out, |number, _| number == index as usize) })
}

/// # Safety
/// `out` is null or can be written to, `uuid` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, out: *mut Handle) -> Code {
    // SAFETY: the caller guarantees it.
    code(unsafe { by_text("nvmlDeviceGetHandleByUUID", "uuid", uuid, out) })
}

/// # Safety
/// `out` is null or can be written to, `id` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(id: *const c_char, out: *mut Handle) -> Code {
    // SAFETY: the caller guarantees it.
    code(unsafe { by_text("nvmlDeviceGetHandleByPciBusId_v2", "pci", id, out) })
}

/// # Safety
/// As of those that call it.
unsafe fn by_text(function: &str, key: &str, text: *const c_char, out: *mut Handle) -> Result<(), Code> {
    if text.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: the caller guarantees it.
    let text = unsafe { CStr::from_ptr(text) };
    // SAFETY: the caller guarantees it.
    unsafe { find(function, out, |_, device| device.text(key) == text.to_str().ok()) }
}

/// # Safety
/// `out` is null or can be written to.
unsafe fn find(
    function: &str,
    out: *mut Handle,
    is_it: impl Fn(usize, &crate::script::Section) -> bool,
) -> Result<(), Code> {
    let state = system(function)?;
    let found = state.script.devices.iter().enumerate().find(|(number, device)| is_it(*number, device));
    let (number, device) = found.ok_or(NOT_FOUND)?;
    let now = state.now();
    if device.lost.is_some_and(|lost| lost.holds(now)) {
        return Err(GPU_IS_LOST);
    }
    perform(device, function, now)?;
    // SAFETY: the caller guarantees it.
    unsafe { put(out, (number + 1) as Handle) }
}
