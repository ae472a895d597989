//! The pretend training: eager steps, then an evaluation that replays a CUDA graph, then a checkpoint.

use std::ptr::null_mut;

use crate::workload::driver::{Driver, DriverError};
use crate::workload::gpu::{BATCH_BYTES, Gpu, WEIGHT_BYTES};
use crate::workload::kernels::Kernel::AdamStep;
use crate::workload::network::{LAYERS, backward, forward};
use crate::workload::ranges::{self, Range};

const STEPS: u32 = 12;
const REPLAYS: u32 = 10;
/// Bytes of the loss, which is read after each step.
const LOSS_BYTES: usize = 4;

/// Initialises the driver, trains, evaluates and cleans up. Returns a line that names the device.
pub fn run() -> Result<String, DriverError> {
    ranges::open();
    let driver = Driver::open()?;
    driver.initialise()?;
    let name = driver.name(0)?;
    let gpu = Gpu::set_up(&driver)?;
    load_weights(&gpu)?;
    train(&gpu)?;
    evaluate(&gpu)?;
    save_checkpoint(&gpu)?;
    gpu.release()?;
    Ok(format!("trained {STEPS} steps and evaluated {REPLAYS} batches by a graph on {name}\n"))
}

fn load_weights(gpu: &Gpu) -> Result<(), DriverError> {
    let _range = Range::new(c"load weights");
    let d = gpu.driver;
    // SAFETY: both buffers are WEIGHT_BYTES long and live until `release`; the stream is ours.
    unsafe {
        let copied = (d.to_device)(gpu.weights, gpu.host, WEIGHT_BYTES, gpu.compute);
        d.check("cuMemcpyHtoDAsync", copied)?;
        d.check("cuStreamSynchronize", (d.stream_synchronize)(gpu.compute))
    }
}

fn train(gpu: &Gpu) -> Result<(), DriverError> {
    let _range = Range::new(c"train");
    for _ in 0..STEPS {
        let _range = Range::new(c"step");
        load_batch(gpu)?;
        forward(gpu)?;
        backward(gpu)?;
        optimizer(gpu)?;
        let _range = Range::new(c"read loss");
        gpu.read_weights(LOSS_BYTES)?;
    }
    Ok(())
}

/// Copies a batch to the device in a stream of its own; the compute stream waits for it.
fn load_batch(gpu: &Gpu) -> Result<(), DriverError> {
    let _range = Range::new(c"load batch");
    let d = gpu.driver;
    // SAFETY: the batch is BATCH_BYTES long and the host's buffer longer; the handles are ours.
    unsafe {
        d.check("cuMemcpyHtoDAsync", (d.to_device)(gpu.batch, gpu.host, BATCH_BYTES, gpu.copies))?;
        d.check("cuEventRecord", (d.event_record)(gpu.arrived, gpu.copies))?;
        d.check("cuStreamWaitEvent", (d.stream_wait)(gpu.compute, gpu.arrived, 0))
    }
}

fn optimizer(gpu: &Gpu) -> Result<(), DriverError> {
    let _range = Range::new(c"optimizer");
    for _ in 0..=LAYERS {
        gpu.launch(AdamStep)?;
    }
    let _range = Range::new(c"zero gradients");
    let d = gpu.driver;
    // SAFETY: the buffer is WEIGHT_BYTES long; the stream is ours.
    let code = unsafe { (d.fill)(gpu.gradients, 0, WEIGHT_BYTES / 4, gpu.compute) };
    d.check("cuMemsetD32Async", code)
}

/// Captures a forward pass as a graph once, and replays it for each batch.
fn evaluate(gpu: &Gpu) -> Result<(), DriverError> {
    let _range = Range::new(c"evaluate");
    let d = gpu.driver;
    let (mut graph, mut executable) = (null_mut(), null_mut());
    // SAFETY: the stream is ours and nobody else uses it; the handles come from these calls.
    unsafe {
        {
            let _range = Range::new(c"capture graph");
            // 1: other threads may go on calling what a capture forbids its own.
            d.check("cuStreamBeginCapture", (d.begin_capture)(gpu.compute, 1))?;
            forward(gpu)?;
            d.check("cuStreamEndCapture", (d.end_capture)(gpu.compute, &raw mut graph))?;
            d.check("cuGraphInstantiate", (d.instantiate)(&raw mut executable, graph, 0))?;
        }
        for _ in 0..REPLAYS {
            load_batch(gpu)?;
            d.check("cuGraphLaunch", (d.graph_launch)(executable, gpu.compute))?;
        }
        gpu.read_weights(LOSS_BYTES)?;
        d.check("cuGraphExecDestroy", (d.graph_exec_destroy)(executable))?;
        d.check("cuGraphDestroy", (d.graph_destroy)(graph))
    }
}

fn save_checkpoint(gpu: &Gpu) -> Result<(), DriverError> {
    let _range = Range::new(c"save checkpoint");
    gpu.read_weights(WEIGHT_BYTES)
}
