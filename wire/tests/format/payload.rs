//! Where each field of each entry lies, found out by writing it: all ones in one field, and see
//! which bytes change.

use gputrace_wire::block::{Block, Blocks};
use gputrace_wire::call::{self, Call, Detail};
use gputrace_wire::caller::{Caller, CallerEntry};
use gputrace_wire::cell::{Cell, kind};
use gputrace_wire::clock::Anchor;
use gputrace_wire::clock::mark::{DeviceTimes, EpochBegin, Recording, ThreadBegin};
use gputrace_wire::counted::Counted;
use gputrace_wire::device::{DeviceCopy, DeviceFill, DeviceGraph, Execution, Kernel};
use gputrace_wire::graph::NodesMade;
use gputrace_wire::range::{RangeBegin, RangeEnd};

type Row = Vec<String>;
/// A field's name and what sets it to all ones.
type FieldSetter<T> = (&'static str, fn(&mut T));

/// A field's place: the bytes in which two encodings differ, which must be consecutive.
pub fn row(name: &str, without: &[u8], with: &[u8]) -> Row {
    let changed: Vec<_> = (0..without.len()).filter(|at| without[*at] != with[*at]).collect();
    let (Some(first), Some(last)) = (changed.first(), changed.last()) else {
        panic!("{name} is not written")
    };
    assert_eq!(changed.len(), last - first + 1, "{name} is scattered");
    vec![first.to_string(), changed.len().to_string(), name.to_owned()]
}

/// Rows of all fields of an entry, in the order of their places. `all` has every field set: its
/// bytes must be those of the fields one by one, so that none is forgotten.
fn rows<T: Copy>(none: T, all: T, bytes: impl Fn(T) -> Vec<u8>, fields: &[FieldSetter<T>]) -> Vec<Row> {
    let without = bytes(none);
    let mut touched: Vec<bool> = vec![false; without.len()];
    let mut rows: Vec<Row> = Vec::new();
    for (name, set) in fields {
        let mut one = none;
        set(&mut one);
        let row = row(name, &without, &bytes(one));
        let (at, count): (usize, usize) = (row[0].parse().unwrap(), row[1].parse().unwrap());
        for byte in &mut touched[at..at + count] {
            assert!(!*byte, "{name} overlaps another field");
            *byte = true;
        }
        rows.push(row);
    }
    let all = bytes(all);
    for (at, touched) in touched.into_iter().enumerate() {
        assert_eq!(touched, without[at] != all[at], "byte {at}: a field is missing here");
    }
    rows.sort_by_key(|row| row[0].parse::<usize>().unwrap());
    rows
}

fn bytes_of(cells: &[Cell]) -> Vec<u8> {
    cells.iter().flat_map(|cell| cell.to_bytes()).collect()
}

pub const NAMES: [&str; 28] = [
    "THREAD_BEGIN",
    "ANCHOR",
    "EPOCH_BEGIN",
    "RECORDING",
    "DEVICE_TIMES",
    "host calls",
    "LAUNCH",
    "GRAPH_LAUNCH",
    "COPY",
    "FILL",
    "ALLOC FREE",
    "MEMORY",
    "WAIT",
    "MODULE",
    "GRAPH",
    "CALL",
    "GRAPH_NODE",
    "BLOCK",
    "BLOCKS",
    "COUNTED",
    "device records",
    "DEVICE_KERNEL",
    "DEVICE_COPY",
    "DEVICE_FILL",
    "RANGE_PUSH RANGE_START MARK",
    "RANGE_POP RANGE_END",
    "CALLER",
    "RANGE_PUSH second cell",
];

const M8: u8 = u8::MAX;
const M16: u16 = u16::MAX;
const M32: u32 = u32::MAX;
const M64: u64 = u64::MAX;
const ALL_OF_CALLER: Caller = Caller { trace: [M64, M64], span: M64, flags: M8, remote: M8 };

/// A host call of one kind, its own fields only.
fn detail(kind: u16, none: Detail, all: Detail, fields: &[FieldSetter<Detail>]) -> Vec<Row> {
    let bytes = |detail| bytes_of(&[Call { kind, detail, ..Call::default() }.to_cell()]);
    rows(none, all, bytes, fields)
}

macro_rules! in_detail {
    ($variant:ident, $field:ident, $value:expr) => {
        (stringify!($field), |detail| {
            let Detail::$variant { $field, .. } = detail else { unreachable!() };
            *$field = $value;
        })
    };
    ($variant:ident($name:literal) $($field:tt)+) => {
        ($name, |detail| {
            let Detail::$variant(inner) = detail else { unreachable!() };
            inner.$($field)+;
        })
    };
}

/// The rows of the payload of that name.
pub fn layout(name: &str) -> Option<Vec<Row>> {
    // All fields are named in each literal of all ones, so that a new field does not compile
    // until it stands here.
    let execution = Execution {
        correlation: M32,
        start_ns: M64,
        end_ns: M64,
        device: M16.into(),
        context: M16.into(),
        stream: M32,
        graph_node: M64,
        graph: M32,
    };
    Some(match name {
        "THREAD_BEGIN" => rows(
            ThreadBegin::default(),
            ThreadBegin { thread: M32, ticks: M64 },
            |begin| bytes_of(&[begin.to_cell()]),
            &[("thread", |begin| begin.thread = M32), ("ticks", |begin| begin.ticks = M64)],
        ),
        "ANCHOR" => rows(
            Anchor::default(),
            Anchor {
                ticks: M64,
                monotonic_ns: M64,
                realtime_ns: M64,
                device_ns: M64,
                spread_ticks: M32,
                epoch: M32,
            },
            |anchor| bytes_of(&[anchor.to_cell()]),
            &[
                ("ticks", |anchor| anchor.ticks = M64),
                ("monotonic_ns", |anchor| anchor.monotonic_ns = M64),
                ("realtime_ns", |anchor| anchor.realtime_ns = M64),
                ("device_ns", |anchor| anchor.device_ns = M64),
                ("spread_ticks", |anchor| anchor.spread_ticks = M32),
                ("epoch", |anchor| anchor.epoch = M32),
            ],
        ),
        "EPOCH_BEGIN" => rows(
            EpochBegin::default(),
            EpochBegin { epoch: M32, ticks: M64 },
            |begin| bytes_of(&[begin.to_cell()]),
            &[("epoch", |begin| begin.epoch = M32), ("ticks", |begin| begin.ticks = M64)],
        ),
        "RECORDING" => rows(
            Recording::default(),
            Recording { is_on: true, ticks: M64 },
            |recording| bytes_of(&[recording.to_cell()]),
            &[("is_on", |recording| recording.is_on = true), ("ticks", |recording| recording.ticks = M64)],
        ),
        "DEVICE_TIMES" => rows(
            DeviceTimes::default(),
            DeviceTimes {
                is_on: true,
                cause: 0xff,
                ticks: M64,
                window: M32,
                on_us: M32,
                mean_us: M32,
                enable_ns: M32,
                disable_ns: M32,
            },
            |times| bytes_of(&[times.to_cell()]),
            &[
                ("is_on", |times| times.is_on = true),
                ("cause", |times| times.cause = 0xff),
                ("ticks", |times| times.ticks = M64),
                ("window", |times| times.window = M32),
                ("on_us", |times| times.on_us = M32),
                ("mean_us", |times| times.mean_us = M32),
                ("enable_ns", |times| times.enable_ns = M32),
                ("disable_ns", |times| times.disable_ns = M32),
            ],
        ),
        "host calls" => {
            let none = Call { kind: kind::CALL, ..Call::default() };
            let all = Call {
                kind: kind::CALL,
                flags: 0,
                api: M32,
                start_ticks: M64,
                duration_ticks: M32.into(),
                correlation: M32,
                stack: M32,
                stream: M32,
                window: M32,
                status: M16,
                detail: none.detail,
            };
            rows(
                none,
                all,
                |call| bytes_of(&[call.to_cell()]),
                &[
                    ("api", |call| call.api = M32),
                    ("start_ticks", |call| call.start_ticks = M64),
                    ("duration_ticks", |call| call.duration_ticks = M32.into()),
                    ("correlation", |call| call.correlation = M32),
                    ("stack", |call| call.stack = M32),
                    ("window", |call| call.window = M32),
                    ("stream", |call| call.stream = M32),
                    ("status", |call| call.status = M16),
                ],
            )
        }
        "LAUNCH" => detail(
            kind::LAUNCH,
            Detail::Launch(call::Launch::default()),
            Detail::Launch(call::Launch {
                function: M32,
                grid: [M32; 3],
                block: [M16; 3],
                cluster: [M8; 3],
                dynamic_shared_bytes: M32,
            }),
            &[
                in_detail!(Launch("function") function = M32),
                in_detail!(Launch("grid.x") grid[0] = M32),
                in_detail!(Launch("grid.y") grid[1] = M32),
                in_detail!(Launch("grid.z") grid[2] = M32),
                in_detail!(Launch("block.x") block[0] = M16),
                in_detail!(Launch("block.y") block[1] = M16),
                in_detail!(Launch("block.z") block[2] = M16),
                in_detail!(Launch("cluster.x") cluster[0] = M8),
                in_detail!(Launch("cluster.y") cluster[1] = M8),
                in_detail!(Launch("cluster.z") cluster[2] = M8),
                in_detail!(Launch("dynamic_shared_bytes") dynamic_shared_bytes = M32),
            ],
        ),
        "GRAPH_LAUNCH" => detail(
            kind::GRAPH_LAUNCH,
            Detail::GraphLaunch { graph: 0 },
            Detail::GraphLaunch { graph: M32 },
            &[in_detail!(GraphLaunch, graph, M32)],
        ),
        "COPY" => detail(
            kind::COPY,
            Detail::Copy(call::Copy::default()),
            Detail::Copy(call::Copy { direction: M8, bytes: M64, count: M32 }),
            &[
                in_detail!(Copy("direction") direction = M8),
                in_detail!(Copy("bytes") bytes = M64),
                in_detail!(Copy("count") count = M32),
            ],
        ),
        "FILL" => detail(
            kind::FILL,
            Detail::Fill { bytes: 0, value: 0 },
            Detail::Fill { bytes: M64, value: M32 },
            &[in_detail!(Fill, bytes, M64), in_detail!(Fill, value, M32)],
        ),
        "ALLOC FREE" => detail(
            kind::ALLOC,
            Detail::Memory(call::Memory::default()),
            Detail::Memory(call::Memory {
                memory: M8,
                bytes: M64,
                address: M64,
                pool: M32,
                is_size_unknown: true,
            }),
            &[
                in_detail!(Memory("memory") memory = M8),
                in_detail!(Memory("is_size_unknown") is_size_unknown = true),
                in_detail!(Memory("bytes") bytes = M64),
                in_detail!(Memory("address") address = M64),
                in_detail!(Memory("pool") pool = M32),
            ],
        ),
        "MEMORY" => detail(
            kind::MEMORY,
            Detail::MemoryState(call::MemoryState::default()),
            Detail::MemoryState(call::MemoryState { operation: M8, object: M64, value: M64, units: M32 }),
            &[
                in_detail!(MemoryState("operation") operation = M8),
                in_detail!(MemoryState("object") object = M64),
                in_detail!(MemoryState("value") value = M64),
                in_detail!(MemoryState("units") units = M32),
            ],
        ),
        "WAIT" => detail(
            kind::WAIT,
            Detail::Wait { what: 0, handle: 0 },
            Detail::Wait { what: M8, handle: M64 },
            &[in_detail!(Wait, what, M8), in_detail!(Wait, handle, M64)],
        ),
        "MODULE" => detail(
            kind::MODULE,
            Detail::Module { module: 0, operation: 0 },
            Detail::Module { module: M32, operation: M8 },
            &[in_detail!(Module, module, M32), in_detail!(Module, operation, M8)],
        ),
        "GRAPH" => detail(
            kind::GRAPH,
            Detail::Graph { graph: 0, source: 0, operation: 0 },
            Detail::Graph { graph: M32, source: M32, operation: M8 },
            &[
                in_detail!(Graph, graph, M32),
                in_detail!(Graph, source, M32),
                in_detail!(Graph, operation, M8),
            ],
        ),
        "CALL" => detail(
            kind::CALL,
            Detail::Other { operation: 0, value: 0 },
            Detail::Other { operation: M8, value: M64 },
            &[in_detail!(Other, operation, M8), in_detail!(Other, value, M64)],
        ),
        "device records" => rows(
            Execution::default(),
            execution,
            |execution| bytes_of(&[DeviceGraph { execution }.to_cell()]),
            &[
                ("correlation", |execution| execution.correlation = M32),
                ("start_ns", |execution| execution.start_ns = M64),
                ("end_ns", |execution| execution.end_ns = M64),
                ("device", |execution| execution.device = M16.into()),
                ("context", |execution| execution.context = M16.into()),
                ("stream", |execution| execution.stream = M32),
                ("graph_node", |execution| execution.graph_node = M64),
                ("graph", |execution| execution.graph = M32),
            ],
        ),
        "DEVICE_KERNEL" => rows(
            Kernel::default(),
            Kernel {
                execution: Execution::default(),
                name: M32,
                grid: [M32; 3],
                block: [M16; 3],
                cluster: [M8; 3],
                registers: M16,
                static_shared_bytes: M32,
                dynamic_shared_bytes: M32,
                local_bytes_per_thread: M32,
                shared_executed_bytes: M32,
                launch_type: M8,
                queued_ns: M64,
                submitted_ns: M64,
            },
            |kernel| bytes_of(&kernel.to_cells()),
            &[
                ("name", |kernel| kernel.name = M32),
                ("grid.x", |kernel| kernel.grid[0] = M32),
                ("grid.y", |kernel| kernel.grid[1] = M32),
                ("grid.z", |kernel| kernel.grid[2] = M32),
                ("block.x", |kernel| kernel.block[0] = M16),
                ("block.y", |kernel| kernel.block[1] = M16),
                ("block.z", |kernel| kernel.block[2] = M16),
                ("cluster.x", |kernel| kernel.cluster[0] = M8),
                ("cluster.y", |kernel| kernel.cluster[1] = M8),
                ("cluster.z", |kernel| kernel.cluster[2] = M8),
                ("registers", |kernel| kernel.registers = M16),
                ("static_shared_bytes", |kernel| kernel.static_shared_bytes = M32),
                ("dynamic_shared_bytes", |kernel| kernel.dynamic_shared_bytes = M32),
                ("local_bytes_per_thread", |kernel| kernel.local_bytes_per_thread = M32),
                ("shared_executed_bytes", |kernel| kernel.shared_executed_bytes = M32),
                ("launch_type", |kernel| kernel.launch_type = M8),
                ("queued_ns", |kernel| kernel.queued_ns = M64),
                ("submitted_ns", |kernel| kernel.submitted_ns = M64),
            ],
        ),
        "DEVICE_COPY" => rows(
            DeviceCopy::default(),
            DeviceCopy {
                execution: Execution::default(),
                bytes: M64,
                copy_kind: M8,
                source_memory: M8,
                target_memory: M8,
                flags: M8,
                source_device: M16,
                target_device: M16,
            },
            |copy| bytes_of(&[copy.to_cell()]),
            &[
                ("bytes", |copy| copy.bytes = M64),
                ("copy_kind", |copy| copy.copy_kind = M8),
                ("source_memory", |copy| copy.source_memory = M8),
                ("target_memory", |copy| copy.target_memory = M8),
                ("flags", |copy| copy.flags = M8),
                ("source_device", |copy| copy.source_device = M16),
                ("target_device", |copy| copy.target_device = M16),
            ],
        ),
        "DEVICE_FILL" => rows(
            DeviceFill::default(),
            DeviceFill { execution: Execution::default(), bytes: M64, value: M32, memory: M8 },
            |fill| bytes_of(&[fill.to_cell()]),
            &[
                ("bytes", |fill| fill.bytes = M64),
                ("value", |fill| fill.value = M32),
                ("memory", |fill| fill.memory = M8),
            ],
        ),
        "BLOCK" => rows(
            Block::default(),
            Block {
                device: M32,
                ticks: M64,
                allocated_bytes: M64,
                stack: M32,
                reserved_bytes: M64,
                bytes: -1,
                address: M64,
            },
            |block| bytes_of(&[block.to_cell()]),
            &[
                ("device", |block| block.device = M32),
                ("ticks", |block| block.ticks = M64),
                ("allocated_bytes", |block| block.allocated_bytes = M64),
                ("stack", |block| block.stack = M32),
                ("reserved_bytes", |block| block.reserved_bytes = M64),
                ("bytes", |block| block.bytes = -1),
                ("address", |block| block.address = M64),
            ],
        ),
        "BLOCKS" => rows(
            Blocks::default(),
            Blocks { is_on: true, ticks: M64 },
            |blocks| bytes_of(&[blocks.to_cell()]),
            &[("is_on", |blocks| blocks.is_on = true), ("ticks", |blocks| blocks.ticks = M64)],
        ),
        "COUNTED" => rows(
            Counted::default(),
            Counted { function: M32, begin_ticks: M64, end_ticks: M64, launches: M64, stream: M32 },
            |counted| bytes_of(&[counted.to_cell()]),
            &[
                ("function", |counted| counted.function = M32),
                ("begin_ticks", |counted| counted.begin_ticks = M64),
                ("end_ticks", |counted| counted.end_ticks = M64),
                ("launches", |counted| counted.launches = M64),
                ("stream", |counted| counted.stream = M32),
            ],
        ),
        "GRAPH_NODE" => rows(
            NodesMade::default(),
            NodesMade { stack: M32, ticks: M64, node: M64, count: M32, child: M32 },
            |made| bytes_of(&[made.to_cell()]),
            &[
                ("stack", |made| made.stack = M32),
                ("ticks", |made| made.ticks = M64),
                ("node", |made| made.node = M64),
                ("count", |made| made.count = M32),
                ("child", |made| made.child = M32),
            ],
        ),
        "RANGE_PUSH RANGE_START MARK" => rows(
            RangeBegin::default(),
            RangeBegin {
                kind: 0,
                range: M32,
                start_ticks: M64,
                position: M32,
                color: M32,
                category: M32,
                payload_kind: M32,
                payload: M64,
                id: M64,
            },
            |begin| bytes_of(&[begin.to_cell()]),
            &[
                ("range", |begin| begin.range = M32),
                ("start_ticks", |begin| begin.start_ticks = M64),
                ("position", |begin| begin.position = M32),
                ("color", |begin| begin.color = M32),
                ("category", |begin| begin.category = M32),
                ("payload_kind", |begin| begin.payload_kind = M32),
                ("payload", |begin| begin.payload = M64),
                ("id", |begin| begin.id = M64),
            ],
        ),
        "CALLER" => rows(
            CallerEntry::default(),
            CallerEntry { caller: ALL_OF_CALLER, ticks: M64 },
            |works| bytes_of(&[works.to_cell()]),
            &[
                ("flags", |works| works.caller.flags = M8),
                ("remote", |works| works.caller.remote = M8),
                ("ticks", |works| works.ticks = M64),
                ("trace_lower", |works| works.caller.trace[0] = M64),
                ("trace_upper", |works| works.caller.trace[1] = M64),
                ("span", |works| works.caller.span = M64),
            ],
        ),
        "RANGE_PUSH second cell" => rows(
            Caller::default(),
            ALL_OF_CALLER,
            |caller| bytes_of(&[Cell::ZERO, caller.to_further_cell()]),
            &[
                ("flags", |caller| caller.flags = M8),
                ("remote", |caller| caller.remote = M8),
                ("trace_lower", |caller| caller.trace[0] = M64),
                ("trace_upper", |caller| caller.trace[1] = M64),
                ("span", |caller| caller.span = M64),
            ],
        ),
        "RANGE_POP RANGE_END" => rows(
            RangeEnd::default(),
            RangeEnd {
                kind: 0,
                range: M32,
                start_ticks: M64,
                end_ticks: M64,
                position: M32,
                open: M32,
                id: M64,
            },
            |end| bytes_of(&[end.to_cell()]),
            &[
                ("range", |end| end.range = M32),
                ("start_ticks", |end| end.start_ticks = M64),
                ("end_ticks", |end| end.end_ticks = M64),
                ("position", |end| end.position = M32),
                ("open", |end| end.open = M32),
                ("id", |end| end.id = M64),
            ],
        ),
        _ => return None,
    })
}
