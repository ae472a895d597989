//! The tables and their columns.

/// A table: a file of that name with `.parquet`.
#[derive(Debug)]
pub struct TableSchema {
    pub name: &'static str,
    pub about: &'static str,
    pub columns: &'static [Column],
}

#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub name: &'static str,
    pub kind: ColumnKind,
    pub encoding: Encoding,
    pub about: &'static str,
    /// Whether rows may lack a value.
    pub optional: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ColumnKind {
    Int64,
    UInt32,
    UInt64,
    Text,
    Bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encoding {
    /// Differences of consecutive values, for times and numbers that grow.
    Delta,
    /// For values that repeat.
    Dictionary,
    /// Bits.
    Plain,
}

impl ColumnKind {
    /// The name in DuckDB.
    pub const fn name(self) -> &'static str {
        match self {
            ColumnKind::Int64 => "BIGINT",
            ColumnKind::UInt32 => "UINTEGER",
            ColumnKind::UInt64 => "UBIGINT",
            ColumnKind::Text => "VARCHAR",
            ColumnKind::Bool => "BOOLEAN",
        }
    }
}

const fn delta(name: &'static str, kind: ColumnKind, about: &'static str) -> Column {
    Column { name, kind, encoding: Encoding::Delta, about, optional: false }
}

const fn repeated(name: &'static str, kind: ColumnKind, about: &'static str) -> Column {
    Column { name, kind, encoding: Encoding::Dictionary, about, optional: false }
}

const fn yes(name: &'static str, about: &'static str) -> Column {
    Column { name, kind: ColumnKind::Bool, encoding: Encoding::Plain, about, optional: false }
}

const fn opt(column: Column) -> Column {
    Column { optional: true, ..column }
}

use ColumnKind::{Int64, Text, UInt32, UInt64};

const PROCESS: Column = repeated("process", UInt32, "number of the process, `processes.process`");
const START: Column = delta("start_ns", Int64, "nanoseconds since the Unix epoch");
const DURATION: Column = delta("duration_ns", Int64, "nanoseconds");
const THREAD: Column = repeated("thread", UInt32, "thread, `threads.thread` of the process");
const STACK: Column = opt(repeated("stack", UInt32, "stack of the call, `stacks.stack` of the process"));
const RANGE: Column = opt(delta("range", UInt32, "innermost open range, `ranges.range` of the process"));
const CORRELATION: Column = opt(delta(
    "correlation",
    UInt32,
    "joins device work with its call: equal in both, within the process; the nodes of a graph share one",
));

/// What every table of device work begins with.
const fn work<const OWN: usize, const ALL: usize>(own: [Column; OWN]) -> [Column; ALL] {
    let mut all = [PROCESS; ALL];
    let common = [
        opt(delta("start_ns", Int64, "nanoseconds since the Unix epoch; no value if it was not timed")),
        opt(delta("duration_ns", Int64, "nanoseconds on the device's own clock")),
        PROCESS,
        opt(repeated("device", UInt32, "ordinal of the device, `devices.device` of the process")),
        repeated("context", UInt32, "number of the context in device records, 0 if there was none"),
        repeated("stream_number", UInt32, "number of the stream in device records, 0 if there was none"),
        opt(repeated("stream", UInt32, "stream that the call named, `streams.stream` of the process")),
        CORRELATION,
        opt(repeated("thread", UInt32, "thread of the call, `threads.thread` of the process")),
        opt(repeated(
            "stack",
            UInt32,
            "stack of the call, `stacks.stack` of the process; of a graph's node, that of the capture if known",
        )),
        RANGE,
        opt(repeated("graph", UInt32, "number of the graph in device records, if it was launched by one")),
    ];
    let mut at = 0;
    while at < ALL {
        all[at] = if at < COMMON { common[at] } else { own[at - COMMON] };
        at += 1;
    }
    all
}

const COMMON: usize = 12;

pub const KERNELS: TableSchema = TableSchema {
    name: "kernels",
    about: "Executed kernels.",
    columns: &work::<12, { COMMON + 12 }>([
        repeated("kernel", UInt32, "name of the kernel, `kernel_names.kernel`"),
        opt(repeated("graph_node", UInt64, "node of the graph in device records")),
        repeated("grid_x", UInt32, "blocks of the grid"),
        repeated("grid_y", UInt32, "the same"),
        repeated("grid_z", UInt32, "the same"),
        repeated("block_x", UInt32, "threads of a block"),
        repeated("block_y", UInt32, "the same"),
        repeated("block_z", UInt32, "the same"),
        repeated("cluster_blocks", UInt32, "blocks of a cluster, 0 if the launch gave none"),
        repeated("registers", UInt32, "registers of a thread, 0 if unknown"),
        repeated("static_shared_bytes", UInt32, "shared memory of a block that the code declares"),
        repeated("dynamic_shared_bytes", UInt32, "shared memory of a block that the launch asked for"),
    ]),
};

pub const COPIES: TableSchema = TableSchema {
    name: "copies",
    about: "Executed copies.",
    columns: &work::<5, { COMMON + 5 }>([
        opt(repeated("graph_node", UInt64, "node of the graph in device records")),
        repeated(
            "direction",
            Text,
            "`cpu_to_gpu`, `gpu_to_cpu`, `gpu_to_gpu`, `peer_to_peer`, `cpu_to_cpu`, `unknown`",
        ),
        repeated("bytes", UInt64, "bytes copied"),
        repeated("source_memory", UInt32, "kind of memory as CUPTI numbers it, 0 if unknown"),
        repeated("target_memory", UInt32, "the same"),
    ]),
};

pub const MEMSETS: TableSchema = TableSchema {
    name: "memsets",
    about: "Executed fills of memory.",
    columns: &work::<2, { COMMON + 2 }>([
        opt(repeated("graph_node", UInt64, "node of the graph in device records")),
        repeated("bytes", UInt64, "bytes filled"),
    ]),
};

pub const GRAPHS: TableSchema = TableSchema {
    name: "graphs",
    about: "Graph launches that were timed as a whole. Their nodes are in no other table.",
    columns: &work::<1, { COMMON + 1 }>([repeated("nodes", UInt32, "nodes of the graph, 0 if unknown")]),
};

pub const CALLS: TableSchema = TableSchema {
    name: "calls",
    about: "Calls of the driver.",
    columns: &[
        START,
        DURATION,
        PROCESS,
        THREAD,
        repeated("name", Text, "driver function"),
        repeated("status", UInt32, "what the call returned, 0 for success"),
        repeated(
            "captured",
            ColumnKind::Bool,
            "whether the call was recorded into a graph and executed nothing",
        ),
        CORRELATION,
        STACK,
        RANGE,
        opt(repeated("stream", UInt32, "stream that the call named, `streams.stream` of the process")),
        opt(repeated(
            "bytes",
            UInt64,
            "bytes copied, filled, allocated or freed, 0 if the call does not say",
        )),
    ],
};

pub const RANGES: TableSchema = TableSchema {
    name: "ranges",
    about: "NVTX ranges.",
    columns: &[
        START,
        DURATION,
        PROCESS,
        THREAD,
        delta("range", UInt32, "number of this range in its process"),
        opt(delta("parent", UInt32, "range around it, `ranges.range` of the process")),
        repeated("domain", Text, "empty for the default domain"),
        repeated("name", Text, "name that the program gave it"),
        yes("whole", "whether its end was recorded; else it ends where its thread's events end"),
    ],
};

pub const KERNEL_NAMES: TableSchema = TableSchema {
    name: "kernel_names",
    about: "Names of kernels.",
    columns: &[
        delta("kernel", UInt32, "number, the same for all processes"),
        repeated("name", Text, "short name, as in the report"),
        repeated("full_name", Text, "in source form"),
    ],
};

pub const PROCESSES: TableSchema = TableSchema {
    name: "processes",
    about: "Traced processes.",
    columns: &[
        delta("process", UInt32, "number in these tables"),
        repeated("name", Text, "title or command, unique where several share one"),
        repeated("pid", UInt32, "process id"),
        repeated("parent_pid", UInt32, "process id of the parent"),
        repeated("command", Text, "command line, arguments separated by spaces"),
        opt(repeated("rank", UInt32, "rank that its launcher gave it")),
        opt(repeated("local_rank", UInt32, "rank on its machine")),
        repeated("host", Text, "name of the machine, empty if unknown"),
        delta("start_ns", Int64, "when tracing of it began, nanoseconds since the Unix epoch"),
    ],
};

pub const THREADS: TableSchema = TableSchema {
    name: "threads",
    about: "Threads that made calls.",
    columns: &[
        PROCESS,
        delta("thread", UInt32, "number in its process"),
        repeated("tid", UInt32, "thread id of the system"),
        repeated("name", Text, "name, `main`, or `thread N`"),
    ],
};

pub const STREAMS: TableSchema = TableSchema {
    name: "streams",
    about: "Streams that calls named.",
    columns: &[
        PROCESS,
        delta("stream", UInt32, "number in its process"),
        repeated("name", Text, "the program's name for it, or its number in device records"),
    ],
};

pub const DEVICES: TableSchema = TableSchema {
    name: "devices",
    about: "Devices, for each process that knows them.",
    columns: &[
        PROCESS,
        repeated("device", UInt32, "ordinal that the process uses"),
        repeated("name", Text, "name, unique where devices share one"),
        repeated("uuid", Text, "empty if unknown"),
        repeated("memory_bytes", UInt64, "0 if unknown"),
        repeated("multiprocessors", UInt32, "0 if unknown"),
        repeated("simulated", ColumnKind::Bool, "whether it is a simulated device"),
    ],
};

pub const DEVICE_SAMPLES: TableSchema = TableSchema {
    name: "device_samples",
    about: "What devices did, as their drivers report it; no rows with `--device-metrics off`.",
    columns: &[
        delta("time_ns", Int64, "nanoseconds since the Unix epoch"),
        repeated("uuid", Text, "`devices.uuid`; empty if unknown"),
        repeated("pci_bus_id", Text, "as in `0000:1b:00.0`"),
        opt(repeated("power_mw", UInt64, "milliwatts")),
        opt(delta("energy_mj", UInt64, "millijoules since the driver was loaded")),
        opt(repeated("power_limit_mw", UInt64, "milliwatts")),
        opt(repeated("temperature_c", UInt64, "degrees Celsius")),
        opt(repeated("memory_temperature_c", UInt64, "degrees Celsius")),
        opt(repeated("sm_clock_mhz", UInt64, "megahertz")),
        opt(repeated("memory_clock_mhz", UInt64, "megahertz")),
        opt(repeated("throttle_reasons", UInt64, "why clocks are lowered, bits as in NVML")),
        opt(delta(
            "power_throttled_ns",
            UInt64,
            "nanoseconds with clocks lowered for power since the driver was loaded",
        )),
        opt(delta("thermal_throttled_ns", UInt64, "the same for heat")),
        opt(repeated("memory_used_bytes", UInt64, "bytes in use by all processes")),
        opt(repeated("gpu_busy_percent", UInt64, "time in which any kernel ran")),
        opt(repeated("memory_busy_percent", UInt64, "time in which the memory controller moved data")),
        opt(repeated("pcie_sent_bytes_per_s", UInt64, "bytes a second from the device")),
        opt(repeated("pcie_received_bytes_per_s", UInt64, "bytes a second to the device")),
        opt(repeated("sm_clock_max_mhz", UInt64, "megahertz, the highest that the device can be set to")),
        opt(repeated("pcie_peak_bytes_per_s", UInt64, "of the link at its best, in one direction")),
    ],
};

pub const STACKS: TableSchema = TableSchema {
    name: "stacks",
    about: "Frames of the stacks that other tables name, one row for each frame.",
    columns: &[
        PROCESS,
        delta("stack", UInt32, "number in its process"),
        delta("depth", UInt32, "0 for the outermost frame"),
        repeated("function", Text, "function, or what is known of the frame"),
        opt(repeated("file", Text, "short name of the file")),
        opt(repeated("path", Text, "file as the compiler recorded it")),
        opt(delta("line", UInt32, "line; no value if unknown")),
        yes("own", "whether it is user code, and not a library's"),
    ],
};

/// All tables, in the order of the document.
pub const TABLES: [&TableSchema; 13] = [
    &KERNELS,
    &COPIES,
    &MEMSETS,
    &GRAPHS,
    &CALLS,
    &RANGES,
    &KERNEL_NAMES,
    &STACKS,
    &PROCESSES,
    &THREADS,
    &STREAMS,
    &DEVICES,
    &DEVICE_SAMPLES,
];
