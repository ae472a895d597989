//! The driver API's types as the hooks see them, and our own calls into the driver.
//!
//! Hooks pass handles through and never look inside: an opaque address is enough. Our own calls go to the
//! originals, by name, and only where the driver allows them: never in a CUPTI callback, never in a forked
//! child.

use core::ffi::{c_char, c_int, c_void};

use crate::process::link::Link;
use crate::symbols::originals;

/// `CUresult`; 0 is success.
pub type Status = c_int;
/// Any of the driver's handles: context, stream, function, module, graph…
pub type Handle = *mut c_void;
/// `CUdeviceptr` of the 64-bit ABI.
pub type DevicePointer = u64;
/// `CUdevice`: an ordinal.
pub type Device = c_int;

pub const SUCCESS: Status = 0;
/// `CUDA_ERROR_STUB_LIBRARY`: returned by the driver's own stub, and by us if there is no driver.
pub const ERROR_STUB_LIBRARY: Status = 34;

pub type Run = fn(&mut dyn FnMut());

/// Runs each of our calls, once. `cupti` sets it, to hide them from another client of CUPTI.
pub static RUN: Link<Run> = Link::new(&(as_it_is as Run));

pub fn as_it_is(call: &mut dyn FnMut()) {
    call();
}

/// One of our calls into the driver: looks the symbol up once and keeps it.
macro_rules! driver_call {
    ($(#[$doc:meta])* $name:ident = $symbol:literal ($($arg:ident: $type:ty),*)) => {
        $(#[$doc])*
        /// `None` if the driver lacks the function.
        pub fn $name($($arg: $type),*) -> Option<Status> {
            use core::sync::atomic::{AtomicPtr, Ordering};
            static FOUND: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
            let mut address = FOUND.load(Ordering::Relaxed);
            if address.is_null() {
                address = originals::find_in_driver(concat!($symbol, "\0"));
                FOUND.store(address, Ordering::Relaxed);
            }
            if address.is_null() {
                return None;
            }
            let mut status = SUCCESS;
            // SAFETY: the driver's function of that name has this signature in every version;
            // the callers below pass pointers that live across the call.
            let mut call = || status = unsafe {
                core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> Status>(address)($($arg),*)
            };
            RUN.get()(&mut call);
            Some(status)
        }
    };
}

driver_call!(driver_version = "cuDriverGetVersion"(version: *mut c_int));
driver_call!(device_count = "cuDeviceGetCount"(count: *mut c_int));
driver_call!(device_name = "cuDeviceGetName"(name: *mut c_char, length: c_int, device: Device));
driver_call!(device_total_memory = "cuDeviceTotalMem_v2"(bytes: *mut usize, device: Device));
driver_call!(device_attribute = "cuDeviceGetAttribute"(value: *mut c_int, attribute: c_int, device: Device));
driver_call!(device_uuid = "cuDeviceGetUuid"(uuid: *mut [u8; 16], device: Device));
driver_call!(current_context = "cuCtxGetCurrent"(context: *mut Handle));
driver_call!(current_device = "cuCtxGetDevice"(device: *mut Device));
driver_call!(function_name = "cuFuncGetName"(name: *mut *const c_char, function: Handle));
driver_call!(function_attribute = "cuFuncGetAttribute"(value: *mut c_int, attribute: c_int, function: Handle));
driver_call!(kernel_function = "cuKernelGetFunction"(function: *mut Handle, kernel: Handle));
driver_call!(stream_is_capturing = "cuStreamIsCapturing"(stream: Handle, status: *mut c_int));
driver_call!(stream_is_capturing_per_thread = "cuStreamIsCapturing_ptsz"(stream: Handle, status: *mut c_int));

/// The text behind a C string argument, at most `limit` bytes of it.
///
/// # Safety
/// `text` is null or a C string that the original has just read.
pub unsafe fn text<'a>(text: *const c_char, limit: usize) -> &'a [u8] {
    if text.is_null() {
        return b"";
    }
    // SAFETY: a C string by the contract; strnlen stops at its end or the limit.
    unsafe { core::slice::from_raw_parts(text.cast(), libc::strnlen(text, limit)) }
}
