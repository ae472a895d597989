//! The format: one row for each event, into its table.

use std::fs;
use std::io;
use std::path::Path;

use gputrace_wire::call::Detail;
use gputrace_wire::cell::flag;

use crate::aggregate::{NO_DEVICE, StackKey};
use crate::batch::{DeviceMetric, DeviceSamples};
use crate::export::parquet::names::NameTables;
use crate::export::parquet::schema;
use crate::export::parquet::table::{Datum, ParquetTable};
use crate::export::{Destination, Event, Format, Trace};
use crate::label;
use crate::model::definitions::Definitions;
use crate::model::instances::RangeInstance;
use crate::model::operation::{HostCall, Operation, What};

pub fn open(destination: Destination) -> io::Result<Box<dyn Format>> {
    Ok(Box::new(ParquetFolder::create(&destination.path()?)?))
}

struct ParquetFolder {
    kernels: ParquetTable,
    copies: ParquetTable,
    memsets: ParquetTable,
    graphs: ParquetTable,
    calls: ParquetTable,
    ranges: ParquetTable,
    device_samples: ParquetTable,
    names: NameTables,
}

impl ParquetFolder {
    fn create(path: &Path) -> io::Result<ParquetFolder> {
        fs::create_dir_all(path)?;
        let table = |schema| ParquetTable::create(path, schema);
        Ok(ParquetFolder {
            kernels: table(&schema::KERNELS)?,
            copies: table(&schema::COPIES)?,
            memsets: table(&schema::MEMSETS)?,
            graphs: table(&schema::GRAPHS)?,
            calls: table(&schema::CALLS)?,
            ranges: table(&schema::RANGES)?,
            device_samples: table(&schema::DEVICE_SAMPLES)?,
            names: NameTables::create(path)?,
        })
    }

    fn operation(&mut self, operation: &Operation, trace: &mut Trace<'_>) -> io::Result<()> {
        let process = operation.process;
        let key = StackKey::of_operation(operation);
        let call = operation.call.as_ref();
        self.names.uses(process, key.stack, key.stream);
        let timing = operation.timing;
        let start = timing.map(|timing| trace.signed_unix_ns(process, timing.start_ns));
        let duration = timing.map(|timing| signed(timing.duration_ns));
        let common = [
            start.map_or(Datum::None, Datum::Int),
            duration.map_or(Datum::None, Datum::Int),
            Datum::Id(process),
            if operation.device == NO_DEVICE { Datum::None } else { Datum::Id(operation.device) },
            Datum::Id(operation.context),
            Datum::Id(operation.stream),
            Datum::id(key.stream),
            Datum::id(call.map_or(0, |call| call.correlation)),
            Datum::id(key.thread),
            Datum::id(key.stack),
            Datum::id(call.map_or(0, |call| call.range)),
            Datum::optional(operation.graph.map(|known| known.graph)),
        ];
        let node = operation.graph.map_or(Datum::None, |known| Datum::Big(known.node));
        match operation.what {
            What::Kernel(kernel) => {
                let ([gx, gy, gz], [bx, by, bz]) = (kernel.grid, kernel.block);
                let own = [
                    Datum::Id(self.names.kernel(process, kernel.name, trace)?),
                    node,
                    Datum::Id(gx),
                    Datum::Id(gy),
                    Datum::Id(gz),
                    Datum::Id(bx),
                    Datum::Id(by),
                    Datum::Id(bz),
                    Datum::Id(kernel.cluster.iter().fold(1, |blocks, side| blocks.saturating_mul(*side))),
                    Datum::Id(kernel.registers),
                    Datum::Id(kernel.static_shared_bytes),
                    Datum::Id(kernel.dynamic_shared_bytes),
                ];
                add(&mut self.kernels, common, own)
            }
            What::Copy { direction, bytes, source_memory, target_memory, .. } => {
                let kinds = [source_memory, target_memory].map(|kind| Datum::Id(kind.into()));
                let [source, target] = kinds;
                let own = [node, Datum::Text(direction.name()), Datum::Big(bytes), source, target];
                add(&mut self.copies, common, own)
            }
            What::Fill { bytes } => add(&mut self.memsets, common, [node, Datum::Big(bytes)]),
            What::Graph => {
                let nodes = operation.graph.map_or(0, |known| known.nodes);
                add(&mut self.graphs, common, [Datum::Id(nodes)])
            }
        }
    }

    fn call(&mut self, call: &HostCall, definitions: &Definitions, trace: &Trace<'_>) -> io::Result<()> {
        self.names.uses(call.process, call.stack, call.stream);
        let bytes = match &call.detail {
            Detail::Copy(copy) => Datum::Big(copy.bytes),
            Detail::Fill { bytes, .. } => Datum::Big(*bytes),
            Detail::Memory(memory) => Datum::Big(memory.bytes),
            _ => Datum::None,
        };
        self.calls.add(&[
            Datum::Int(trace.signed_unix_ns(call.process, call.start_ns)),
            Datum::Int(signed(call.duration_ns)),
            Datum::Id(call.process),
            Datum::Id(call.thread),
            Datum::Text(definitions.call_name(call.api)),
            Datum::Id(call.status.into()),
            Datum::Bool(call.flags & flag::CAPTURED != 0),
            Datum::id(call.correlation),
            Datum::id(call.stack),
            Datum::id(call.range),
            Datum::id(call.stream),
            bytes,
        ])
    }

    fn range(
        &mut self,
        range: &RangeInstance,
        definitions: &Definitions,
        trace: &Trace<'_>,
    ) -> io::Result<()> {
        let (domain, name) = definitions.range(range.range).unwrap_or(("", "(unknown range)"));
        self.ranges.add(&[
            Datum::Int(trace.signed_unix_ns(range.process, range.start_ns)),
            Datum::Int(signed(range.duration_ns)),
            Datum::Id(range.process),
            Datum::Id(range.thread),
            Datum::Id(range.number),
            Datum::id(range.around),
            Datum::Text(domain),
            Datum::Text(name),
            Datum::Bool(range.is_whole),
        ])
    }
}

impl ParquetFolder {
    fn samples(&mut self, samples: &DeviceSamples, trace: &Trace<'_>) -> io::Result<()> {
        let (uuid, bus_id) = (label::uuid(samples.device.uuid), samples.device.pci_bus_id());
        samples.samples.iter().try_for_each(|sample| {
            let at_ns = Datum::Int(signed(trace.sample_unix_ns(sample.monotonic_ns)));
            let value = |metric: &DeviceMetric| sample.get(*metric).map_or(Datum::None, Datum::Big);
            let values = DeviceMetric::ALL.iter().map(value);
            let row = [at_ns, Datum::Text(&uuid), Datum::Text(&bus_id)].into_iter().chain(values);
            self.device_samples.add(&row.collect::<Vec<_>>())
        })
    }
}

impl Format for ParquetFolder {
    fn event(&mut self, event: Event<'_>, trace: &mut Trace<'_>) -> io::Result<()> {
        match event {
            Event::Call(call, definitions) => self.call(call, definitions, trace),
            Event::Operation(operation, _) => self.operation(operation, trace),
            Event::Range(range, definitions) => self.range(range, definitions, trace),
            Event::Samples(samples) => self.samples(samples, trace),
            Event::ProcessBegins { .. }
            | Event::Defines { .. }
            | Event::Caller { .. }
            | Event::RangeBegins(..)
            | Event::Block(_)
            | Event::ProcessEnds { .. } => Ok(()),
        }
    }

    fn finish(&mut self, trace: &mut Trace<'_>) -> io::Result<u64> {
        self.names.finish(trace)?;
        let tables = [
            &mut self.kernels,
            &mut self.copies,
            &mut self.memsets,
            &mut self.graphs,
            &mut self.calls,
            &mut self.ranges,
            &mut self.device_samples,
        ];
        let mut rows = 0;
        for table in tables {
            table.finish()?;
            rows += table.rows;
        }
        Ok(rows)
    }
}

/// A duration as Parquet has it.
fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

/// Adds a row of device work.
fn add<'v, const OWN: usize>(
    table: &mut ParquetTable,
    common: [Datum<'v>; 12],
    own: [Datum<'v>; OWN],
) -> io::Result<()> {
    let mut row = [Datum::None; 24];
    let all = common.into_iter().chain(own);
    let count = row.iter_mut().zip(all).map(|(to, value)| *to = value).count();
    table.add(row.get(..count).unwrap_or_default())
}
