//! Starting up, versions, and error texts.

use crate::abi::Out;
use crate::entry::{Call, api};
use gputrace_sim::device;
use gputrace_sim::error::{Code, Result};
use gputrace_sim::status;
use std::ffi::c_char;
use std::sync::Once;

/// The runtime library asks for private tables that only the real driver has; say once why it will fail.
pub fn explain_runtime_api() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        eprintln!(
            "gputrace: the simulated device serves driver-API programs; this program uses the CUDA runtime (libcudart)\n  \
             hint: run it on a machine with a GPU, without --simulate; gputrace demo shows a trace here"
        );
    });
}

api! {
    "cuInit" 2000 fn cuInit(Flags: u32) |_| {
        if Flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        if device::count() == 0 {
            return Err(Code::NO_DEVICE);
        }
        status::watch_for_fork();
        status::set(status::INITIALISED, true);
        Ok(())
    }
    "cuDriverGetVersion" 2020 fn cuDriverGetVersion(driverVersion: Out<i32>) |_| {
        driverVersion.set(device::DRIVER_VERSION)
    }
    "cuGetErrorName" 6000 fn cuGetErrorName(error: u32, pStr: Out<*const c_char>) |_| {
        pStr.required()?;
        let name = Code(error).name();
        pStr.set(name.map_or(std::ptr::null(), |name| name.as_ptr()))?;
        name.map(|_| ()).ok_or(Code::INVALID_VALUE)
    }
    "cuGetErrorString" 6000 fn cuGetErrorString(error: u32, pStr: Out<*const c_char>) |_| {
        pStr.required()?;
        let words = Code(error).words();
        pStr.set(words.map_or(std::ptr::null(), |words| words.as_ptr()))?;
        words.map(|_| ()).ok_or(Code::INVALID_VALUE)
    }
}
