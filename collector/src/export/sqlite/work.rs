//! Rows of device work.

use std::io;

use gputrace_wire::call::Detail;
use rustc_hash::FxHashMap;

use crate::export::Trace;
use crate::export::sqlite::database::Database;
use crate::export::sqlite::host::Host;
use crate::export::sqlite::schema::{DIAGNOSTICS, GRAPH_TRACE, KERNEL, MEMCPY, MEMSET};
use crate::model::definitions::Definitions;
use crate::model::operation::{Direction, Operation, What};

#[derive(Default)]
pub struct Work {
    /// Full, short and mangled name, by process and name definition.
    kernels: FxHashMap<(u32, u32), [i64; 3]>,
    rows: i64,
    /// By process, work without device times. The schema has no place for it.
    untimed: FxHashMap<u32, u64>,
}

impl Work {
    /// Adds a row and returns whether there was one to add.
    pub fn add(
        &mut self,
        operation: &Operation,
        definitions: &Definitions,
        (database, host): (&mut Database, &mut Host),
        trace: &mut Trace<'_>,
    ) -> io::Result<bool> {
        let process = operation.process;
        let Some(timing) = operation.timing else {
            *self.untimed.entry(process).or_default() += 1;
            return Ok(false);
        };
        let (start, end) = host.times(trace, process, timing.start_ns, timing.duration_ns);
        let (device, context, stream) =
            (host.device(process, operation.device), operation.context, operation.stream);
        host.uses_context(process, device, context);
        let call = operation.call.as_ref();
        let correlation = call.and_then(|call| host.correlation(process, call.correlation));
        let pid = host.process(process);
        let node = operation.graph.map(|known| known.node.cast_signed());
        self.rows += 1;
        match operation.what {
            What::Kernel(kernel) => {
                let [full, short, mangled] =
                    self.names(process, kernel.name, definitions, database, trace)?;
                let ([gx, gy, gz], [bx, by, bz]) = (kernel.grid, kernel.block);
                let row = rusqlite::named_params! {
                ":start": start,
                ":end": end,
                ":deviceId": device,
                ":contextId": context,
                ":streamId": stream,
                ":correlationId": correlation,
                ":globalPid": pid,
                ":demangledName": full,
                ":shortName": short,
                ":mangledName": mangled,
                ":registersPerThread": kernel.registers,
                ":gridX": gx,
                ":gridY": gy,
                ":gridZ": gz,
                ":blockX": bx,
                ":blockY": by,
                ":blockZ": bz,
                ":staticSharedMemory": kernel.static_shared_bytes,
                ":dynamicSharedMemory": kernel.dynamic_shared_bytes,
                ":localMemoryPerThread": 0,
                ":localMemoryTotal": 0,
                ":gridId": self.rows,
                ":graphNodeId": node,
                };
                database.add(&KERNEL, row)?;
            }
            What::Copy { direction, bytes, source_memory, target_memory, .. } => {
                // Both ends are known to be this device only within it.
                let ends = (direction == Direction::GpuToGpu).then_some(device);
                let (kind, from, to) =
                    (copy_kind(direction), memory_kind(source_memory), memory_kind(target_memory));
                let row = rusqlite::named_params! {
                ":start": start,
                ":end": end,
                ":deviceId": device,
                ":contextId": context,
                ":streamId": stream,
                ":correlationId": correlation,
                ":globalPid": pid,
                ":bytes": bytes.cast_signed(),
                ":copyKind": kind,
                ":srcKind": from,
                ":dstKind": to,
                ":srcDeviceId": ends,
                ":dstDeviceId": ends,
                ":graphNodeId": node,
                };
                database.add(&MEMCPY, row)?;
            }
            What::Fill { bytes } => {
                let value = match call.map(|call| &call.detail) {
                    Some(Detail::Fill { value, .. }) => *value,
                    _ => 0,
                };
                let row = rusqlite::named_params! {
                ":start": start,
                ":end": end,
                ":deviceId": device,
                ":contextId": context,
                ":streamId": stream,
                ":correlationId": correlation,
                ":globalPid": pid,
                ":value": value,
                ":bytes": bytes.cast_signed(),
                ":graphNodeId": node,
                };
                database.add(&MEMSET, row)?;
            }
            What::Graph => {
                let graph = operation.graph.map_or(0, |known| known.graph);
                let source = definitions.source_of_graph(graph).unwrap_or(0);
                let row = rusqlite::named_params! {
                ":start": start,
                ":end": end,
                ":deviceId": device,
                ":contextId": context,
                ":streamId": stream,
                ":correlationId": correlation,
                ":globalPid": pid,
                ":graphId": source,
                ":graphExecId": graph,
                };
                database.add(&GRAPH_TRACE, row)?;
            }
        }
        Ok(true)
    }

    fn names(
        &mut self,
        process: u32,
        name: u32,
        definitions: &Definitions,
        database: &mut Database,
        trace: &mut Trace<'_>,
    ) -> io::Result<[i64; 3]> {
        if let Some(known) = self.kernels.get(&(process, name)) {
            return Ok(*known);
        }
        let named = trace.labels.kernels.name(process, name);
        let mangled = definitions.name(name).unwrap_or(&named.full);
        let numbers = [database.text(&named.full)?, database.text(&named.short)?, database.text(mangled)?];
        self.kernels.insert((process, name), numbers);
        Ok(numbers)
    }

    /// Writes what was left out.
    pub fn finish(&self, database: &mut Database, host: &Host, trace: &mut Trace<'_>) -> io::Result<()> {
        for text in &trace.missing {
            database.add(&DIAGNOSTICS, (0, 0, 0, 2, text, None::<i64>))?;
        }
        for (process, count) in &self.untimed {
            let text = format!("{count} kernels, copies, memsets or graphs have no device times and no rows");
            database.add(&DIAGNOSTICS, (0, 0, 0, 2, text, host.process(*process)))?;
        }
        if let count @ 1.. = self.untimed.values().sum::<u64>() {
            trace.warnings.push(format!("operations without a device time, which have no row: {count}"));
        }
        Ok(())
    }
}

/// CUPTI's number.
fn copy_kind(direction: Direction) -> u8 {
    match direction {
        Direction::Unknown => 0,
        Direction::CpuToGpu => 1,
        Direction::GpuToCpu => 2,
        Direction::GpuToGpu => 8,
        Direction::CpuToCpu => 9,
        Direction::PeerToPeer => 10,
    }
}

/// CUPTI's kinds of memory begin with an unknown one, nsys's do not.
fn memory_kind(cupti: u8) -> Option<u8> {
    cupti.checked_sub(1)
}
