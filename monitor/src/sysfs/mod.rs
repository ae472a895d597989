//! AMD's and Intel's devices, from the files of the kernel's drivers, as its documentation describes them.
//!
//! Nothing here has run on such a device. A file that is not there is a value that is not known.

mod card;
mod clients;
mod device;
mod file;
mod sensors;

use crate::device::GpuVendor;
use crate::source::Backend;

#[cfg(feature = "rocm")]
pub const AMD: Backend = Backend {
    name: "amdgpu",
    list: |config, first| Ok(card::list(config, first, GpuVendor::Amd)),
    open: device::open,
};

#[cfg(feature = "intel")]
pub const INTEL: Backend = Backend {
    name: "i915 and xe",
    list: |config, first| Ok(card::list(config, first, GpuVendor::Intel)),
    open: device::open,
};
