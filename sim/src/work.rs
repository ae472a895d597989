//! The operations of streams and of graphs' nodes.

use crate::copy::Copy;
use crate::fill::Fill;
use crate::graph_exec::Plan;
use crate::handle::Handle;
use crate::launch::Kernel;
use crate::timeline::Moment;
use std::ffi::c_void;
use std::sync::Arc;

/// A function of the host program, to be called with its argument.
#[derive(Clone, Copy, Debug)]
pub struct HostCall {
    pub function: extern "C" fn(*mut c_void),
    pub argument: *mut c_void,
}

// SAFETY: the program gave the pair to be called on a thread that is not its own, as the driver does.
unsafe impl Send for HostCall {}
// SAFETY: as above; the pair is never changed.
unsafe impl Sync for HostCall {}

/// The callback of `cuStreamAddCallback`.
#[derive(Clone, Copy, Debug)]
pub struct StreamCallback {
    pub function: extern "C" fn(u64, u32, *mut c_void),
    /// The stream's handle as the program wrote it.
    pub stream: u64,
    pub argument: *mut c_void,
}

// SAFETY: as for `HostCall`.
unsafe impl Send for StreamCallback {}

/// How a word in memory is compared by a waiting stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    AtLeast,
    Equal,
    AnyBit,
    NotOr,
}

/// A wait for a word in memory.
#[derive(Clone, Copy, Debug)]
pub struct ValueWait {
    pub address: u64,
    pub value: u64,
    pub wide: bool,
    pub comparison: Comparison,
}

/// A store of a word into memory.
#[derive(Clone, Copy, Debug)]
pub struct ValueWrite {
    pub address: u64,
    pub value: u64,
    pub wide: bool,
}

/// One operation, in a stream or in a graph's node.
pub enum Work {
    /// A mark in the stream, which takes no time. An event records its moment.
    Mark,
    Kernel(Kernel),
    Copy(Copy),
    Fill(Fill),
    Host(HostCall),
    Callback(StreamCallback),
    /// Waits for that moment.
    WaitFor(Moment),
    WaitValue(ValueWait),
    WriteValue(ValueWrite),
    /// Frees an allocation at this point of the stream.
    Free(u64),
    Graph(Arc<Plan>),
}

/// The ids of a stream, its context and its device, for the records of its operations.
#[derive(Clone, Copy, Debug)]
pub struct StreamIds {
    pub stream: Handle,
    pub context: Handle,
    pub context_uid: u32,
    pub device: u32,
    pub stream_id: u32,
    pub priority: i32,
}
