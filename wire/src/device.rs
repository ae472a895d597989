//! Device records: what the device reports that it did, in its own clock (nanoseconds).
//!
//! A kernel takes two cells, everything else one. Times are raw: a record whose start or end is 0, or whose
//! end is before its start, has no timing, and the collector counts it.

use crate::cell::{Cell, kind};

/// Where and when the device executed the work: common to every device record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Execution {
    /// Joins the record to the host call that caused it. All nodes of a graph launch share one.
    pub correlation: u32,
    pub start_ns: u64,
    pub end_ns: u64,
    pub device: u32,
    /// The vendor library's own numbers, not definition ids.
    pub context: u32,
    pub stream: u32,
    /// 0 if the work was not a graph node.
    pub graph_node: u64,
    pub graph: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Kernel {
    pub execution: Execution,
    /// Name definition.
    pub name: u32,
    pub grid: [u32; 3],
    pub block: [u16; 3],
    pub cluster: [u8; 3],
    pub registers: u16,
    pub static_shared_bytes: u32,
    pub dynamic_shared_bytes: u32,
    pub local_bytes_per_thread: u32,
    /// Shared memory that the device reserved on each multiprocessor for the blocks of this kernel.
    pub shared_executed_bytes: u32,
    pub launch_type: u8,
    pub queued_ns: u64,
    pub submitted_ns: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceCopy {
    pub execution: Execution,
    pub bytes: u64,
    /// The vendor's copy kind (CUPTI: `CUpti_ActivityMemcpyKind`).
    pub copy_kind: u8,
    pub source_memory: u8,
    pub target_memory: u8,
    pub flags: u8,
    /// For peer copies, the devices at either end.
    pub source_device: u16,
    pub target_device: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceFill {
    pub execution: Execution,
    pub bytes: u64,
    pub value: u32,
    pub memory: u8,
}

/// A graph launch as one record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceGraph {
    pub execution: Execution,
}

impl Execution {
    fn put(&self, cell: &mut Cell) {
        cell.put_u32(4, self.correlation);
        cell.put_u64(8, self.start_ns);
        cell.put_u64(16, self.end_ns);
        cell.put_u32(24, self.stream);
        cell.put_u16(28, self.device.min(0xffff) as u16);
        cell.put_u16(30, self.context.min(0xffff) as u16);
        cell.put_u64(32, self.graph_node);
        cell.put_u32(40, self.graph);
    }

    fn get(cell: &Cell) -> Execution {
        Execution {
            correlation: cell.u32_at(4),
            start_ns: cell.u64_at(8),
            end_ns: cell.u64_at(16),
            stream: cell.u32_at(24),
            device: cell.u16_at(28).into(),
            context: cell.u16_at(30).into(),
            graph_node: cell.u64_at(32),
            graph: cell.u32_at(40),
        }
    }

    /// Whether the times are usable.
    pub fn has_timing(&self) -> bool {
        self.start_ns != 0 && self.end_ns >= self.start_ns && self.end_ns - self.start_ns < 1 << 62
    }
}

impl Kernel {
    #[inline]
    pub fn to_cells(&self) -> [Cell; 2] {
        let mut first = Cell::new(kind::DEVICE_KERNEL, 2, 0);
        self.execution.put(&mut first);
        first.put_u32(44, self.name);
        first.put_u32(48, self.grid[0]);
        first.put_u16(52, self.grid[1].min(0xffff) as u16);
        first.put_u16(54, self.grid[2].min(0xffff) as u16);
        first.put_u16(56, self.block[0]);
        first.put_u16(58, self.block[1]);
        first.put_u16(60, self.block[2]);
        first.put_u16(62, self.registers);
        let mut second = Cell::ZERO;
        second.put_u32(0, self.static_shared_bytes);
        second.put_u32(4, self.dynamic_shared_bytes);
        second.put_u32(8, self.local_bytes_per_thread);
        second.put_u32(12, self.shared_executed_bytes);
        second.put_u8(16, self.cluster[0]);
        second.put_u8(17, self.cluster[1]);
        second.put_u8(18, self.cluster[2]);
        second.put_u8(19, self.launch_type);
        second.put_u64(24, self.queued_ns);
        second.put_u64(32, self.submitted_ns);
        [first, second]
    }

    pub fn from_cells(first: &Cell, second: &Cell) -> Kernel {
        Kernel {
            execution: Execution::get(first),
            name: first.u32_at(44),
            grid: [first.u32_at(48), first.u16_at(52).into(), first.u16_at(54).into()],
            block: [first.u16_at(56), first.u16_at(58), first.u16_at(60)],
            registers: first.u16_at(62),
            static_shared_bytes: second.u32_at(0),
            dynamic_shared_bytes: second.u32_at(4),
            local_bytes_per_thread: second.u32_at(8),
            shared_executed_bytes: second.u32_at(12),
            cluster: [second.u8_at(16), second.u8_at(17), second.u8_at(18)],
            launch_type: second.u8_at(19),
            queued_ns: second.u64_at(24),
            submitted_ns: second.u64_at(32),
        }
    }
}

impl DeviceCopy {
    pub fn to_cell(&self) -> Cell {
        let mut cell = Cell::new(kind::DEVICE_COPY, 1, 0);
        self.execution.put(&mut cell);
        cell.put_u8(44, self.copy_kind);
        cell.put_u8(45, self.source_memory);
        cell.put_u8(46, self.target_memory);
        cell.put_u8(47, self.flags);
        cell.put_u64(48, self.bytes);
        cell.put_u16(56, self.source_device);
        cell.put_u16(58, self.target_device);
        cell
    }

    pub fn from_cell(cell: &Cell) -> DeviceCopy {
        DeviceCopy {
            execution: Execution::get(cell),
            copy_kind: cell.u8_at(44),
            source_memory: cell.u8_at(45),
            target_memory: cell.u8_at(46),
            flags: cell.u8_at(47),
            bytes: cell.u64_at(48),
            source_device: cell.u16_at(56),
            target_device: cell.u16_at(58),
        }
    }
}

impl DeviceFill {
    pub fn to_cell(&self) -> Cell {
        let mut cell = Cell::new(kind::DEVICE_FILL, 1, 0);
        self.execution.put(&mut cell);
        cell.put_u32(44, self.value);
        cell.put_u64(48, self.bytes);
        cell.put_u8(56, self.memory);
        cell
    }

    pub fn from_cell(cell: &Cell) -> DeviceFill {
        DeviceFill {
            execution: Execution::get(cell),
            value: cell.u32_at(44),
            bytes: cell.u64_at(48),
            memory: cell.u8_at(56),
        }
    }
}

impl DeviceGraph {
    pub fn to_cell(&self) -> Cell {
        let mut cell = Cell::new(kind::DEVICE_GRAPH, 1, 0);
        self.execution.put(&mut cell);
        cell
    }

    pub fn from_cell(cell: &Cell) -> DeviceGraph {
        DeviceGraph { execution: Execution::get(cell) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn execution() -> impl Strategy<Value = Execution> {
        (any::<[u32; 3]>(), any::<[u64; 3]>(), any::<[u16; 2]>()).prop_map(
            |([correlation, stream, graph], [start_ns, end_ns, graph_node], [device, context])| Execution {
                correlation,
                start_ns,
                end_ns,
                device: device.into(),
                context: context.into(),
                stream,
                graph_node,
                graph,
            },
        )
    }

    proptest! {
        #[test]
        fn kernels_round_trip(execution in execution(), a: [u32; 6], g: [u16; 2], block: [u16; 3], cluster: [u8; 3],
                              registers: u16, launch_type: u8, queued_ns: u64, submitted_ns: u64) {
            let kernel = Kernel {
                execution, name: a[0], grid: [a[1], g[0].into(), g[1].into()], block, cluster, registers,
                static_shared_bytes: a[2], dynamic_shared_bytes: a[3], local_bytes_per_thread: a[4],
                shared_executed_bytes: a[5], launch_type, queued_ns, submitted_ns,
            };
            let [first, second] = kernel.to_cells();
            prop_assert_eq!(first.kind(), kind::DEVICE_KERNEL);
            prop_assert_eq!(first.cells(), 2);
            prop_assert_eq!(Kernel::from_cells(&first, &second), kernel);
        }

        #[test]
        fn copies_and_fills_round_trip(execution in execution(), bytes: u64, value: u32, b: [u8; 4], d: [u16; 2]) {
            let copy = DeviceCopy {
                execution, bytes, copy_kind: b[0], source_memory: b[1], target_memory: b[2], flags: b[3],
                source_device: d[0], target_device: d[1],
            };
            prop_assert_eq!(DeviceCopy::from_cell(&copy.to_cell()), copy);
            let fill = DeviceFill { execution, bytes, value, memory: b[0] };
            prop_assert_eq!(DeviceFill::from_cell(&fill.to_cell()), fill);
            let graph = DeviceGraph { execution };
            prop_assert_eq!(DeviceGraph::from_cell(&graph.to_cell()), graph);
        }
    }

    #[test]
    fn records_without_times_have_no_timing() {
        let timed = Execution { start_ns: 5, end_ns: 9, ..Execution::default() };
        assert!(timed.has_timing());
        assert!(!Execution { start_ns: 0, ..timed }.has_timing());
        assert!(!Execution { end_ns: 4, ..timed }.has_timing());
        assert!(!Execution { end_ns: 0, ..timed }.has_timing());
        assert!(!Execution { end_ns: u64::MAX, ..timed }.has_timing());
    }
}
