//! Allocations and frees.

use gputrace_wire::call::{Detail, Memory, memory};
use gputrace_wire::cell::{flag, kind};

use super::written;
use crate::hook::description::{Context, Description, On};
use crate::symbols::driver::{DevicePointer, Handle};

fn description(kind: u16, memory: u8, bytes: u64, address: u64, stream: Option<Handle>) -> Description {
    Description {
        kind,
        flags: if stream.is_some() { flag::ASYNC } else { 0 },
        stream: stream.map_or(On::Nothing, On::Stream),
        detail: Detail::Memory(Memory { memory, bytes, address, pool: 0 }),
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

pub fn freed(_: &Context, memory: u8, address: u64, stream: Option<Handle>) -> Description {
    description(kind::FREE, memory, 0, address, stream)
}
