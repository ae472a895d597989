//! Copies: bytes, and the direction as far as the call specifies it.

use cupti_sys::driver::{
    CUDA_MEMCPY2D_v2 as CUDA_MEMCPY2D, CUDA_MEMCPY3D_PEER_v1 as CUDA_MEMCPY3D_PEER,
    CUDA_MEMCPY3D_v2 as CUDA_MEMCPY3D, CUmemorytype,
};
use gputrace_wire::call::{Copy, Detail, direction};
use gputrace_wire::cell::{flag, kind};

use crate::hook::description::{Context, Description, On};
use crate::symbols::driver::Handle;

/// Of a batch with more copies than this no bytes are recorded: adding them up would take too long.
const BATCH_MAX: usize = 1 << 16;

#[inline]
pub fn bytes(_: &Context, direction: u8, bytes: usize, stream: Option<Handle>) -> Description {
    description(direction, bytes as u64, 1, stream)
}

/// `stream` is `None` for entries that wait: they use the default stream.
fn description(direction: u8, bytes: u64, count: u32, stream: Option<Handle>) -> Description {
    Description {
        kind: kind::COPY,
        flags: if stream.is_some() { flag::ASYNC } else { 0 },
        stream: On::Stream(stream.unwrap_or(core::ptr::null_mut())),
        detail: Detail::Copy(Copy { direction, bytes, count }),
    }
}

pub fn two_d(_: &Context, what: *const CUDA_MEMCPY2D, stream: Option<Handle>) -> Description {
    // SAFETY: the original was given the same pointer and reads it; null is its error.
    let Some(what) = (unsafe { what.as_ref() }) else { return description(direction::UNKNOWN, 0, 1, stream) };
    let bytes = (what.WidthInBytes as u64).saturating_mul(what.Height as u64);
    description(between(what.srcMemoryType, what.dstMemoryType), bytes, 1, stream)
}

pub fn three_d(_: &Context, what: *const CUDA_MEMCPY3D, stream: Option<Handle>) -> Description {
    // SAFETY: as above.
    let Some(what) = (unsafe { what.as_ref() }) else { return description(direction::UNKNOWN, 0, 1, stream) };
    let bytes = volume(what.WidthInBytes, what.Height, what.Depth);
    description(between(what.srcMemoryType, what.dstMemoryType), bytes, 1, stream)
}

pub fn three_d_peer(_: &Context, what: *const CUDA_MEMCPY3D_PEER, stream: Option<Handle>) -> Description {
    // SAFETY: as above.
    let Some(what) = (unsafe { what.as_ref() }) else { return description(direction::UNKNOWN, 0, 1, stream) };
    let same = what.srcContext == what.dstContext;
    let direction = if same { between(what.srcMemoryType, what.dstMemoryType) } else { direction::PEER };
    description(direction, volume(what.WidthInBytes, what.Height, what.Depth), 1, stream)
}

pub fn batch(_: &Context, sizes: *const usize, count: usize, stream: Handle) -> Description {
    let bytes = if sizes.is_null() || count > BATCH_MAX {
        0
    } else {
        // SAFETY: the caller gives this number of sizes, and the original reads them all.
        unsafe { core::slice::from_raw_parts(sizes, count) }
            .iter()
            .fold(0u64, |sum, size| sum.saturating_add(*size as u64))
    };
    description(direction::UNKNOWN, bytes, u32::try_from(count).unwrap_or(u32::MAX), Some(stream))
}

fn volume(width: usize, height: usize, depth: usize) -> u64 {
    (width as u64).saturating_mul(height as u64).saturating_mul(depth as u64)
}

fn between(source: CUmemorytype, target: CUmemorytype) -> u8 {
    let host = CUmemorytype::CU_MEMORYTYPE_HOST;
    let unified = CUmemorytype::CU_MEMORYTYPE_UNIFIED;
    match (source, target) {
        (source, target) if source == unified || target == unified => direction::UNKNOWN,
        (source, target) if source == host && target == host => direction::HOST_TO_HOST,
        (source, _) if source == host => direction::HOST_TO_DEVICE,
        (_, target) if target == host => direction::DEVICE_TO_HOST,
        _ => direction::DEVICE_TO_DEVICE,
    }
}
