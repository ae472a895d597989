//! Kernel launches.

use core::ffi::c_uint;
use core::hint::cold_path;

use cupti_sys::driver::{CUlaunchAttributeID, CUlaunchConfig};
use gputrace_wire::call::{Detail, Launch};
use gputrace_wire::cell::{flag, kind};

use crate::hook::description::{Context, Description, On};
use crate::symbols::driver::Handle;

/// The most launch attributes looked at: the driver knows fewer than twenty.
const ATTRIBUTES_MAX: usize = 64;

#[inline(always)]
pub fn kernel(
    cx: &Context,
    function: Handle,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    stream: Handle,
) -> Description {
    description(cx, function, grid, block, [0; 3], shared, stream)
}

#[inline(always)]
fn description(
    cx: &Context,
    function: Handle,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    cluster: [u8; 3],
    shared: c_uint,
    stream: Handle,
) -> Description {
    let function = cx.function(function);
    let (grid, block) = sizes(grid, block);
    Description {
        kind: kind::LAUNCH,
        flags: flag::ASYNC,
        stream: On::Stream(stream),
        detail: Detail::Launch(Launch { function, grid, block, cluster, dynamic_shared_bytes: shared }),
    }
}

/// The sizes, as far as an entry has room for them. No launch that works has larger ones, so that all are
/// compared at once.
#[inline(always)]
fn sizes(grid: [c_uint; 3], block: [c_uint; 3]) -> ([u32; 3], [u16; 3]) {
    if (grid[1] | grid[2] | block[0] | block[1]) > 0xffff || block[2] > 0xff {
        cold_path();
        let [x, y, z] = block;
        return (
            [grid[0], grid[1].min(0xffff), grid[2].min(0xffff)],
            [x.min(0xffff) as u16, y.min(0xffff) as u16, z.min(0xff) as u16],
        );
    }
    ([grid[0], grid[1] & 0xffff, grid[2] & 0xffff], [block[0] as u16, block[1] as u16, block[2] as u8 as u16])
}

pub fn kernel_ex(cx: &Context, config: *const CUlaunchConfig, function: Handle) -> Description {
    // SAFETY: the original was given the same pointer and reads it. If it is null the original fails, and
    // nothing is read here.
    let Some(config) = (unsafe { config.as_ref() }) else {
        return description(cx, function, [0; 3], [0; 3], [0; 3], 0, core::ptr::null_mut());
    };
    let grid = [config.gridDimX, config.gridDimY, config.gridDimZ];
    let block = [config.blockDimX, config.blockDimY, config.blockDimZ];
    description(cx, function, grid, block, cluster(config), config.sharedMemBytes, config.hStream.cast())
}

/// The stream of a launch; the default one if the configuration is null, with which the launch fails.
#[inline(always)]
pub fn stream_of(config: *const CUlaunchConfig) -> Handle {
    // SAFETY: the original is given the same pointer and reads it. If it is null, nothing is read here.
    unsafe { config.as_ref() }.map_or(core::ptr::null_mut(), |config| config.hStream.cast())
}

/// The cluster dimensions of a launch; zeros if none are given.
fn cluster(config: &CUlaunchConfig) -> [u8; 3] {
    let count = config.numAttrs as usize;
    if config.attrs.is_null() || count > ATTRIBUTES_MAX {
        return [0; 3];
    }
    // SAFETY: the caller gives this number of attributes, and the original reads them all.
    let attributes = unsafe { core::slice::from_raw_parts(config.attrs, count) };
    attributes
        .iter()
        .find(|attribute| attribute.id == CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
        .map_or([0; 3], |attribute| {
            // SAFETY: with this id, the value begins with three 32-bit sizes.
            let sizes = unsafe { (&raw const attribute.value).cast::<[u32; 3]>().read_unaligned() };
            sizes.map(|size| size.min(255) as u8)
        })
}

/// A cooperative launch on several devices (removed in CUDA 13): counted as a call of no known operation.
pub fn multi_device(_: &Context, devices: c_uint) -> Description {
    Description {
        kind: kind::CALL,
        flags: flag::ASYNC,
        stream: On::Nothing,
        detail: Detail::Other { operation: 0, value: devices.into() },
    }
}
