//! The pretend training loop: eager steps on two streams, then the same step as a graph.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::{null, null_mut};

use crate::workload::driver::{DevicePointer, Driver, DriverError, Handle};

/// NUL-terminated by the build of the text below, as the driver wants it.
const KERNELS: &str = concat!(include_str!("kernels.ptx"), "\0");

const EAGER_STEPS: u32 = 60;
const GRAPH_REPLAYS: u32 = 40;
const ELEMENTS: u32 = 1 << 20;
const BYTES: usize = ELEMENTS as usize * 4;
const THREADS_PER_BLOCK: u32 = 256;

/// The kernels of a step, with the rounds that give each its share of the time.
const STEP: [(&str, u32); 4] =
    [("gemm_forward", 600), ("softmax", 60), ("gemm_backward", 600), ("adam_step", 40)];

/// Initialises the driver, trains, and cleans up. Returns a line that names the device.
pub fn run() -> Result<String, DriverError> {
    let driver = Driver::open()?;
    driver.initialise()?;
    let name = driver.name(0)?;
    let training = Training::set_up(&driver)?;
    for step in 0..EAGER_STEPS {
        training.step(step)?;
    }
    training.replay(GRAPH_REPLAYS)?;
    training.tear_down()?;
    Ok(format!("trained {EAGER_STEPS} steps and {GRAPH_REPLAYS} graph replays on {name}\n"))
}

struct Training<'d> {
    driver: &'d Driver,
    device: c_int,
    functions: Vec<(Handle, u32)>,
    weights: DevicePointer,
    batch: DevicePointer,
    host: *mut c_void,
    compute: Handle,
    copies: Handle,
    arrived: Handle,
}

impl<'d> Training<'d> {
    fn set_up(driver: &'d Driver) -> Result<Training<'d>, DriverError> {
        let mut training = Training {
            driver,
            device: 0,
            functions: Vec::new(),
            weights: 0,
            batch: 0,
            host: null_mut(),
            compute: null_mut(),
            copies: null_mut(),
            arrived: null_mut(),
        };
        let (mut context, mut module) = (null_mut(), null_mut());
        let d = driver;
        // SAFETY: every pointer is to a local or a field that outlives the call, every handle
        // came from the call before, and KERNELS ends with a NUL.
        unsafe {
            d.check("cuDeviceGet", (d.device)(&raw mut training.device, 0))?;
            d.check("cuDevicePrimaryCtxRetain", (d.primary_retain)(&raw mut context, training.device))?;
            d.check("cuCtxSetCurrent", (d.set_current)(context))?;
            d.check("cuModuleLoadData", (d.module_load)(&raw mut module, KERNELS.as_ptr().cast()))?;
            d.check("cuMemAlloc", (d.alloc)(&raw mut training.weights, BYTES))?;
            d.check("cuMemAlloc", (d.alloc)(&raw mut training.batch, BYTES))?;
            d.check("cuMemAllocHost", (d.alloc_host)(&raw mut training.host, BYTES))?;
            // 1: the stream does not wait for the default stream.
            d.check("cuStreamCreate", (d.stream_create)(&raw mut training.compute, 1))?;
            d.check("cuStreamCreate", (d.stream_create)(&raw mut training.copies, 1))?;
            // 2: the event keeps no time.
            d.check("cuEventCreate", (d.event_create)(&raw mut training.arrived, 2))?;
            let fill = (d.fill)(training.weights, 0x3f80_0000, ELEMENTS as usize, training.compute);
            d.check("cuMemsetD32Async", fill)?;
        }
        for (name, rounds) in STEP {
            training.functions.push((d.function(module, name)?, rounds));
        }
        Ok(training)
    }

    /// One eager step: a batch in, four kernels, now and then the loss out.
    fn step(&self, step: u32) -> Result<(), DriverError> {
        let d = self.driver;
        // SAFETY: the buffers are BYTES long and live until tear_down; the handles are ours.
        unsafe {
            d.check("cuMemcpyHtoDAsync", (d.to_device)(self.batch, self.host, BYTES, self.copies))?;
            d.check("cuEventRecord", (d.event_record)(self.arrived, self.copies))?;
            d.check("cuStreamWaitEvent", (d.stream_wait)(self.compute, self.arrived, 0))?;
        }
        self.kernels()?;
        if step % 10 == 9 {
            // SAFETY: as above; 4 bytes fit the buffer.
            unsafe {
                d.check("cuMemcpyDtoHAsync", (d.to_host)(self.host, self.weights, 4, self.compute))?;
            }
        }
        // SAFETY: the stream is ours.
        d.check("cuStreamSynchronize", unsafe { (d.stream_synchronize)(self.compute) })
    }

    fn kernels(&self) -> Result<(), DriverError> {
        for (function, rounds) in &self.functions {
            let (mut weights, mut batch) = (self.weights, self.batch);
            let (mut count, mut rounds): (c_uint, c_uint) = (ELEMENTS, *rounds);
            let mut arguments: [*mut c_void; 4] = [
                (&raw mut weights).cast(),
                (&raw mut batch).cast(),
                (&raw mut count).cast(),
                (&raw mut rounds).cast(),
            ];
            let blocks = ELEMENTS.div_ceil(THREADS_PER_BLOCK);
            // SAFETY: the arguments match the kernels' four parameters and are copied by the call.
            let code = unsafe {
                (self.driver.launch)(
                    *function,
                    blocks,
                    1,
                    1,
                    THREADS_PER_BLOCK,
                    1,
                    1,
                    0,
                    self.compute,
                    arguments.as_mut_ptr(),
                    null::<*mut c_void>().cast_mut(),
                )
            };
            self.driver.check("cuLaunchKernel", code)?;
        }
        Ok(())
    }

    /// Captures a step's kernels once and replays them.
    fn replay(&self, times: u32) -> Result<(), DriverError> {
        let d = self.driver;
        let (mut graph, mut executable) = (null_mut(), null_mut());
        // SAFETY: the stream is ours and nobody else uses it; the handles come from these calls.
        unsafe {
            // 1: other threads may go on calling what a capture forbids its own.
            d.check("cuStreamBeginCapture", (d.begin_capture)(self.compute, 1))?;
            self.kernels()?;
            d.check("cuStreamEndCapture", (d.end_capture)(self.compute, &raw mut graph))?;
            d.check("cuGraphInstantiate", (d.instantiate)(&raw mut executable, graph, 0))?;
            for _ in 0..times {
                d.check("cuGraphLaunch", (d.graph_launch)(executable, self.compute))?;
            }
            d.check("cuStreamSynchronize", (d.stream_synchronize)(self.compute))?;
            d.check("cuGraphExecDestroy", (d.graph_exec_destroy)(executable))?;
            d.check("cuGraphDestroy", (d.graph_destroy)(graph))
        }
    }

    fn tear_down(self) -> Result<(), DriverError> {
        let d = self.driver;
        // SAFETY: everything here was made in set_up and is used no more.
        unsafe {
            d.check("cuMemcpyDtoHAsync", (d.to_host)(self.host, self.weights, BYTES, self.compute))?;
            d.check("cuCtxSynchronize", (d.synchronize)())?;
            d.check("cuEventDestroy", (d.event_destroy)(self.arrived))?;
            d.check("cuStreamDestroy", (d.stream_destroy)(self.copies))?;
            d.check("cuStreamDestroy", (d.stream_destroy)(self.compute))?;
            d.check("cuMemFreeHost", (d.free_host)(self.host))?;
            d.check("cuMemFree", (d.free)(self.batch))?;
            d.check("cuMemFree", (d.free)(self.weights))?;
            d.check("cuDevicePrimaryCtxRelease", (d.primary_release)(self.device))
        }
    }
}
