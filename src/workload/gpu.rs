//! What the demo holds on the device: buffers, streams, the kernels' module. Made once, and released.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

use crate::workload::driver::{DevicePointer, Driver, DriverError, Handle};
use crate::workload::kernels::{self, KERNELS, Kernel};

const ELEMENTS: u32 = 1 << 20;
const THREADS_PER_BLOCK: u32 = 256;
/// Bytes of a batch of training data, of which the kernels read the first ELEMENTS floats.
pub const BATCH_BYTES: usize = 4 * ELEMENTS as usize * 4;
/// Bytes of the weights, and of their gradients.
pub const WEIGHT_BYTES: usize = 2 * BATCH_BYTES;

pub struct Gpu<'d> {
    pub driver: &'d Driver,
    device: c_int,
    functions: Vec<Handle>,
    pub weights: DevicePointer,
    pub gradients: DevicePointer,
    pub batch: DevicePointer,
    /// Pinned, and as long as the weights.
    pub host: *mut c_void,
    pub compute: Handle,
    pub copies: Handle,
    /// Recorded when a batch is on the device.
    pub arrived: Handle,
}

impl<'d> Gpu<'d> {
    pub fn set_up(driver: &'d Driver) -> Result<Gpu<'d>, DriverError> {
        let mut gpu = Gpu {
            driver,
            device: 0,
            functions: Vec::new(),
            weights: 0,
            gradients: 0,
            batch: 0,
            host: null_mut(),
            compute: null_mut(),
            copies: null_mut(),
            arrived: null_mut(),
        };
        let (mut context, mut module) = (null_mut(), null_mut());
        let text = kernels::ptx();
        let d = driver;
        // SAFETY: every pointer is to a local or a field that outlives the call, every handle
        // came from the call before, and the PTX ends with a NUL.
        unsafe {
            d.check("cuDeviceGet", (d.device)(&raw mut gpu.device, 0))?;
            d.check("cuDevicePrimaryCtxRetain", (d.primary_retain)(&raw mut context, gpu.device))?;
            d.check("cuCtxSetCurrent", (d.set_current)(context))?;
            d.check("cuModuleLoadData", (d.module_load)(&raw mut module, text.as_ptr().cast()))?;
            d.check("cuMemAlloc", (d.alloc)(&raw mut gpu.weights, WEIGHT_BYTES))?;
            d.check("cuMemAlloc", (d.alloc)(&raw mut gpu.gradients, WEIGHT_BYTES))?;
            d.check("cuMemAlloc", (d.alloc)(&raw mut gpu.batch, BATCH_BYTES))?;
            d.check("cuMemAllocHost", (d.alloc_host)(&raw mut gpu.host, WEIGHT_BYTES))?;
            // 1: the stream does not wait for the default stream.
            d.check("cuStreamCreate", (d.stream_create)(&raw mut gpu.compute, 1))?;
            d.check("cuStreamCreate", (d.stream_create)(&raw mut gpu.copies, 1))?;
            // 2: the event keeps no time.
            d.check("cuEventCreate", (d.event_create)(&raw mut gpu.arrived, 2))?;
        }
        for (name, _) in KERNELS {
            gpu.functions.push(d.function(module, name)?);
        }
        Ok(gpu)
    }

    /// Launches a kernel over the batch, in the compute stream.
    pub fn launch(&self, kernel: Kernel) -> Result<(), DriverError> {
        let (mut result, mut input) = (self.weights, self.batch);
        let (mut count, mut rounds): (c_uint, c_uint) = (ELEMENTS, kernel.rounds());
        let mut arguments: [*mut c_void; 4] = [
            (&raw mut result).cast(),
            (&raw mut input).cast(),
            (&raw mut count).cast(),
            (&raw mut rounds).cast(),
        ];
        let blocks = ELEMENTS.div_ceil(THREADS_PER_BLOCK);
        let function = self.functions[kernel as usize];
        // SAFETY: the arguments match the kernels' four parameters and are copied by the call; the
        // buffers hold ELEMENTS floats and live until `release`.
        let code = unsafe {
            (self.driver.launch)(
                function,
                blocks,
                1,
                1,
                THREADS_PER_BLOCK,
                1,
                1,
                0,
                self.compute,
                arguments.as_mut_ptr(),
                null_mut(),
            )
        };
        self.driver.check("cuLaunchKernel", code)
    }

    /// Copies the first bytes of the weights to the host and waits for them.
    pub fn read_weights(&self, bytes: usize) -> Result<(), DriverError> {
        let d = self.driver;
        // SAFETY: both buffers are WEIGHT_BYTES long, and callers ask for no more; the stream is ours.
        unsafe {
            d.check("cuMemcpyDtoHAsync", (d.to_host)(self.host, self.weights, bytes, self.compute))?;
            d.check("cuStreamSynchronize", (d.stream_synchronize)(self.compute))
        }
    }

    pub fn release(self) -> Result<(), DriverError> {
        let d = self.driver;
        // SAFETY: everything here was made in set_up and is used no more.
        unsafe {
            d.check("cuCtxSynchronize", (d.synchronize)())?;
            d.check("cuEventDestroy", (d.event_destroy)(self.arrived))?;
            d.check("cuStreamDestroy", (d.stream_destroy)(self.copies))?;
            d.check("cuStreamDestroy", (d.stream_destroy)(self.compute))?;
            d.check("cuMemFreeHost", (d.free_host)(self.host))?;
            d.check("cuMemFree", (d.free)(self.batch))?;
            d.check("cuMemFree", (d.free)(self.gradients))?;
            d.check("cuMemFree", (d.free)(self.weights))?;
            d.check("cuDevicePrimaryCtxRelease", (d.primary_release)(self.device))
        }
    }
}
