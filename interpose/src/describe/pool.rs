//! Memory pools: made, destroyed, trimmed, and what they may keep.

use core::ffi::{c_int, c_uint, c_void};

use cupti_sys::driver::CUmemPoolProps_v1 as Properties;
use gputrace_wire::call::{CURRENT_POOL, Detail, Memory, memory, operation};

use super::memory::{allocated, stated};
use super::{given, sync, written};
use crate::hook::description::{Context, Description};
use crate::symbols::driver::{Device, DevicePointer, Handle};

/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`.
const RELEASE_THRESHOLD: c_int = 4;
/// `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`.
const RESERVED: c_int = 5;

/// Memory of a pool that the call names.
pub fn allocated_from(
    cx: &Context,
    memory: u8,
    bytes: usize,
    out: *const DevicePointer,
    pool: Handle,
    stream: Option<Handle>,
) -> Description {
    let mut made = allocated(cx, memory, bytes, out, stream);
    if let Detail::Memory(Memory { pool: low, .. }) = &mut made.detail {
        *low = pool as u64 as u32;
    }
    made
}

pub fn created(cx: &Context, out: *const Handle, properties: *const Properties) -> Description {
    // SAFETY: the call's own argument.
    let most = unsafe { given(cx, properties) }.map_or(0, |properties| properties.maxSize);
    named(cx, operation::CREATE, out, most as u64)
}

/// A device in an entry; 0 is one that is not known.
fn device_value(device: Device) -> u64 {
    u64::try_from(device).map_or(0, |device| device + 1)
}

/// A device's own pool.
pub fn own(cx: &Context, out: *const Handle, device: Device) -> Description {
    named(cx, operation::LOOK_UP, out, device_value(device))
}

/// The pool that calls without one allocate from now.
pub fn current(cx: &Context, out: *const Handle, device: Device) -> Description {
    named(cx, operation::LOOK_UP, out, device_value(device) | CURRENT_POOL)
}

/// The pool of a device from now on.
pub fn made_current(cx: &Context, pool: Handle, device: Device) -> Description {
    changed(cx, operation::SET_CURRENT, pool, device_value(device))
}

/// A call that gives a pool's handle: a new pool, or a device's own.
pub fn named(cx: &Context, operation: u8, out: *const Handle, value: u64) -> Description {
    // SAFETY: the call's own out pointer.
    let pool = unsafe { written(cx, out) }.map_or(0, |pool| pool as u64);
    stated(operation, pool, value)
}

/// The device, if a location and a kind of allocation are those of a device's own memory, which calls without
/// a pool allocate from.
fn device_of(cx: &Context, location: *const c_void, allocation: c_uint) -> Option<Device> {
    /// `CU_MEM_LOCATION_TYPE_DEVICE` and `CU_MEM_ALLOCATION_TYPE_PINNED`.
    const DEVICE: c_int = 1;
    const PINNED: c_uint = 1;
    // SAFETY: the call's own argument, which begins with the type and the device's ordinal.
    let [location, device] = unsafe { given(cx, location.cast::<[c_int; 2]>()) }?;
    (allocation == PINNED && location == DEVICE).then_some(device)
}

/// The pool that a place has by default.
pub fn default_of(
    cx: &Context,
    out: *const Handle,
    location: *const c_void,
    allocation: c_uint,
) -> Description {
    match device_of(cx, location, allocation) {
        Some(device) => own(cx, out, device),
        None => named(cx, operation::CREATE, out, 0),
    }
}

/// The pool that a place has now.
pub fn current_of(
    cx: &Context,
    out: *const Handle,
    location: *const c_void,
    allocation: c_uint,
) -> Description {
    match device_of(cx, location, allocation) {
        Some(device) => current(cx, out, device),
        None => named(cx, operation::CREATE, out, 0),
    }
}

/// The pool of a place from now on. Of the host's and of managed pools, calls without a pool do not allocate.
pub fn made_default(cx: &Context, location: *const c_void, allocation: c_uint, pool: Handle) -> Description {
    match device_of(cx, location, allocation) {
        Some(device) => made_current(cx, pool, device),
        None => sync::other(cx, operation::SET_CURRENT, 0),
    }
}

pub fn changed(_: &Context, operation: u8, pool: Handle, value: u64) -> Description {
    stated(operation, pool as u64, value)
}

pub fn attribute_set(cx: &Context, pool: Handle, attribute: c_int, value: *const c_void) -> Description {
    if attribute != RELEASE_THRESHOLD {
        return sync::other(cx, operation::ENABLE, u64::from(attribute.cast_unsigned()));
    }
    // SAFETY: the original has just read the same 64 bits, if it succeeded.
    let keep = unsafe { written(cx, value.cast::<u64>()) }.unwrap_or(0);
    stated(operation::KEEP, pool as u64, keep)
}

/// What a pool has reserved is recorded where the program asks for it: no hook asks.
pub fn attribute_read(cx: &Context, pool: Handle, attribute: c_int, value: *const c_void) -> Description {
    if attribute != RESERVED {
        return sync::other(cx, operation::QUERY, u64::from(attribute.cast_unsigned()));
    }
    // SAFETY: the original has just written these 64 bits, if it succeeded.
    let reserved = unsafe { written(cx, value.cast::<u64>()) }.unwrap_or(0);
    stated(operation::RESERVED, pool as u64, reserved)
}

/// Another process's memory, of a pool that both share.
pub fn imported(cx: &Context, out: *const DevicePointer, pool: Handle) -> Description {
    allocated_from(cx, memory::IMPORTED, 0, out, pool, None)
}
