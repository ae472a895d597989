//! Kernel launches.

use core::ffi::c_uint;

use cupti_sys::driver::{CUlaunchAttributeID, CUlaunchConfig};
use gputrace_wire::call::Detail;
use gputrace_wire::cell::{flag, kind};

use crate::hook::description::{Context, Description, On, Sizes};
use crate::symbols::driver::Handle;

/// The most launch attributes looked at: the driver knows fewer than twenty.
const ATTRIBUTES_MAX: usize = 64;

#[inline(always)]
pub fn sizes(grid: [c_uint; 3], block: [c_uint; 3], shared: c_uint) -> Sizes {
    Sizes { grid, block, cluster: [0; 3], shared }
}

pub fn sizes_ex(config: *const CUlaunchConfig) -> Sizes {
    // SAFETY: the original was given the same pointer and reads it. If it is null the original fails, and
    // nothing is read here.
    let Some(config) = (unsafe { config.as_ref() }) else { return Sizes::default() };
    Sizes {
        grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
        block: [config.blockDimX, config.blockDimY, config.blockDimZ],
        cluster: cluster(config),
        shared: config.sharedMemBytes,
    }
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
