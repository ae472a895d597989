//! The tables of names: kernels as they appear, and the rest at the end, for what the events referred to.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use gputrace_wire::definition::origin_of;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::export::Trace;
use crate::export::parquet::schema;
use crate::export::parquet::table::{Datum, ParquetTable};
use crate::label::{NO_LINE, stream_name, uuid};
use crate::model::Process;

pub struct NameTables {
    kernel_names: ParquetTable,
    stacks: ParquetTable,
    processes: ParquetTable,
    threads: ParquetTable,
    streams: ParquetTable,
    devices: ParquetTable,
    /// Numbers of kernels by process and name definition, and by full name.
    kernels: FxHashMap<(u32, u32), u32>,
    by_name: FxHashMap<Arc<str>, u32>,
    /// Stacks and streams that events named, by process.
    used_stacks: BTreeSet<(u32, u32)>,
    used_streams: BTreeSet<(u32, u32)>,
    /// The stack and the stream named last.
    last: [(u32, u32); 2],
}

impl NameTables {
    pub fn create(folder: &Path) -> io::Result<NameTables> {
        let table = |schema| ParquetTable::create(folder, schema);
        Ok(NameTables {
            kernel_names: table(&schema::KERNEL_NAMES)?,
            stacks: table(&schema::STACKS)?,
            processes: table(&schema::PROCESSES)?,
            threads: table(&schema::THREADS)?,
            streams: table(&schema::STREAMS)?,
            devices: table(&schema::DEVICES)?,
            kernels: FxHashMap::default(),
            by_name: FxHashMap::default(),
            used_stacks: BTreeSet::new(),
            used_streams: BTreeSet::new(),
            last: [(0, 0); 2],
        })
    }

    /// Notes that an event named them; 0 is none.
    pub fn uses(&mut self, process: u32, stack: u32, stream: u32) {
        let [last_stack, last_stream] = &mut self.last;
        if stack != 0 && *last_stack != (process, stack) {
            *last_stack = (process, stack);
            self.used_stacks.insert((process, stack));
        }
        if stream != 0 && *last_stream != (process, stream) {
            *last_stream = (process, stream);
            self.used_streams.insert((process, stream));
        }
    }

    /// The number of a kernel. Kernels of one name have one number.
    pub fn kernel(&mut self, process: u32, name: u32, trace: &mut Trace<'_>) -> io::Result<u32> {
        if let Some(known) = self.kernels.get(&(process, name)) {
            return Ok(*known);
        }
        let named = trace.labels.kernels.name(process, name);
        let number = match self.by_name.get(&named.full) {
            Some(known) => *known,
            None => {
                let number = u32::try_from(self.by_name.len()).unwrap_or(u32::MAX);
                let row = [Datum::Id(number), Datum::Text(&named.short), Datum::Text(&named.full)];
                self.kernel_names.add(&row)?;
                self.by_name.insert(named.full, number);
                number
            }
        };
        self.kernels.insert((process, name), number);
        Ok(number)
    }

    /// Writes what the events referred to.
    pub fn finish(&mut self, trace: &mut Trace<'_>) -> io::Result<()> {
        for (process, stack) in std::mem::take(&mut self.used_stacks) {
            self.stack(process, stack, trace)?;
        }
        for process in &trace.totals.processes {
            self.process(process, trace)?;
        }
        let in_report: FxHashSet<_> = trace.aggregates.streams.iter().map(|(key, _)| key).collect();
        for (process, stream) in std::mem::take(&mut self.used_streams) {
            let name = match in_report.contains(&(process, stream)) {
                true => trace.stream_name(process, stream).to_owned(),
                false => idle_stream(process, stream, trace),
            };
            self.streams.add(&[Datum::Id(process), Datum::Id(stream), Datum::Text(&name)])?;
        }
        let tables = [
            &mut self.kernel_names,
            &mut self.stacks,
            &mut self.processes,
            &mut self.threads,
            &mut self.streams,
            &mut self.devices,
        ];
        tables.into_iter().try_for_each(ParquetTable::finish)
    }

    fn stack(&mut self, process: u32, stack: u32, trace: &mut Trace<'_>) -> io::Result<()> {
        let stacks = &mut trace.labels.stacks;
        for (depth, frame) in (0..).zip(stacks.frames(process, stack)) {
            let line = stacks.line(&frame);
            let text = if line.is_none() { stacks.text(&frame) } else { String::new() };
            self.stacks.add(&[
                Datum::Id(process),
                Datum::Id(stack),
                Datum::Id(depth),
                Datum::Text(line.map_or(&text, |line| &line.function)),
                line.map_or(Datum::None, |line| Datum::Text(&line.file)),
                line.map_or(Datum::None, |line| Datum::Text(&line.path)),
                Datum::optional(line.map(|line| line.line).filter(|line| *line != NO_LINE)),
                Datum::Bool(line.is_some_and(|line| line.own)),
            ])?;
        }
        Ok(())
    }

    fn process(&mut self, process: &Process, trace: &Trace<'_>) -> io::Result<()> {
        let (number, definitions) = (process.number, &process.definitions);
        let info = definitions.process().unwrap_or_default();
        self.processes.add(&[
            Datum::Id(number),
            Datum::Text(&trace.process_name(number)),
            Datum::Id(process.begin.pid),
            Datum::Id(process.begin.parent_pid),
            Datum::Text(&info.command.join(" ")),
            Datum::optional(info.rank),
            Datum::optional(info.local_rank),
            Datum::Text(definitions.origin(origin_of::HOST_NAME).unwrap_or_default()),
            Datum::Int(trace.signed_unix_ns(number, process.begin.start_monotonic_ns)),
        ])?;
        for (id, thread) in definitions.threads().filter(|(_, thread)| thread.is_program()) {
            let name = trace.thread_name(number, id);
            self.threads.add(&[
                Datum::Id(number),
                Datum::Id(id),
                Datum::Id(thread.tid),
                Datum::Text(&name),
            ])?;
        }
        for device in definitions.devices() {
            self.devices.add(&[
                Datum::Id(number),
                Datum::Id(device.ordinal),
                Datum::Text(trace.device_name(number, device.ordinal)),
                Datum::Text(&uuid(device.uuid)),
                Datum::Big(device.total_memory_bytes),
                Datum::Id(device.multiprocessors),
                Datum::Bool(device.simulated),
            ])?;
        }
        Ok(())
    }
}

/// The name of a stream in which nothing was executed.
fn idle_stream(process: u32, stream: u32, trace: &Trace<'_>) -> String {
    let definitions = trace.process(process).map(|process| &process.definitions);
    let name = definitions.and_then(|definitions| stream_name(definitions, stream, None));
    name.unwrap_or_else(|| "(unnamed stream)".to_owned())
}
