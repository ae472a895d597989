//! Exports recorded and made traces, and reads the packets back.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::aggregate::Aggregates;
use crate::batch::Batch;
use crate::export::{Destination, FORMATS, Feed, Trace};
use crate::model::Model;
use crate::trace_file::TraceReader;

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The batches as a Perfetto trace, and how many events it has.
fn export(batches: &[Batch]) -> (Vec<u8>, u64) {
    let mut first = Model::new(Aggregates::default());
    batches.iter().for_each(|batch| first.consume(batch));
    let (totals, aggregates) = first.finish();
    let written = Written::default();
    let entry = FORMATS.iter().find(|entry| entry.name == "perfetto").unwrap();
    let format = (entry.open)(Destination::Stream(Box::new(written.clone()))).unwrap();
    let mut second = Model::new(Feed::new(Trace::new(&totals, &aggregates), format));
    batches.iter().for_each(|batch| second.consume(batch));
    let (_, feed) = second.finish();
    let events = feed.finish().unwrap();
    let bytes = written.0.lock().unwrap().clone();
    (bytes, events)
}

fn recorded(name: &str) -> Vec<Batch> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(name);
    TraceReader::open(&path).unwrap().collect()
}

#[test]
fn recorded_trace_x() {
    for name in ["pytorch-h200", "demo-h200"] {
        let (bytes, events) = export(&recorded(&format!("{name}.gputrace")));
        println!("{name}: {} bytes, {events}", bytes.len());
        if let Some(folder) = std::env::var_os("GPUTRACE_EXPORTS") {
            let path = Path::new(&folder).join(format!("{name}.pftrace"));
            File::create(path).unwrap().write_all(&bytes).unwrap();
        }
    }
}
