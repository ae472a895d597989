//! Arrays.

use crate::abi::{In, Out};
use crate::entry::{Call, api};
use gputrace_sim::array::Array;
use gputrace_sim::error::{Code, Result};
use gputrace_sim::world::with;

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Flat {
    width: u64,
    height: u64,
    format: u32,
    channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Deep {
    width: u64,
    height: u64,
    depth: u64,
    format: u32,
    channels: u32,
    flags: u32,
}

fn create(handle: Out<u64>, wanted: Deep) -> Result {
    handle.required()?;
    if wanted.width == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let Deep { width, height, depth, format, channels, flags } = wanted;
    let array = Array { context: 0, base: 0, width, height, depth, format, channels, flags };
    handle.set(with(|w| w.create_array(array))?)
}

/// One array with the elements of all levels; layers are not told from slices.
fn create_mipmap(handle: Out<u64>, wanted: Deep, levels: u32) -> Result {
    let halved = |side: u64, level: u32| side.checked_shr(level).unwrap_or(0).max(1);
    let elements =
        |level| halved(wanted.width, level) * halved(wanted.height, level) * halved(wanted.depth, level);
    let width = (0..levels.clamp(1, 32)).map(elements).sum();
    create(handle, Deep { width, height: 0, depth: 0, ..wanted })
}

fn describe(array: u64) -> Result<Array> {
    with(|w| w.arrays.get(array).copied())
}

api! {
    "cuArrayCreate" 3020 fn cuArrayCreate_v2(pHandle: Out<u64>, pAllocateArray: In<Flat>) |_| {
        let Flat { width, height, format, channels } = pAllocateArray.get()?;
        create(pHandle, Deep { width, height, depth: 0, format, channels, flags: 0 })
    }
    "cuArray3DCreate" 3020 fn cuArray3DCreate_v2(pHandle: Out<u64>, pAllocateArray: In<Deep>) |_| {
        create(pHandle, pAllocateArray.get()?)
    }
    "cuArrayGetDescriptor" 3020 fn cuArrayGetDescriptor_v2(pArrayDescriptor: Out<Flat>, hArray: u64) |_| {
        let Array { width, height, format, channels, .. } = describe(hArray)?;
        pArrayDescriptor.set(Flat { width, height, format, channels })
    }
    "cuArray3DGetDescriptor" 3020 fn cuArray3DGetDescriptor_v2(pArrayDescriptor: Out<Deep>, hArray: u64) |_| {
        let Array { width, height, depth, format, channels, flags, .. } = describe(hArray)?;
        pArrayDescriptor.set(Deep { width, height, depth, format, channels, flags })
    }
    "cuMipmappedArrayCreate" 5000 fn cuMipmappedArrayCreate(pHandle: Out<u64>, pMipmappedArrayDesc: In<Deep>, numMipmapLevels: u32) |_| {
        create_mipmap(pHandle, pMipmappedArrayDesc.get()?, numMipmapLevels)
    }
    "cuMipmappedArrayDestroy" 5000 fn cuMipmappedArrayDestroy(hMipmappedArray: u64) |_| {
        with(|w| w.destroy_array(hMipmappedArray))
    }
    "cuArrayDestroy" 2000 fn cuArrayDestroy(hArray: u64) |_| {
        with(|w| w.destroy_array(hArray))
    }
}
