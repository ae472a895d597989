//! Exports of traces for the tests of formats, by the library alone.

use std::io;
use std::path::{Path, PathBuf};

use crate::aggregate::Aggregates;
use crate::batch::Batch;
use crate::export::{Destination, Feed, Format, Trace};
use crate::model::{Model, Totals};
use crate::trace_file::TraceReader;

/// A trace of tests/fixtures, by its name without the suffix.
pub fn fixture(name: &str) -> Vec<Batch> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../tests/fixtures/{name}.gputrace"));
    TraceReader::open(&path).unwrap().collect()
}

/// Exports a trace with two passes, as the command does. Returns what the report is made from, and what the
/// format returned.
pub fn export(
    batches: &[Batch],
    open: fn(Destination) -> io::Result<Box<dyn Format>>,
    to: Destination,
) -> (Totals, Aggregates, io::Result<u64>) {
    let mut first = Model::new(Aggregates::default());
    batches.iter().for_each(|batch| first.consume(batch));
    let (totals, aggregates) = first.finish();
    let written = open(to).and_then(|format| {
        let mut second = Model::new(Feed::new(Trace::new(&totals, &aggregates), format));
        batches.iter().for_each(|batch| second.consume(batch));
        second.finish().1.finish()
    });
    (totals, aggregates, written)
}

/// A new folder that is removed with the guard, and the path of something in it.
pub fn scratch(name: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    (folder, path)
}
