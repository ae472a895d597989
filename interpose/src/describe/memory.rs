//! Allocations and frees, mappings, and what the program asks about the device's memory.

use core::ffi::{c_char, c_int};

use gputrace_wire::call::{Detail, MAPPED_UNIT, Memory, MemoryState, memory, operation};
use gputrace_wire::cell::{flag, kind};

use super::{given, sync, written};
use crate::hook::description::{Context, Description, On};
use crate::symbols::driver::{DevicePointer, Handle};

/// `CUipcMemHandle`, which is passed by value.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct IpcHandle {
    _bytes: [c_char; 64],
}

/// The beginning of `CUmemAllocationProp`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Properties {
    _kind: c_int,
    _handles: c_int,
    /// `CUmemLocationType`.
    location: c_int,
}

fn description(kind: u16, memory: u8, bytes: u64, address: u64, stream: Option<Handle>) -> Description {
    Description {
        kind,
        flags: if stream.is_some() { flag::ASYNC } else { 0 },
        stream: stream.map_or(On::Nothing, On::Stream),
        detail: Detail::Memory(Memory { memory, bytes, address, ..Memory::default() }),
    }
}

pub fn allocated(
    cx: &Context,
    memory: u8,
    bytes: usize,
    out: *const DevicePointer,
    stream: Option<Handle>,
) -> Description {
    // SAFETY: the call's own out pointer.
    let address = unsafe { written(cx, out) }.unwrap_or(0);
    description(kind::ALLOC, memory, bytes as u64, address, stream)
}

pub fn allocated_pitch(
    cx: &Context,
    pitch: *const usize,
    [width, height]: [usize; 2],
    out: *const DevicePointer,
) -> Description {
    // SAFETY: the call's own out pointers.
    let (pitch, address) = unsafe { (written(cx, pitch), written(cx, out)) };
    // Without a pitch, this is the requested minimum.
    let bytes = (pitch.unwrap_or(width) as u64).saturating_mul(height as u64);
    description(kind::ALLOC, memory::DEVICE, bytes, address.unwrap_or(0), None)
}

pub fn registered(_: &Context, bytes: usize, address: u64) -> Description {
    description(kind::ALLOC, memory::REGISTERED, bytes as u64, address, None)
}

/// A graph allocates at its launch, as if a stream's capture had recorded the call.
pub fn in_graph(bytes: u64, address: u64) -> Description {
    let made = description(kind::ALLOC, memory::POOL, bytes, address, None);
    Description { flags: flag::ASYNC | flag::CAPTURED, ..made }
}

/// An array whose size is not known.
pub fn of_unknown_size(mut made: Description) -> Description {
    if let Detail::Memory(what) = &mut made.detail {
        what.is_size_unknown = true;
    }
    made
}

pub fn freed(_: &Context, memory: u8, address: u64, stream: Option<Handle>) -> Description {
    description(kind::FREE, memory, 0, address, stream)
}

/// What a call did with memory, or found out about it.
pub fn stated(operation: u8, object: u64, value: u64) -> Description {
    Description {
        kind: kind::MEMORY,
        flags: 0,
        stream: On::Nothing,
        detail: Detail::MemoryState(MemoryState { operation, object, value, units: 0 }),
    }
}

/// Physical memory: of a device, or of the host, where NCCL has its buffers.
pub fn created(cx: &Context, out: *const u64, bytes: usize, what: *const Properties) -> Description {
    const HOST: core::ops::RangeInclusive<c_int> = 2..=4;
    // SAFETY: the call's own argument.
    let is_of_host = unsafe { given(cx, what) }.is_some_and(|what| HOST.contains(&what.location));
    allocated(cx, if is_of_host { memory::PINNED } else { memory::VIRTUAL }, bytes, out, None)
}

pub fn mapped(cx: &Context, address: DevicePointer, bytes: usize, handle: u64) -> Description {
    if !cx.succeeded() {
        return sync::other(cx, operation::MAP, bytes as u64);
    }
    // The driver's granularity is a multiple of the unit, and it maps handles from their begin on only.
    let units = u32::try_from((bytes as u64).div_ceil(MAPPED_UNIT)).unwrap_or(u32::MAX);
    let mut mapped = stated(operation::MAP, address, handle);
    if let Detail::MemoryState(state) = &mut mapped.detail {
        state.units = units;
    }
    mapped
}

pub fn unmapped(_: &Context, address: DevicePointer, bytes: usize) -> Description {
    stated(operation::UNMAP, address, bytes as u64)
}

/// One more handle of what is mapped at an address.
pub fn retained(cx: &Context, out: *const u64, address: u64) -> Description {
    // SAFETY: the call's own out pointer.
    let handle = unsafe { written(cx, out) }.unwrap_or(0);
    stated(operation::RETAIN, address, handle)
}

/// Another process's memory. No call says how much it is.
pub fn imported(cx: &Context, out: *const DevicePointer) -> Description {
    allocated(cx, memory::IMPORTED, 0, out, None)
}

/// The program asks how much memory of the device is free. No hook asks by itself.
pub fn asked(cx: &Context, free: *const usize, total: *const usize) -> Description {
    // SAFETY: the call's own out pointers.
    let (free, total) = unsafe { (written(cx, free), written(cx, total)) };
    match (free, total) {
        (Some(free), Some(total)) => stated(operation::QUERY, total as u64, free as u64),
        _ => sync::other(cx, operation::QUERY, 0),
    }
}
