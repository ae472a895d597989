//! Rows of calls: the calls themselves, their stacks, waits, and memory.

use std::io;

use gputrace_wire::call::{Detail, Memory, memory, wait};
use gputrace_wire::cell::kind;
use rustc_hash::FxHashMap;

use crate::export::Trace;
use crate::export::sqlite::database::Database;
use crate::export::sqlite::host::Host;
use crate::export::sqlite::runtime_names::runtime_name;
use crate::export::sqlite::schema::{
    BY_DRIVER, BY_RUNTIME, CALLCHAINS, MEMORY_USAGE, RUNTIME, SYNCHRONIZATION,
};
use crate::model::definitions::Definitions;
use crate::model::operation::HostCall;

/// Allocations whose sizes are kept for when they are freed.
const LIVE_MAX: usize = 1 << 20;

#[derive(Default)]
pub struct CallRows {
    /// Number of the name and its class, by process and definition, and whether it is the runtime's.
    names: FxHashMap<(u32, u32, bool), (i64, i64)>,
    /// By process and stack.
    callchains: FxHashMap<(u32, u32), Option<i64>>,
    /// Bytes by process and address.
    live: FxHashMap<(u32, u64), u64>,
}

impl CallRows {
    pub fn add(
        &mut self,
        call: &HostCall,
        definitions: &Definitions,
        (database, host): (&mut Database, &mut Host),
        trace: &mut Trace<'_>,
    ) -> io::Result<()> {
        let process = call.process;
        let (start, end) = host.times(trace, process, call.start_ns, call.duration_ns);
        let tid = host.thread(process, call.thread, definitions);
        let correlation = host.correlation(process, call.correlation);
        let by_runtime = host.uses_runtime(process) && !launches_own_module(call, definitions);
        let (class, name) = self.name(call, by_runtime, definitions, database)?;
        let callchain = self.callchain(process, call.stack, database, trace)?;
        database.add(&RUNTIME, (start, end, class, tid, correlation, name, call.status, callchain))?;
        if call.status != 0 {
            return Ok(());
        }
        let stream = definitions.stream(call.stream);
        let ordinal = stream.and_then(|stream| definitions.ordinal_of_context(stream.context)).unwrap_or(0);
        let (device, pid) = (host.device(process, ordinal), host.process(process));
        match call.detail {
            Detail::Wait { what, handle } => {
                let Some(sync) = sync_type(what) else { return Ok(()) };
                let stream = stream.map_or(0, |stream| stream.record_id);
                let event = if matches!(what, wait::EVENT | wait::STREAM_ON_EVENT) { handle } else { 0 };
                let none: Option<i64> = None;
                let row = (start, end, device, 0, none, stream, correlation, pid, sync, event.cast_signed());
                database.add(&SYNCHRONIZATION, row)
            }
            Detail::Memory(memory) if memory.address != 0 => {
                let frees = call.kind == kind::FREE;
                let bytes = self.bytes(process, &memory, frees);
                let at = if frees { start } else { end };
                let kind = memory_kind(memory.memory);
                let row = rusqlite::named_params! {
                ":start": at,
                ":globalPid": pid,
                ":deviceId": device,
                ":contextId": 0,
                ":address": memory.address.cast_signed(),
                ":pc": 0,
                ":bytes": bytes.cast_signed(),
                ":memKind": kind,
                ":memoryOperationType": frees,
                ":correlationId": correlation,
                };
                database.add(&MEMORY_USAGE, row)
            }
            _ => Ok(()),
        }
    }

    fn name(
        &mut self,
        call: &HostCall,
        by_runtime: bool,
        definitions: &Definitions,
        database: &mut Database,
    ) -> io::Result<(i64, i64)> {
        let key = (call.process, call.api, by_runtime);
        if let Some(known) = self.names.get(&key) {
            return Ok(*known);
        }
        let driver = definitions.call_name(call.api);
        let found = match runtime_name(driver).filter(|_| by_runtime) {
            Some(name) => (BY_RUNTIME, database.text(name)?),
            None => (BY_DRIVER, database.text(driver)?),
        };
        // Without its definition yet, it may get a name.
        if definitions.api(call.api).is_some() {
            self.names.insert(key, found);
        }
        Ok(found)
    }

    /// The number of a stack, with its frames if it is new: the innermost is number 0.
    fn callchain(
        &mut self,
        process: u32,
        stack: u32,
        database: &mut Database,
        trace: &mut Trace<'_>,
    ) -> io::Result<Option<i64>> {
        if stack == 0 {
            return Ok(None);
        }
        if let Some(known) = self.callchains.get(&(process, stack)) {
            return Ok(*known);
        }
        let stacks = &mut trace.labels.stacks;
        let frames = stacks.frames(process, stack);
        let number = (!frames.is_empty()).then_some(self.callchains.len() as i64);
        for (depth, frame) in frames.iter().rev().enumerate() {
            let symbol = database.text(&stacks.text(frame))?;
            let module = stacks.line(frame).map_or("[?]", |line| &line.path);
            let module = database.text(module)?;
            let none: Option<i64> = None;
            database.add(&CALLCHAINS, (number, symbol, module, 0, none, depth as i64))?;
        }
        self.callchains.insert((process, stack), number);
        Ok(number)
    }

    /// The size of an allocation; of one that is freed, what it was allocated with if the call does not say.
    fn bytes(&mut self, process: u32, memory: &Memory, frees: bool) -> u64 {
        let key = (process, memory.address);
        if frees {
            let known = self.live.remove(&key).unwrap_or(0);
            return if memory.bytes == 0 { known } else { memory.bytes };
        }
        if self.live.len() < LIVE_MAX {
            self.live.insert(key, memory.bytes);
        }
        memory.bytes
    }
}

/// Whether it launches a kernel that the program loaded as a module, and not by the runtime.
fn launches_own_module(call: &HostCall, definitions: &Definitions) -> bool {
    let Detail::Launch(launch) = &call.detail else { return false };
    definitions.function(launch.function).is_some_and(|function| !definitions.is_library(function.module))
}

/// CUPTI's number; `None` for what it does not record.
fn sync_type(what: u8) -> Option<i64> {
    match what {
        wait::EVENT => Some(1),
        wait::STREAM_ON_EVENT => Some(2),
        wait::STREAM => Some(3),
        wait::CONTEXT => Some(4),
        _ => None,
    }
}

/// nsys's number.
fn memory_kind(ours: u8) -> i64 {
    match ours {
        memory::PAGEABLE => 0,
        memory::PINNED | memory::REGISTERED => 1,
        memory::ARRAY => 3,
        memory::MANAGED => 4,
        _ => 2,
    }
}
