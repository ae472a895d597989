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
mod code_text;
pub mod kernel_lines;

pub use area::{Area, Look, Record, after_hole, look};
pub use code_text::Code;
pub use kernel_lines::KernelLines;

/// In word 0 of every record: tells a record from a word that is none.
pub const MAGIC: u16 = 0xdef1;
/// The longest text kept; longer ones are cut by the writer.
pub const TEXT_MAX: usize = 16 * 1024;
/// The longest joined `LINES` of a `MODULE`: of one that is longer nothing is kept.
pub const KERNEL_LINES_MAX: usize = 256 * 1024;
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
    pub const CODE: u16 = 14;
    pub const LINES: u16 = 15;
    pub const RANGE: u16 = 16;
    pub const DOMAIN: u16 = 17;
    pub const LABEL: u16 = 18;
    pub const SEEN: u16 = 19;
    pub const GRAPH_TIMES: u16 = 20;
    pub const IMAGE: u16 = 21;
    pub const ORIGIN: u16 = 22;
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
    /// `LINES` definition with the first piece of what its image says of lines ([`super::kernel_lines`]); 0 if there is none.
    pub const LINES: usize = 2;
    /// Length of that, whether it is kept or not; 0 if the image has no line table.
    pub const LINES_BYTES: usize = 3;
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
    /// As device records name it; 0 if not asked.
    pub const RECORD_ID: usize = 3;
}

/// Fields: frames, outermost first: two words each, (definition of the code, position in it).
///
/// Definition 0 stands for frames that are missing, and its position for how many; 0 if nobody
/// counted them. A stack that was cut for its depth begins with one.
/// A first pair that names a `STACK` of a smaller id stands for that stack's frames.
pub mod stack {
    /// The most pairs of a stack.
    pub const FRAMES_MAX: usize = 512;
    /// The position, in the lower half, of a frame that has not begun its first instruction; else
    /// that half is the byte offset of the instruction in the code. The upper half is zero.
    pub const NOT_BEGUN: u64 = 4294967295;
}

/// Text: the qualified name, the file as the compiler was told it, and the beginning of the line
/// table, one after the other without anything in between. File names that are no UTF-8 are kept
/// as their bytes.
pub mod code {
    /// One of [`super::code_runtime`].
    pub const RUNTIME: usize = 0;
    /// The runtime's own version word (CPython: `PY_VERSION_HEX`).
    pub const VERSION: usize = 1;
    pub const FIRST_LINE: usize = 2;
    pub const NAME_BYTES: usize = 3;
    pub const FILE_BYTES: usize = 4;
    /// One of [`super::line_table`].
    pub const TABLE_FORM: usize = 5;
    /// Length of the whole line table. What the text does not hold follows in `MORE`.
    pub const TABLE_BYTES: usize = 6;
    /// `LINES` definition with the next piece of the line table; 0 if there is none.
    pub const MORE: usize = 7;
    /// The runtime's own flags (CPython: `co_flags`).
    pub const FLAGS: usize = 8;
}

/// Text: a piece of a line table, a code's or a module's.
pub mod lines {
    /// `LINES` definition with the next piece; 0 after the last.
    pub const MORE: usize = 0;
}

/// What runs the code.
pub mod code_runtime {
    pub const CPYTHON: u64 = 1;
}

/// How a line table is written.
pub mod line_table {
    /// There is none: every position is on the first line.
    pub const NONE: u64 = 0;
    /// CPython to 3.9, `co_lnotab`: pairs of (bytes of code u8, lines i8), each a step.
    pub const LNOTAB: u64 = 1;
    /// CPython 3.10, `co_linetable`: pairs of (bytes of code u8, lines i8), each a range; -128 lines is no line.
    pub const RANGES: u64 = 2;
    /// CPython from 3.11, `co_linetable`: entries of variable length that tell columns too.
    pub const LOCATIONS: u64 = 3;
}

/// Text: the name of a range, as the program gave it.
pub mod range {
    /// `DOMAIN` definition; 0 for the one that has no name.
    pub const DOMAIN: usize = 0;
}

/// Text: the name of a part of the program that names ranges of its own (an NVTX domain).
pub mod domain {}

/// Text: what the program calls a thing: a thread, a stream, a context, a device. The latest one
/// counts.
pub mod label {
    /// The definition that the thing has; 0 for a thread.
    pub const OF: usize = 0;
    /// The thread's id; 0 for other things.
    pub const TID: usize = 1;
}

/// Text: the path of a program or library that is mapped, as the loader or the kernel knows it: bytes. The kernel puts
/// ` (deleted)` behind the path of a file that is gone.
pub mod image {
    /// The lowest address, and the end of the highest.
    pub const START: usize = 0;
    pub const END: usize = 1;
    /// What was added to the addresses in the file.
    pub const BIAS: usize = 2;
    /// How long the build id is; 0 if there is none.
    pub const BUILD_ID_BYTES: usize = 3;
    /// The first of four words with its bytes, in their order.
    pub const BUILD_ID: usize = 4;
    /// The file's length, and when it was written (CLOCK_REALTIME), where it has no build id; 0 if not asked.
    pub const FILE_BYTES: usize = 8;
    pub const MODIFIED_NS: usize = 9;
}

/// Text: the command line, arguments separated by NUL.
pub mod process {
    pub const PID: usize = 0;
    pub const PARENT_PID: usize = 1;
    pub const DRIVER_VERSION: usize = 2;
    /// 1 where the driver is a simulation.
    pub const SIMULATED: usize = 3;
    /// The process's number among all that its launcher started, plus one; 0 where nothing says.
    pub const RANK: usize = 4;
    /// Likewise among those on this machine.
    pub const LOCAL_RANK: usize = 5;
    /// 1 where of command lines and titles the program alone may be told.
    pub const REDACTED: usize = 6;
}

/// Text: what a thread's name, or the process's command line, was in the system when the recorder
/// looked. Only the recorder writes it, with id 0; the latest one counts.
pub mod seen {
    /// `THREAD` definition; 0 for the process's command line, arguments separated by NUL.
    pub const THREAD: usize = 0;
    /// When, on CLOCK_MONOTONIC.
    pub const AT_NS: usize = 1;
}

/// Text: something that was given to the process by whoever started it, or that is so of its machine.
pub mod origin {
    /// One of [`super::origin_of`].
    pub const OF: usize = 0;
}

/// What an origin is the text of.
pub mod origin_of {
    /// The variables TRACEPARENT, TRACESTATE and BAGGAGE as they are: the trace that the process is part of.
    pub const TRACEPARENT: u64 = 1;
    pub const TRACESTATE: u64 = 2;
    pub const BAGGAGE: u64 = 3;
    /// OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES: what the program's own telemetry is to be called.
    pub const SERVICE_NAME: u64 = 4;
    pub const RESOURCE_ATTRIBUTES: u64 = 5;
    /// The machine's name and kind of processor, as the kernel says them.
    pub const HOST_NAME: u64 = 6;
    pub const HOST_ARCH: u64 = 7;
}

/// From a moment on, how launches of graphs are timed.
pub mod graph_times {
    /// One of [`super::graph_mode`].
    pub const MODE: usize = 0;
    /// One of [`super::graph_reason`].
    pub const REASON: usize = 1;
    pub const AT_TICKS: usize = 2;
    /// What was seen before the change: launches, nodes with records, and the device time of these.
    pub const LAUNCHES: usize = 3;
    pub const NODES: usize = 4;
    pub const NODES_NS: usize = 5;
}

pub mod graph_mode {
    /// A record a node.
    pub const NODE: u64 = 1;
    /// A record a launch.
    pub const GRAPH: u64 = 2;
}

/// Why graphs are timed that way.
pub mod graph_reason {
    pub const ASKED: u64 = 1;
    /// The nodes are many and short.
    pub const MANY_SHORT: u64 = 2;
    /// Another client of the vendor's library in the process wants records of nodes.
    pub const OTHER_CLIENT: u64 = 3;
    /// It wants them no longer.
    pub const OTHER_CLIENT_LEFT: u64 = 4;
    /// The vendor's library has no such records, or refused.
    pub const REFUSED: u64 = 5;
    /// There are executable graphs that the vendor's library would crash over.
    pub const UNPREPARED: u64 = 6;
    /// Whether the nodes still are many and short only shows by node.
    pub const LOOKS_AGAIN: u64 = 7;
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
