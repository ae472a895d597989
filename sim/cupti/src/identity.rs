//! The version, and ids for handles.

use crate::driver::driver;
use crate::pointer::OutPtr;
use crate::result::*;
use gputrace_sim::interface::Interface;
use std::ffi::{CStr, c_void};

/// The version of CUDA 13.0's CUPTI.
const API_VERSION: u32 = 130_001;
/// From this one on a libcupti keeps the driver for the life of the process, as the real one does.
const KEEPS_THE_DRIVER: u32 = 130_000;

/// The version: the number at the end of the file's name, as in `libcupti.so.version-26`, or 13.0's.
fn api_version() -> u32 {
    // SAFETY: zero is a valid Dl_info, which dladdr fills for any address; the name is the
    // loader's own C string, and this library is mapped while its own code runs.
    let name = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(api_version as *const c_void, &mut info) == 0 || info.dli_fname.is_null() {
            return API_VERSION;
        }
        CStr::from_ptr(info.dli_fname)
    };
    let name = name.to_string_lossy();
    name.rsplit_once(".so.version-").and_then(|(_, number)| number.parse().ok()).unwrap_or(API_VERSION)
}

/// Takes the driver for this library, which another one may have.
pub fn take_driver(driver: &Interface) -> CuptiResult {
    let is_ours = (driver.claim_tool_slot)(api_version as *const c_void as usize);
    if is_ours { Ok(()) } else { Err(MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) }
}

/// Lets go of the driver, if this version does that.
pub fn leave_driver(driver: &Interface) {
    if api_version() < KEEPS_THE_DRIVER {
        (driver.release_tool_slot)(api_version as *const c_void as usize);
    }
}

/// The mark by which tools know that this library is simulated, as `gputrace_sim_version` is the driver's.
#[unsafe(no_mangle)]
pub extern "C" fn gputrace_sim_cupti_version() -> u32 {
    api_version()
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetVersion(version: OutPtr<u32>) -> u32 {
    number(version.set(api_version()))
}

fn known<T: Copy + Default + PartialEq>(id: T, otherwise: Failure) -> CuptiResult<T> {
    if id == T::default() { Err(otherwise) } else { Ok(id) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetDeviceId(context: u64, id: OutPtr<u32>) -> u32 {
    number(driver().and_then(|driver| {
        let device = (driver.context_device)(context);
        id.set(u32::try_from(device).map_err(|_| INVALID_CONTEXT)?)
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetContextId(context: u64, id: OutPtr<u32>) -> u32 {
    number(driver().and_then(|driver| id.set(known((driver.context_uid)(context), INVALID_CONTEXT)?)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetStreamId(context: u64, stream: u64, id: OutPtr<u32>) -> u32 {
    cuptiGetStreamIdEx(context, stream, 0, id)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetStreamIdEx(context: u64, stream: u64, per_thread: u8, id: OutPtr<u32>) -> u32 {
    number(driver().and_then(|driver| {
        let context = if context == 0 { (driver.current_context)() } else { context };
        id.set(known((driver.stream_id)(context, stream, per_thread != 0), INVALID_STREAM)?)
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetGraphId(graph: u64, id: OutPtr<u32>) -> u32 {
    number(driver().and_then(|driver| id.set(known((driver.graph_id)(graph), INVALID_PARAMETER)?)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetGraphExecId(executable: u64, id: OutPtr<u32>) -> u32 {
    number(driver().and_then(|driver| id.set(known((driver.executable_id)(executable), INVALID_PARAMETER)?)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetGraphNodeId(node: u64, id: OutPtr<u64>) -> u32 {
    number(driver().and_then(|driver| id.set(known((driver.node_id)(node), INVALID_PARAMETER)?)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiDeviceSupported(_device: i32, support: OutPtr<i32>) -> u32 {
    number(support.set(1))
}

/// No virtualisation.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiDeviceVirtualizationMode(_device: i32, mode: OutPtr<u32>) -> u32 {
    number(mode.set(0))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiComputeCapabilitySupported(major: i32, _minor: i32, support: OutPtr<i32>) -> u32 {
    number(support.set(i32::from(major >= 7)))
}
