//! The private table by which the simulated CUPTI reaches the simulated driver.
//!
//! `libcuda.so.1` exports one function that returns it. Both sides are built
//! together, but may be installed apart: [`Interface::version`] is checked first.

use crate::activity::Sink;
use std::ffi::{c_char, c_void};

/// Name of the exported function.
pub const SYMBOL: &std::ffi::CStr = c"gputrace_sim_interface";
/// Changes with any change of the structures here or of [`crate::activity::Activity`].
pub const VERSION: u32 = 3;

/// A driver function entered or left.
#[repr(C)]
pub struct CallEvent {
    pub cbid: u32,
    /// 0 on entry, 1 on exit.
    pub exit: u32,
    pub function_name: *const c_char,
    /// The arguments in a structure, in order.
    pub parameters: *const c_void,
    /// On exit, the result.
    pub result: *const u32,
    /// Name of the kernel for launches, else null.
    pub symbol_name: *const c_char,
    pub context: u64,
    pub context_uid: u32,
    pub correlation: u32,
    /// 64 bits that entry and exit of one call share.
    pub shared: *mut u64,
}

/// Called for each enabled function.
pub type CallSink = extern "C" fn(*const CallEvent);

/// A node of a graph was made.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NodeEvent {
    pub graph: u64,
    pub node: u64,
    pub id: u64,
}

/// Called for each node.
pub type NodeSink = extern "C" fn(*const NodeEvent);

/// What the driver offers.
#[repr(C)]
pub struct Interface {
    pub version: u32,
    pub size: u32,
    /// Whether `cuInit` succeeded in this process.
    pub initialised: extern "C" fn() -> bool,
    /// Virtual time in ns.
    pub now_ns: extern "C" fn() -> u64,
    /// What makes virtual time the time of day.
    pub time_of_day_offset_ns: extern "C" fn() -> u64,
    /// Sets the callback for records, and their kinds (a bit each).
    pub subscribe_activity: extern "C" fn(Option<Sink>, u64),
    /// Sets the callback for enabled functions.
    pub subscribe_calls: extern "C" fn(Option<CallSink>),
    /// Sets the callback for each new node of a graph.
    pub subscribe_nodes: extern "C" fn(Option<NodeSink>),
    /// Claims the driver's one slot for the tool with this address. Returns whether the tool has the slot.
    pub claim_tool_slot: extern "C" fn(usize) -> bool,
    /// Releases the slot, if the tool has it.
    pub release_tool_slot: extern "C" fn(usize),
    /// Enables one function by its number, or all with `u32::MAX`.
    pub enable_call: extern "C" fn(u32, bool),
    /// Uid of a context; 0 for a wrong handle.
    pub context_uid: extern "C" fn(u64) -> u32,
    /// Device of a context; -1 for a wrong handle.
    pub context_device: extern "C" fn(u64) -> i32,
    /// Id of a stream (context, stream, per thread); 0 for a wrong handle.
    pub stream_id: extern "C" fn(u64, u64, bool) -> u32,
    /// Ids of a graph, an executable graph, a node; 0 for a wrong handle.
    pub graph_id: extern "C" fn(u64) -> u32,
    pub executable_id: extern "C" fn(u64) -> u32,
    pub node_id: extern "C" fn(u64) -> u64,
    /// The calling thread's current context, or 0.
    pub current_context: extern "C" fn() -> u64,
}
