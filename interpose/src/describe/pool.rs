//! Memory pools: made, destroyed, trimmed, and what they may keep.

use core::ffi::{c_int, c_void};

use cupti_sys::driver::CUmemPoolProps_v1 as Properties;
use gputrace_wire::call::{Detail, Memory, memory, operation};

use super::memory::{allocated, stated};
use super::{sync, written};
use crate::hook::description::{Context, Description};
use crate::symbols::driver::{DevicePointer, Handle};

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
    // SAFETY: the original was given the same pointer and reads it; null is its error.
    let most = unsafe { properties.as_ref() }.map_or(0, |properties| properties.maxSize);
    named(cx, operation::CREATE, out, most as u64)
}

/// A call that gives a pool's handle: a new pool, or a device's own.
pub fn named(cx: &Context, operation: u8, out: *const Handle, value: u64) -> Description {
    // SAFETY: the call's own out pointer.
    let pool = unsafe { written(cx, out) }.map_or(0, |pool| pool as u64);
    stated(operation, pool, value)
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
