//! The version, and ids for handles.

use crate::driver::driver;
use crate::pointer::Out;
use crate::result::*;

/// What CUPTI of CUDA 13.0 says.
const API_VERSION: u32 = 130_001;

#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetVersion(version: Out<u32>) -> u32 {
    number(version.set(API_VERSION))
}

fn known<T: Copy + Default + PartialEq>(id: T, otherwise: Failure) -> Result<T> {
    if id == T::default() { Err(otherwise) } else { Ok(id) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetDeviceId(context: u64, id: Out<u32>) -> u32 {
    number(driver().and_then(|driver| {
        let device = (driver.context_device)(context);
        id.set(u32::try_from(device).map_err(|_| INVALID_CONTEXT)?)
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetContextId(context: u64, id: Out<u32>) -> u32 {
    number(driver().and_then(|driver| id.set(known((driver.context_uid)(context), INVALID_CONTEXT)?)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetStreamId(context: u64, stream: u64, id: Out<u32>) -> u32 {
    cuptiGetStreamIdEx(context, stream, 0, id)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetStreamIdEx(context: u64, stream: u64, per_thread: u8, id: Out<u32>) -> u32 {
    number(driver().and_then(|driver| {
        let context = if context == 0 { (driver.current_context)() } else { context };
        id.set(known((driver.stream_id)(context, stream, per_thread != 0), INVALID_STREAM)?)
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetGraphId(graph: u64, id: Out<u32>) -> u32 {
    number(driver().and_then(|driver| id.set(known((driver.graph_id)(graph), INVALID_PARAMETER)?)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetGraphExecId(executable: u64, id: Out<u32>) -> u32 {
    number(driver().and_then(|driver| id.set(known((driver.executable_id)(executable), INVALID_PARAMETER)?)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetGraphNodeId(node: u64, id: Out<u64>) -> u32 {
    number(driver().and_then(|driver| id.set(known((driver.node_id)(node), INVALID_PARAMETER)?)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiDeviceSupported(_device: i32, support: Out<i32>) -> u32 {
    number(support.set(1))
}

/// No virtualisation.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiDeviceVirtualizationMode(_device: i32, mode: Out<u32>) -> u32 {
    number(mode.set(0))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiComputeCapabilitySupported(major: i32, _minor: i32, support: Out<i32>) -> u32 {
    number(support.set(i32::from(major >= 7)))
}
