//! Device activity, as the engine reports it to CUPTI.
//!
//! Owns the record that crosses from `libcuda.so.1` to `libcupti.so`, the set of
//! wanted kinds, and the correlation ids. How CUPTI's own records look is
//! `sim/cupti`'s business.

use crate::status;
use std::cell::Cell;
use std::ffi::c_char;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Kinds, numbered as `CUpti_ActivityKind`.
pub const MEMCPY: u32 = 1;
pub const MEMSET: u32 = 2;
pub const KERNEL: u32 = 3;
pub const CONCURRENT_KERNEL: u32 = 10;
pub const MEMCPY_PEER: u32 = 22;
pub const GRAPH_TRACE: u32 = 51;

/// One executed operation. Times are virtual ns.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Activity {
    pub kind: u32,
    pub device: u32,
    pub context: u32,
    pub stream: u32,
    pub correlation: u32,
    pub graph: u32,
    pub graph_node: u64,
    pub start_ns: u64,
    pub end_ns: u64,
    /// Name of the kernel; lives as long as the process.
    pub name: *const c_char,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: [u32; 3],
    pub registers: u32,
    pub static_shared_bytes: u32,
    pub dynamic_shared_bytes: u32,
    pub local_bytes_per_thread: u32,
    /// 0 for an ordinary launch, 1 and 2 for the two cooperative ones.
    pub launch_type: u32,
    pub grid_id: u64,
    pub bytes: u64,
    /// `CUpti_ActivityMemcpyKind` of a copy.
    pub copy_kind: u8,
    /// `CUpti_ActivityMemoryKind` of both sides; the first is also a memset's.
    pub source_kind: u8,
    pub target_kind: u8,
    /// 1 where the call was asynchronous.
    pub flags: u8,
    /// The value of a memset.
    pub value: u32,
    pub source_device: u32,
    pub source_context: u32,
    pub target_device: u32,
    pub target_context: u32,
    pub priority: i32,
}

// SAFETY: the only pointer is to an immutable string that is never freed.
unsafe impl Send for Activity {}

impl Activity {
    /// A record of `kind` with everything else empty.
    pub fn new(kind: u32) -> Activity {
        // SAFETY: all fields are integers, arrays of integers, or a raw pointer; zero is valid for each.
        let mut blank: Activity = unsafe { std::mem::zeroed() };
        blank.kind = kind;
        blank
    }
}

/// Receives records, outside the engine's lock, on the thread that made the call or on the engine's worker.
pub type Sink = extern "C" fn(*const Activity, usize);

static SINK: AtomicUsize = AtomicUsize::new(0);
static WANTED: AtomicU64 = AtomicU64::new(0);
static NEXT_CORRELATION: AtomicU32 = AtomicU32::new(1);

thread_local! {
    /// Correlation id of the call that this thread is in; 0 where none was given yet.
    static CORRELATION: Cell<u32> = const { Cell::new(0) };
}

/// Says which kinds (a bit each) are wanted and who takes them.
pub fn subscribe(sink: Option<Sink>, kinds: u64) {
    if let Some(sink) = sink {
        SINK.store(sink as usize, Ordering::Release);
    }
    WANTED.store(kinds, Ordering::Release);
    status::set(status::ACTIVITY, kinds != 0);
}

/// Whether somebody wants records of this kind.
#[inline]
pub fn wanted(kind: u32) -> bool {
    WANTED.load(Ordering::Relaxed) & (1 << kind) != 0
}

/// Whether somebody wants kernels under either of the two kinds.
#[inline]
pub fn kernels_wanted() -> bool {
    WANTED.load(Ordering::Relaxed) & ((1 << KERNEL) | (1 << CONCURRENT_KERNEL)) != 0
}

/// Hands records over. Must be called without the engine's lock: the sink calls its client.
pub fn deliver(records: &[Activity]) {
    let sink = SINK.load(Ordering::Acquire);
    if sink == 0 || records.is_empty() {
        return;
    }
    // SAFETY: the value was stored by `subscribe` from a `Sink` and never changes back to another type.
    let sink: Sink = unsafe { std::mem::transmute::<usize, Sink>(sink) };
    sink(records.as_ptr(), records.len());
}

/// Starts a call: the next request for an id gives a new one.
pub fn begin_call() {
    CORRELATION.set(0);
}

/// The id of the call that this thread is in. Ids count up by one per call that asks.
pub fn correlation() -> u32 {
    let known = CORRELATION.get();
    if known != 0 {
        return known;
    }
    let id = NEXT_CORRELATION.fetch_add(1, Ordering::Relaxed);
    CORRELATION.set(id);
    id
}

/// The id of an operation that may be recorded: none is used up while nobody listens.
pub fn correlation_if_watched() -> u32 {
    if status::read() & (status::ACTIVITY | status::CALLBACKS) == 0 { 0 } else { correlation() }
}
