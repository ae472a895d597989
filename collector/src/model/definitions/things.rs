//! The things that definitions describe, with named fields.

use gputrace_wire::definition::role;

use crate::batch::DeviceIdentity;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Function<'a> {
    pub handle: u64,
    /// The definition whose text is the name: a NAME, or the function itself.
    pub name_id: u32,
    pub name: &'a str,
    pub module: u32,
    pub registers: u32,
    pub static_shared_bytes: u32,
    pub local_bytes_per_thread: u32,
    pub max_threads_per_block: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Thread<'a> {
    pub tid: u32,
    /// One of [`role`].
    pub role: u64,
    /// The program's name for it, else the last one in the system.
    pub name: &'a str,
}

impl Thread<'_> {
    /// Whether it is a thread of the program, not of the tracer or the vendor.
    pub fn is_program(&self) -> bool {
        self.role == role::PROGRAM
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Context {
    pub handle: u64,
    /// Device definition.
    pub device: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamInfo {
    pub handle: u64,
    /// Context definition.
    pub context: u32,
    pub flags: u64,
    pub priority: i64,
    /// As device records name it; 0 if unknown.
    pub record_id: u32,
}

/// The handles of the default streams in stream definitions.
pub const LEGACY_STREAM: u64 = 1;
pub const PER_THREAD_STREAM: u64 = 2;
/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u64 = 1;

/// Whether streams wait for each other by themselves: the default stream and all that block do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StreamOrder {
    /// The default stream of old: its work waits for that of all blocking streams, and theirs for its.
    Default,
    Blocking,
    /// It waits for no other, or nothing is known of it.
    #[default]
    Free,
}

impl StreamInfo {
    pub fn order(&self) -> StreamOrder {
        match self.handle {
            LEGACY_STREAM => StreamOrder::Default,
            _ if self.flags & NON_BLOCKING == 0 => StreamOrder::Blocking,
            _ => StreamOrder::Free,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GraphInfo {
    pub handle: u64,
    pub executable: bool,
    pub source: u32,
    /// As device records name it; 0 if unknown.
    pub record_id: u32,
}

/// A device and the limits that occupancy needs. 0 where the driver gave none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Device {
    pub ordinal: u32,
    pub name: String,
    pub total_memory_bytes: u64,
    pub compute_major: u32,
    pub compute_minor: u32,
    pub multiprocessors: u32,
    pub warp_size: u32,
    pub max_threads_per_multiprocessor: u32,
    pub max_threads_per_block: u32,
    pub max_blocks_per_multiprocessor: u32,
    pub registers_per_multiprocessor: u32,
    pub registers_per_block: u32,
    pub shared_bytes_per_multiprocessor: u32,
    pub shared_bytes_per_block_optin: u32,
    pub reserved_shared_bytes_per_block: u32,
    pub clock_khz: u32,
    pub memory_clock_khz: u32,
    pub memory_bus_bits: u32,
    pub l2_bytes: u64,
    pub uuid: [u64; 2],
    pub pci_domain: u32,
    pub pci_bus: u32,
    pub pci_device: u32,
    pub simulated: bool,
}

impl Device {
    /// What the device is known by outside of the process.
    pub fn identity(&self) -> DeviceIdentity {
        DeviceIdentity { uuid: self.uuid, pci: [self.pci_domain, self.pci_bus, self.pci_device] }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProcessInfo {
    pub pid: u32,
    pub parent_pid: u32,
    /// The command line when tracing of the process began.
    pub command: Vec<String>,
    /// A later title in the system, if it differs.
    pub title: Option<Vec<String>>,
    pub driver_version: u32,
    pub simulated: bool,
    /// The launcher's rank of the process, overall and on this machine.
    pub rank: Option<u32>,
    pub local_rank: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Library<'a> {
    /// One of [`gputrace_wire::definition::library_role`].
    pub role: u64,
    pub path: &'a str,
    pub version: u64,
}

/// One line for the user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notice {
    /// 0 information, 1 something works less well than asked.
    pub severity: u64,
    /// One of [`gputrace_wire::definition::rung`], or 0.
    pub rung: u64,
    pub text: String,
}

/// From a moment on, how launches of graphs are timed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GraphTimes {
    /// One of [`gputrace_wire::definition::graph_mode`].
    pub mode: u64,
    /// One of [`gputrace_wire::definition::graph_reason`].
    pub reason: u64,
    pub at_ticks: u64,
    /// The measurements that led to the change, if any.
    pub launches: u64,
    pub nodes: u64,
    pub nodes_ns: u64,
}
