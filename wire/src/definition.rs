//! Definitions: names, functions, threads, devices…, each written once and referred to by a 32-bit id.
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
//! kind 0 that contains their number, fills them, and stores word 0 again. A thread killed in
//! between leaves a hole. A reader waits there while the process lives. When the process is dead,
//! [`after_hole`] skips the hole without guessing: a hole either contains its length or is all
//! zeros.

mod area;
mod code_text;
pub mod kernel_lines;

pub use area::{Area, Look, Record, after_hole, look};
pub use code_text::Code;
pub use kernel_lines::KernelLines;

/// In word 0 of every record: distinguishes a record from any other word.
pub const MAGIC: u16 = 0xdef1;
/// The longest text kept; the writer cuts longer ones.
pub const TEXT_MAX: usize = 16 * 1024;
/// The longest joined `LINES` of a `MODULE`; a longer table is not kept at all.
pub const KERNEL_LINES_MAX: usize = 256 * 1024;
/// The most fields of a record (stacks have two for each frame).
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

/// Text: the name as the device library gives it (mangled for C++).
pub mod name {}

/// Text: the name, unless a `NAME` definition has it.
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
    /// `LINES` definition with the first piece of the image's line table ([`super::kernel_lines`]); 0 if
    /// there is none.
    pub const LINES: usize = 2;
    /// Length of the line table, whether it is kept or not; 0 if the image has none.
    pub const LINES_BYTES: usize = 3;
}

/// Text: the thread's name.
pub mod thread {
    pub const TID: usize = 0;
    /// One of [`super::role`].
    pub const ROLE: usize = 1;
}

/// The writer of a ring.
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
    /// The number that device records use for it; 0 if not asked.
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
    /// 1 if the device is simulated.
    pub const SIMULATED: usize = 22;
    pub const MAX_THREADS_PER_BLOCK: usize = 23;
}

pub mod graph {
    pub const HANDLE: usize = 0;
    /// 0 graph, 1 executable graph.
    pub const FORM: usize = 1;
    /// The graph definition that this one was made from.
    pub const SOURCE: usize = 2;
    /// The number that device records use for it; 0 if not asked.
    pub const RECORD_ID: usize = 3;
}

/// Fields: frames, outermost first, two words each: (definition of the code, position in the code).
///
/// Definition 0 marks missing frames; its position is their number, or 0 if they were not counted. A stack
/// that was cut for its depth begins with such a pair. If the first pair names a `STACK` of a smaller id,
/// the pair means all frames of that stack. One later pair can name another `STACK` of a smaller id in place
/// of a code, and a third one in place of a position: it means the frames that begin both, without those that
/// the stack has already. They are the forward pass of what runs in a backward pass.
pub mod stack {
    /// The most pairs of a stack.
    pub const FRAMES_MAX: usize = 512;
    /// The position, in the lower half, of a frame that has not executed its first instruction. Otherwise
    /// the lower half is the byte offset of the instruction in the code. The upper half is zero.
    pub const NOT_BEGUN: u64 = 4294967295;
}

/// Text: the qualified name, the file name that the compiler was given, and the beginning of the line
/// table, with nothing between them. File names that are not UTF-8 are kept as bytes.
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
    /// Length of the whole line table. The part that the text does not hold follows in `MORE`.
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

/// The runtime that executes the code.
pub mod code_runtime {
    pub const CPYTHON: u64 = 1;
}

/// The format of a line table.
pub mod line_table {
    /// No table: every position is on the first line.
    pub const NONE: u64 = 0;
    /// CPython to 3.9, `co_lnotab`: pairs of (bytes of code u8, lines i8), each a step.
    pub const LNOTAB: u64 = 1;
    /// CPython 3.10, `co_linetable`: pairs of (bytes of code u8, lines i8), each a range; -128 lines means
    /// no line.
    pub const RANGES: u64 = 2;
    /// CPython from 3.11, `co_linetable`: entries of variable length, with columns too.
    pub const LOCATIONS: u64 = 3;
}

/// Text: the name of a range, as the program gave it.
pub mod range {
    /// `DOMAIN` definition; 0 for the default domain, which has no name.
    pub const DOMAIN: usize = 0;
}

/// Text: the name of a part of the program that names ranges of its own (an NVTX domain).
pub mod domain {}

/// Text: the program's name for a thread, a stream, a context or a device. The latest one counts.
pub mod label {
    /// The definition of the named object; 0 for a thread.
    pub const OF: usize = 0;
    /// The thread's id; 0 for other objects.
    pub const TID: usize = 1;
}

/// Text: the path of a mapped program or library, as the loader or the kernel gives it, in bytes. The
/// kernel appends ` (deleted)` to the path of a file that is gone.
pub mod image {
    /// The lowest address, and the end of the highest mapping.
    pub const START: usize = 0;
    pub const END: usize = 1;
    /// The difference between mapped addresses and those in the file.
    pub const BIAS: usize = 2;
    /// Length of the build id; 0 if there is none.
    pub const BUILD_ID_BYTES: usize = 3;
    /// The first of four words with the build id's bytes, in order.
    pub const BUILD_ID: usize = 4;
    /// The file's length and modification time (CLOCK_REALTIME), if the file has no build id; 0 if not
    /// asked.
    pub const FILE_BYTES: usize = 8;
    pub const MODIFIED_NS: usize = 9;
}

/// Text: the command line, arguments separated by NUL.
pub mod process {
    pub const PID: usize = 0;
    pub const PARENT_PID: usize = 1;
    pub const DRIVER_VERSION: usize = 2;
    /// 1 if the driver is simulated.
    pub const SIMULATED: usize = 3;
    /// The process's number among all that its launcher started, plus one; 0 if unknown.
    pub const RANK: usize = 4;
    /// The same among those on this machine.
    pub const LOCAL_RANK: usize = 5;
    /// 1 if of command lines and titles only the program's name may be reported.
    pub const REDACTED: usize = 6;
}

/// Text: the system's name of a thread, or the process's command line, when the recorder read it. Only the
/// recorder writes it, with id 0; the latest one counts.
pub mod seen {
    /// `THREAD` definition; 0 for the process's command line, arguments separated by NUL.
    pub const THREAD: usize = 0;
    /// The time of the reading, on CLOCK_MONOTONIC.
    pub const AT_NS: usize = 1;
}

/// Text: a fact about the process that comes from the environment it was started in, or from its machine.
pub mod origin {
    /// One of [`super::origin_of`].
    pub const OF: usize = 0;
}

/// The kind of an origin's text.
pub mod origin_of {
    /// The variables TRACEPARENT, TRACESTATE and BAGGAGE unchanged: the trace that the process is part of.
    pub const TRACEPARENT: u64 = 1;
    pub const TRACESTATE: u64 = 2;
    pub const BAGGAGE: u64 = 3;
    /// OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES: how the program names its own telemetry.
    pub const SERVICE_NAME: u64 = 4;
    pub const RESOURCE_ATTRIBUTES: u64 = 5;
    /// The machine's name and kind of processor, as the kernel gives them.
    pub const HOST_NAME: u64 = 6;
    pub const HOST_ARCH: u64 = 7;
}

/// How graph launches are timed from a moment on.
pub mod graph_times {
    /// One of [`super::graph_mode`].
    pub const MODE: usize = 0;
    /// One of [`super::graph_reason`].
    pub const REASON: usize = 1;
    pub const AT_TICKS: usize = 2;
    /// Measured before the change: launches, nodes with records, and the device time of these nodes.
    pub const LAUNCHES: usize = 3;
    pub const NODES: usize = 4;
    pub const NODES_NS: usize = 5;
}

pub mod graph_mode {
    /// One record for each node.
    pub const NODE: u64 = 1;
    /// One record for each launch.
    pub const GRAPH: u64 = 2;
}

/// Why graphs are timed in that mode.
pub mod graph_reason {
    pub const ASKED: u64 = 1;
    /// The nodes are many and short.
    pub const MANY_SHORT: u64 = 2;
    /// Another client of the vendor's library in the process wants node records.
    pub const OTHER_CLIENT: u64 = 3;
    /// That client no longer wants them.
    pub const OTHER_CLIENT_LEFT: u64 = 4;
    /// The vendor's library has no graph records, or refused them.
    pub const REFUSED: u64 = 5;
    /// There are executable graphs that would crash the vendor's library.
    pub const UNPREPARED: u64 = 6;
    /// A re-probe: only node records show whether the nodes are still many and short.
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
    /// 0 information, 1 a part works less well than asked.
    pub const SEVERITY: usize = 0;
    /// One of [`super::rung`], if the notice reports a fallback to that rung; else 0.
    pub const RUNG: usize = 1;
}

/// The rungs of the ladder of device times: each is a fallback of the one before.
pub mod rung {
    pub const FULL: u64 = 1;
    pub const WINDOWS: u64 = 2;
    pub const HOOKS: u64 = 3;
}
