//! Kernel launches.

use std::time::Duration;

use crate::abi::In;
use crate::entry::{Call, api};
use gputrace_sim::error::{Code, Result};
use gputrace_sim::launch::{Arguments, Request};
use gputrace_sim::world::with;
use std::ffi::c_void;

type ArgumentList = *const *const c_void;

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Configuration {
    grid: [u32; 3],
    block: [u32; 3],
    pub shared_bytes: u32,
    stream: u64,
    attributes: In<LaunchAttribute>,
    attribute_count: u32,
}

/// `CUlaunchAttribute`: a number and a value of up to 64 bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LaunchAttribute {
    id: u32,
    pad: u32,
    value: [u32; 16],
}

/// Attribute numbers that change what is launched.
const COOPERATIVE: u32 = 2;
const CLUSTER_DIMENSION: u32 = 4;
/// Attribute numbers run up to this one.
const LAST_ATTRIBUTE: u32 = 16;

impl Configuration {
    /// The cluster that the attributes ask for; zeroes if none.
    pub fn cluster(&self) -> Result<[u32; 3]> {
        let attributes = self.attributes.list(self.attribute_count as usize)?;
        let stated = attributes.iter().find(|attribute| attribute.id == CLUSTER_DIMENSION);
        Ok(stated.map_or([0; 3], |attribute| [attribute.value[0], attribute.value[1], attribute.value[2]]))
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.block.iter().fold(1, |all, side| all.saturating_mul(*side))
    }
}

fn launch(call: &Call, request: &Request, stream: u64) -> Result {
    let stream = call.stream(stream);
    let launch_ns = with(|w| {
        let stream = w.stream(stream)?;
        w.launch(request, stream)?;
        Ok(w.functions.get(request.function)?.entry.launch_ns)
    })?;
    if launch_ns > 0 {
        std::thread::sleep(Duration::from_nanos(launch_ns));
    }
    Ok(())
}

api! {
    "cuLaunchKernel" 4000 fn cuLaunchKernel / 7000 cuLaunchKernel_ptsz(
        f: u64, gridDimX: u32, gridDimY: u32, gridDimZ: u32, blockDimX: u32, blockDimY: u32, blockDimZ: u32,
        sharedMemBytes: u32, hStream: u64, kernelParams: ArgumentList, extra: ArgumentList,
    ) |c| {
        let request = Request {
            function: f,
            grid: [gridDimX, gridDimY, gridDimZ],
            block: [blockDimX, blockDimY, blockDimZ],
            dynamic_shared: sharedMemBytes,
            cluster: [0; 3],
            cooperative: false,
            arguments: Arguments { list: kernelParams, extra },
        };
        launch(c, &request, hStream)
    }
    "cuLaunchKernelEx" 11060 fn cuLaunchKernelEx / 11060 cuLaunchKernelEx_ptsz(
        config: In<Configuration>, f: u64, kernelParams: ArgumentList, extra: ArgumentList,
    ) |c| {
        let config = config.get()?;
        let cluster = config.cluster()?;
        let mut cooperative = false;
        for attribute in config.attributes.list(config.attribute_count as usize)? {
            match attribute.id {
                COOPERATIVE => cooperative = attribute.value[0] != 0,
                id if id > LAST_ATTRIBUTE => return Err(Code::INVALID_VALUE),
                _ => {}
            }
        }
        let request = Request {
            function: f,
            grid: config.grid,
            block: config.block,
            dynamic_shared: config.shared_bytes,
            cluster,
            cooperative,
            arguments: Arguments { list: kernelParams, extra },
        };
        launch(c, &request, config.stream)
    }
    "cuLaunchCooperativeKernel" 9000 fn cuLaunchCooperativeKernel / 9000 cuLaunchCooperativeKernel_ptsz(
        f: u64, gridDimX: u32, gridDimY: u32, gridDimZ: u32, blockDimX: u32, blockDimY: u32, blockDimZ: u32,
        sharedMemBytes: u32, hStream: u64, kernelParams: ArgumentList,
    ) |c| {
        let request = Request {
            function: f,
            grid: [gridDimX, gridDimY, gridDimZ],
            block: [blockDimX, blockDimY, blockDimZ],
            dynamic_shared: sharedMemBytes,
            cluster: [0; 3],
            cooperative: true,
            arguments: Arguments { list: kernelParams, extra: std::ptr::null() },
        };
        launch(c, &request, hStream)
    }
}
