//! The numbers that nsys gives to processes, threads and devices, and what is known of them.

use std::collections::BTreeSet;
use std::io;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::aggregate::NO_DEVICE;
use crate::batch::SessionBegin;
use crate::export::Trace;
use crate::export::sqlite::database::Database;
use crate::export::sqlite::runtime_names::LOADS_LIBRARY;
use crate::export::sqlite::schema::{ANALYSIS, CONTEXT, GPU, PROCESSES, SESSION_START, THREAD_NAMES};
use crate::label::uuid;
use crate::model::definitions::{Definitions, Device};
use crate::names::line_safe;

/// The bits of a process id and of a thread id.
const ID_BITS: u64 = 0xff_ffff;
/// CUPTI's number of a context's default stream.
const DEFAULT_STREAM: i64 = 7;

#[derive(Default)]
pub struct Host {
    /// The first session's begin, nanoseconds since the epoch: times are counted from there.
    base_ns: i64,
    /// Sessions in order of appearance; nsys has a number for each machine in its ids.
    sessions: Vec<(u64, u64)>,
    processes: FxHashMap<u32, ProcessIds>,
    /// Device numbers by process and ordinal: processes may number one device differently.
    devices: FxHashMap<(u32, u32), i64>,
    /// Contexts of device records: process, device, context.
    contexts: BTreeSet<(u32, i64, u32)>,
    last_context: Option<(u32, i64, u32)>,
    uses_runtime: FxHashSet<u32>,
    last_ns: i64,
}

#[derive(Clone, Copy)]
struct ProcessIds {
    global: i64,
    session: i64,
}

impl Host {
    pub fn begin(&mut self, database: &mut Database, trace: &Trace<'_>) -> io::Result<()> {
        let begins = trace.totals.sessions.iter().map(|session| session.begin.realtime_ns);
        self.base_ns = i64::try_from(begins.min().unwrap_or(0)).unwrap_or(i64::MAX);
        let mut known: FxHashMap<String, i64> = FxHashMap::default();
        let mut taken: FxHashSet<i64> = FxHashSet::default();
        for process in &trace.totals.processes {
            for device in process.definitions.devices() {
                let key = match uuid(device.uuid) {
                    none if none.is_empty() => format!("{} {}", device.ordinal, device.name),
                    uuid => uuid,
                };
                let id = match known.get(&key) {
                    Some(id) => *id,
                    None => {
                        let ordinal = i64::from(device.ordinal);
                        let free = (0..).find(|id| !taken.contains(id)).unwrap_or(ordinal);
                        let id = if taken.contains(&ordinal) { free } else { ordinal };
                        taken.insert(id);
                        known.insert(key, id);
                        add_device(database, id, &device)?;
                        id
                    }
                };
                self.devices.insert((process.number, device.ordinal), id);
            }
        }
        for (key, _) in trace.aggregates.calls.iter() {
            let definitions = trace.process(key.process).map(|process| &process.definitions);
            if definitions.is_some_and(|known| known.call_name(key.api) == LOADS_LIBRARY) {
                self.uses_runtime.insert(key.process);
            }
        }
        Ok(())
    }

    pub fn process_begins(&mut self, number: u32, pid: u32, session: &SessionBegin) {
        let key = (session.realtime_ns, session.monotonic_ns);
        let known = self.sessions.iter().position(|known| *known == key).unwrap_or_else(|| {
            self.sessions.push(key);
            self.sessions.len() - 1
        });
        // One byte; a number past it repeats.
        let session = (known & 0xff) as i64;
        let global = session << 48 | ((u64::from(pid) & ID_BITS) << 24) as i64;
        self.processes.insert(number, ProcessIds { global, session });
    }

    pub fn process(&self, number: u32) -> i64 {
        self.processes.get(&number).map_or(0, |ids| ids.global)
    }

    pub fn thread(&self, process: u32, thread: u32, definitions: &Definitions) -> i64 {
        let tid = definitions.thread(thread).map_or(0, |thread| thread.tid);
        self.process(process) | (u64::from(tid) & ID_BITS) as i64
    }

    /// Unique over all processes, since nsys's rules join by it alone; `None` for none.
    pub fn correlation(&self, process: u32, correlation: u32) -> Option<i64> {
        (correlation != 0).then(|| i64::from(process) << 32 | i64::from(correlation))
    }

    pub fn device(&self, process: u32, ordinal: u32) -> i64 {
        let unknown = if ordinal == NO_DEVICE { -1 } else { i64::from(ordinal) };
        self.devices.get(&(process, ordinal)).copied().unwrap_or(unknown)
    }

    pub fn uses_context(&mut self, process: u32, device: i64, context: u32) {
        let key = (process, device, context);
        if context != 0 && self.last_context.replace(key) != Some(key) {
            self.contexts.insert(key);
        }
    }

    pub fn uses_runtime(&self, process: u32) -> bool {
        self.uses_runtime.contains(&process)
    }

    /// Start and end since the first session's begin.
    pub fn times(&mut self, trace: &Trace<'_>, process: u32, start_ns: u64, duration_ns: u64) -> (i64, i64) {
        let start = trace.signed_unix_ns(process, start_ns).saturating_sub(self.base_ns);
        let end = start.saturating_add(i64::try_from(duration_ns).unwrap_or(i64::MAX));
        self.last_ns = self.last_ns.max(end);
        (start, end)
    }

    /// Writes the names of processes and threads, contexts, and the length.
    pub fn finish(&self, database: &mut Database, trace: &Trace<'_>) -> io::Result<()> {
        for process in &trace.totals.processes {
            let (number, global) = (process.number, self.process(process.number));
            let name = trace.process_name(number);
            database.add(&PROCESSES, (global, process.begin.pid, line_safe(&name).as_ref()))?;
            let definitions = &process.definitions;
            for (id, _) in definitions.threads().filter(|(_, thread)| thread.is_program()) {
                let name = database.text(&trace.thread_name(number, id))?;
                database.add(&THREAD_NAMES, (name, 0, self.thread(number, id, definitions)))?;
            }
        }
        for (process, device, context) in &self.contexts {
            let ids = self.processes.get(process);
            let (session, pid) = ids.map_or((0, 0), |ids| (ids.session, ids.global >> 24 & ID_BITS as i64));
            let none: Option<i64> = None;
            database.add(&CONTEXT, (DEFAULT_STREAM, 0, session, pid, device, context, none, 0))?;
        }
        database.add(&SESSION_START, [self.base_ns])?;
        database.add(&ANALYSIS, (0, self.last_ns, 0, self.last_ns))
    }
}

fn add_device(database: &mut Database, id: i64, device: &Device) -> io::Result<()> {
    let bus = format!("{:08x}:{:02x}:{:02x}.0", device.pci_domain, device.pci_bus, device.pci_device);
    let name = line_safe(&device.name);
    let row = rusqlite::params![
        0,
        id,
        name.as_ref(),
        bus,
        device.l2_bytes.cast_signed(),
        device.total_memory_bytes.cast_signed(),
        i64::from(device.clock_khz) * 1_000,
        device.multiprocessors,
        uuid(device.uuid),
        device.ordinal,
        device.warp_size,
        device.max_blocks_per_multiprocessor,
        device.max_threads_per_block,
        device.registers_per_block,
        device.shared_bytes_per_block_optin,
        device.shared_bytes_per_multiprocessor,
        device.registers_per_multiprocessor,
        device.compute_major,
        device.compute_minor,
    ];
    database.add(&GPU, row)
}
