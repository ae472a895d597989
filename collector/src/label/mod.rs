//! What everything that is shown is called: the same in every output.

mod kernels;
mod stream_name;
pub mod units;

pub use kernels::{KernelName, KernelNames};
pub(crate) use stream_name::{LEGACY_STREAM, PER_THREAD_STREAM, stream_name};
