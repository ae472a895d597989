//! Names of everything that outputs show: processes, threads, streams, devices, kernels, quantities.
//!
//! A name is looked up once and is the same in every output. Numbers that tell equal names apart
//! count only what appears in one output.

mod devices;
mod kernels;
mod machinery;
mod processes;
mod stacks;
mod streams;
mod threads;
pub mod units;

pub(crate) use devices::{DeviceNames, uuid};
pub use kernels::{KernelName, KernelNames};
pub use processes::ProcessNames;
pub use stacks::{Line, NO_LINE, StackFrame, Stacks};
pub(crate) use streams::{LEGACY_STREAM, PER_THREAD_STREAM, StreamNames, stream_name};
pub(crate) use threads::ThreadNames;
