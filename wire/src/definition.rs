//! Definitions: names, functions, threads, devices… said once, referred to by 32-bit ids.
//!
//! The area is append-only and bounded. A record, in 64-bit words:
//!
//! ```text
//!  word 0   kind u16 │ magic u16 │ text bytes u32      stored last, with Release
//!  word 1   id u32   │ field count u32
//!  word 2…  fields, one word each, by index
//!  then     text, zero-padded to a whole word
//! ```
//!
//! Definitions are never dropped while they fit and never rewritten. An id is never reused: a
//! handle that is destroyed and made again is defined again. A reader asks for fields by index
//! and gets 0 for one that the writer did not know, so kinds grow at the end.
//!
//! Any thread appends: it reserves words by compare-exchange, marks them pending by a word 0 of
//! kind 0 that says how many they are, fills them, and stores word 0 again. A thread killed in
//! between leaves a hole. A reader waits there while the process lives; when it is dead,
//! [`after_hole`] passes it without guessing: a hole either says its length or is all zeros.

mod area;

pub use area::{Area, Look, Record, after_hole, look};

/// In word 0 of every record: tells a record from a word that is none.
pub const MAGIC: u16 = 0xdef1;
/// The longest text kept; longer ones are cut by the writer.
pub const TEXT_MAX: usize = 16 * 1024;
/// The most fields a record has (stacks have two a frame).
pub const FIELDS_MAX: usize = 1024;

/// Kinds, each with the meaning of its fields by index. 0 is no kind: it marks a pending record.
pub mod kind {
    pub const API: u16 = 1;
    pub const NAME: u16 = 2;
    pub const FUNCTION: u16 = 3;
    pub const MODULE: u16 = 4;
    pub const THREAD: u16 = 5;
    pub const CONTEXT: u16 = 6;
    pub const STREAM: u16 = 7;
    pub const DEVICE: u16 = 8;
    pub const GRAPH: u16 = 9;
    pub const STACK: u16 = 10;
    pub const PROCESS: u16 = 11;
    pub const LIBRARY: u16 = 12;
    pub const NOTICE: u16 = 13;
}

/// Text: the symbol.
pub mod api {}

/// Text: the name as the device library says it (mangled for C++).
pub mod name {}

/// Text: the name, if it was not defined apart.
pub mod function {
    pub const HANDLE: usize = 0;
    pub const NAME: usize = 1;
    pub const MODULE: usize = 2;
    pub const REGISTERS: usize = 3;
    pub const STATIC_SHARED_BYTES: usize = 4;
    pub const LOCAL_BYTES_PER_THREAD: usize = 5;
    pub const MAX_THREADS_PER_BLOCK: usize = 6;
}

pub mod module {
    pub const HANDLE: usize = 0;
    /// 0 module, 1 library.
    pub const FORM: usize = 1;
}

/// Text: the thread's name.
pub mod thread {
    pub const TID: usize = 0;
    /// One of [`super::role`].
    pub const ROLE: usize = 1;
}

/// Who writes into a ring.
pub mod role {
    pub const PROGRAM: u64 = 0;
    pub const DEVICE_RECORDS: u64 = 1;
    pub const SERVICE: u64 = 2;
}

pub mod context {
    pub const HANDLE: usize = 0;
    /// Device definition.
    pub const DEVICE: usize = 1;
}

pub mod stream {
    pub const HANDLE: usize = 0;
    /// Context definition.
    pub const CONTEXT: usize = 1;
    pub const FLAGS: usize = 2;
    /// Two's complement.
    pub const PRIORITY: usize = 3;
    /// The vendor library's number for it, as device records name it; 0 if not asked.
    pub const RECORD_ID: usize = 4;
}

/// Text: the device's name.
pub mod device {
    pub const ORDINAL: usize = 0;
    pub const TOTAL_MEMORY_BYTES: usize = 1;
    pub const COMPUTE_MAJOR: usize = 2;
    pub const COMPUTE_MINOR: usize = 3;
    pub const MULTIPROCESSORS: usize = 4;
    pub const WARP_SIZE: usize = 5;
    pub const MAX_THREADS_PER_MULTIPROCESSOR: usize = 6;
    pub const MAX_BLOCKS_PER_MULTIPROCESSOR: usize = 7;
    pub const REGISTERS_PER_MULTIPROCESSOR: usize = 8;
    pub const REGISTERS_PER_BLOCK: usize = 9;
    pub const SHARED_BYTES_PER_MULTIPROCESSOR: usize = 10;
    pub const SHARED_BYTES_PER_BLOCK_OPTIN: usize = 11;
    pub const RESERVED_SHARED_BYTES_PER_BLOCK: usize = 12;
    pub const CLOCK_KHZ: usize = 13;
    pub const MEMORY_CLOCK_KHZ: usize = 14;
    pub const MEMORY_BUS_BITS: usize = 15;
    pub const L2_BYTES: usize = 16;
    pub const UUID_LOW: usize = 17;
    pub const UUID_HIGH: usize = 18;
    pub const PCI_DOMAIN: usize = 19;
    pub const PCI_BUS: usize = 20;
    pub const PCI_DEVICE: usize = 21;
    /// 1 where the device is a simulation.
    pub const SIMULATED: usize = 22;
    pub const MAX_THREADS_PER_BLOCK: usize = 23;
}

pub mod graph {
    pub const HANDLE: usize = 0;
    /// 0 graph, 1 executable graph.
    pub const FORM: usize = 1;
    /// Graph definition that this one was made from.
    pub const SOURCE: usize = 2;
}

/// Fields: frames, outermost first: two words each, (definition of the code, position in it).
pub mod stack {}

/// Text: the command line, arguments separated by NUL.
pub mod process {
    pub const PID: usize = 0;
    pub const PARENT_PID: usize = 1;
    pub const DRIVER_VERSION: usize = 2;
    /// 1 where the driver is a simulation.
    pub const SIMULATED: usize = 3;
}

/// Text: the path.
pub mod library {
    /// One of [`super::library_role`].
    pub const ROLE: usize = 0;
    pub const VERSION: usize = 1;
}

pub mod library_role {
    pub const DRIVER: u64 = 1;
    pub const DEVICE_RECORDS: u64 = 2;
}

/// Text: one line for the user.
pub mod notice {
    /// 0 information, 1 something works less well than asked.
    pub const SEVERITY: usize = 0;
    /// One of [`super::rung`], where the notice is a step down the ladder; else 0.
    pub const RUNG: usize = 1;
}

/// The rungs of the ladder of device times.
pub mod rung {
    pub const FULL: u64 = 1;
    pub const WINDOWS: u64 = 2;
    pub const HOOKS: u64 = 3;
}
