//! NVIDIA's devices, by libnvidia-ml.so.1, which is loaded at run time.

mod device;
mod failure;
mod library;
mod list;
mod processes;
mod raw;
mod sensors;
mod topology;

use crate::source::Backend;

pub const BACKEND: Backend = Backend { name: "NVML", list: list::list, open: device::open };
