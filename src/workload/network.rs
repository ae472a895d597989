//! The pretend network, a small transformer: which kernels its parts launch, and in which order.

use std::ffi::CStr;

use crate::workload::driver::DriverError;
use crate::workload::gpu::Gpu;
use crate::workload::kernels::Kernel::{self, *};
use crate::workload::ranges::Range;

/// Layers between the embedding and the loss.
pub const LAYERS: u32 = 4;

type Done = Result<(), DriverError>;

/// The kernels of one part, in a range that is named after it.
fn part(gpu: &Gpu, name: &CStr, kernels: &[Kernel]) -> Done {
    let _range = Range::new(name);
    kernels.iter().try_for_each(|kernel| gpu.launch(*kernel))
}

pub fn forward(gpu: &Gpu) -> Done {
    let _range = Range::new(c"forward");
    part(gpu, c"embedding", &[Embedding])?;
    for _ in 0..LAYERS {
        let _range = Range::new(c"layer");
        part(gpu, c"attention", &[LayerNorm, Gemm, Softmax, Gemm])?;
        part(gpu, c"mlp", &[LayerNorm, Gemm, Gelu, Gemm])?;
    }
    part(gpu, c"loss", &[Gemm, CrossEntropy])
}

pub fn backward(gpu: &Gpu) -> Done {
    let _range = Range::new(c"backward");
    part(gpu, c"loss", &[CrossEntropy, GemmBackward])?;
    for _ in 0..LAYERS {
        let _range = Range::new(c"layer");
        part(gpu, c"mlp", &[GemmBackward, GeluBackward, GemmBackward, LayerNormBackward])?;
        part(gpu, c"attention", &[GemmBackward, SoftmaxBackward, GemmBackward, LayerNormBackward])?;
    }
    part(gpu, c"embedding", &[EmbeddingBackward])
}
