//! Exports recorded and made traces, and reads the packets back.

mod made;
mod reader;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::aggregate::Aggregates;
use crate::batch::Batch;
use crate::export::{Destination, Feed, Format, Trace};
use crate::model::{Model, Totals};
use crate::report::Report;
use crate::trace_file::TraceReader;
use reader::{ReadSlice, ReadTrace, read};

#[derive(Clone, Default)]
struct WrittenTrace(Arc<Mutex<Vec<u8>>>);

impl Write for WrittenTrace {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl WrittenTrace {
    fn format(&self) -> Box<dyn Format> {
        (super::FORMAT.open)(Destination::Stream(Box::new(self.clone()))).unwrap()
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

fn analysed(batches: &[Batch]) -> (Totals, Aggregates) {
    let mut model = Model::new(Aggregates::default());
    batches.iter().for_each(|batch| model.consume(batch));
    model.finish()
}

/// The batches as a Perfetto trace.
fn export(batches: &[Batch]) -> Vec<u8> {
    let (totals, aggregates) = analysed(batches);
    let written = WrittenTrace::default();
    let mut model = Model::new(Feed::new(Trace::new(&totals, &aggregates), written.format()));
    batches.iter().for_each(|batch| model.consume(batch));
    let events = model.finish().1.finish().unwrap();
    let bytes = written.bytes();
    assert_eq!(events, read(&bytes).slices.len() as u64, "the count is that of slices and moments");
    bytes
}

fn recorded(name: &str) -> Vec<Batch> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(name);
    TraceReader::open(&path).unwrap().collect()
}

/// Writes a trace to the folder GPUTRACE_EXPORTS, if that is set, for Perfetto itself to read.
fn keep(name: &str, bytes: &[u8]) {
    if let Some(folder) = std::env::var_os("GPUTRACE_EXPORTS") {
        fs::write(Path::new(&folder).join(format!("{name}.pftrace")), bytes).unwrap();
    }
}

fn duration_ns(slices: &[&ReadSlice]) -> u64 {
    slices.iter().map(|slice| slice.duration_ns.unwrap()).sum()
}

#[test]
fn recorded_counts_and_sums_are_those_of_the_report() {
    for name in ["pytorch-h200", "demo-h200"] {
        let batches = recorded(&format!("{name}.gputrace"));
        let bytes = export(&batches);
        keep(name, &bytes);
        let exported = read(&bytes);
        let (totals, aggregates) = analysed(&batches);
        let report = Report::new(&totals, &aggregates);

        let mut kernels: BTreeMap<(String, String), (u64, u64)> = BTreeMap::new();
        for slice in exported.of_category("kernel") {
            let key = (slice.name.clone(), slice.function.clone().unwrap());
            let sums = kernels.entry(key).or_default();
            *sums = (sums.0 + 1, sums.1 + slice.duration_ns.unwrap());
        }
        let reported = report.kernels.iter();
        let reported = reported.map(|row| {
            ((row.name.to_string(), row.full_name.to_string()), (row.calls, row.spread.total_ns.unwrap()))
        });
        assert_eq!(kernels, reported.collect(), "{name}");

        for moved in &report.transfers {
            let direction = moved.direction;
            let copies: Vec<&ReadSlice> =
                exported.slices.iter().filter(|slice| slice.name == format!("memcpy {direction}")).collect();
            let bytes: u64 = copies.iter().map(|slice| slice.numbers["bytes"]).sum();
            assert_eq!(
                (copies.len() as u64, bytes, duration_ns(&copies)),
                (moved.moved.calls, moved.moved.bytes, moved.moved.spread.total_ns.unwrap())
            );
        }
        assert_eq!(exported.of_category("call").len() as u64, totals.counts.host_calls());
        let flows = |slice: &&ReadSlice| !slice.flows.is_empty();
        let on_device = ["kernel", "memcpy", "memset"].map(|of| exported.of_category(of));
        let executed: Vec<&ReadSlice> = on_device.into_iter().flatten().filter(flows).collect();
        assert_eq!(executed.len() as u64, totals.counts.executed);
        let calls = exported.of_category("call");
        for slice in executed {
            assert!(calls.iter().any(|call| call.flows == slice.flows && call.start_ns <= slice.start_ns));
        }
    }
}

/// How long a launch and its kernel are, without the names that are written once.
fn bytes_a_pair(exported: &ReadTrace) -> f64 {
    let kernels = exported.of_category("kernel");
    let calls = exported.of_category("call");
    let launches: BTreeMap<&[u64], &&ReadSlice> = calls.iter().map(|call| (&call.flows[..], call)).collect();
    let bytes: usize = kernels.iter().map(|kernel| kernel.bytes + launches[&kernel.flows[..]].bytes).sum();
    bytes as f64 / kernels.len() as f64
}

#[test]
fn launch_with_its_kernel_has_at_most_110_bytes() {
    let bytes = bytes_a_pair(&read(&export(&recorded("pytorch-h200.gputrace"))));
    println!("{bytes:.1} bytes a launch with its kernel");
    assert!(bytes <= 110.0, "{bytes}");
}
