//! The demo's workload: a pretend training loop on the CUDA driver API, run under the tracer like
//! any other program. It knows nothing of the tracer.

pub mod driver;
mod gpu;
mod kernels;
mod network;
mod ranges;
pub mod training;
