//! What was decoded, whatever it has in it, through every format of `gputrace export`.
//!
//! Input: as `gputrace_fuzz::batches` has it; the mode's second bit selects a part of the trace.
#![no_main]

use gputrace_collector::aggregate::Aggregates;
use gputrace_collector::batch::Batch;
use gputrace_collector::export::{
    Destination, FORMATS, Feed, FormatEntry, Interval, Selection, Target, Trace,
};
use gputrace_collector::filter::Filter;
use gputrace_collector::model::sink::Sink;
use gputrace_collector::model::{Model, Totals};
use gputrace_fuzz::batches::batches;
use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::LazyLock;

/// A folder in memory, there for as long as a format takes.
static SCRATCH: LazyLock<PathBuf> =
    LazyLock::new(|| Path::new("/dev/shm").join(format!("gputrace-fuzz-{}", std::process::id())));

fuzz_target!(|data: &[u8]| {
    let (mode, batches) = batches(data);
    let (totals, aggregates) = consume(&batches, Aggregates::default());
    for format in FORMATS {
        let selection = if mode & 2 == 0 { Selection::default() } else { part() };
        let trace = Trace::new(&totals, &aggregates);
        export(format, |destination| {
            let format = (format.open)(destination).expect("memory");
            consume(&batches, Feed::of(selection, trace, format)).1.end().written.expect("memory");
        });
    }
});

/// Passes the destination that the format needs to `write`, and checks what has a form.
fn export(format: &FormatEntry, write: impl FnOnce(Destination)) {
    if format.target == Target::Stream {
        let written = Written::default();
        write(Destination::Stream(Box::new(written.clone())));
        return check(format.name, &written.0.borrow());
    }
    std::fs::create_dir(&*SCRATCH).expect("a folder in memory");
    write(match format.target {
        Target::Folder => Destination::Folder(SCRATCH.clone()),
        _ => Destination::File(SCRATCH.join("file")),
    });
    std::fs::remove_dir_all(&*SCRATCH).expect("what was just written");
}

/// No name may leave the text that it is in, nor reach a terminal as more than text.
fn check(format: &str, written: &[u8]) {
    let is_json = |text: &[u8]| serde_json::from_slice::<serde_json::Value>(text).is_ok();
    let is_well_formed = match format {
        "chrome" | "speedscope" => is_json(written),
        "otlp-json" => written.split_inclusive(|byte| *byte == b'\n').all(is_json),
        "folded" => written.split_inclusive(|byte| *byte == b'\n').all(|line| {
            let line = std::str::from_utf8(line).expect("text").trim_end_matches('\n');
            line.rsplit_once(' ').is_some_and(|(_, weight)| weight.parse::<u64>().is_ok())
        }),
        _ => return,
    };
    assert!(is_well_formed, "{format}: {}", String::from_utf8_lossy(written));
    let is_control = |byte: &u8| (*byte < b' ' && *byte != b'\n') || *byte == 0x7f;
    if let Some(at) = written.iter().position(is_control) {
        let around = &written[at.saturating_sub(200)..written.len().min(at + 40)];
        panic!("{format} has a control character: {:?}", String::from_utf8_lossy(around));
    }
}

fn part() -> Selection {
    let filters = ["range=*a*", "device=0,kernel=*k*", "thread=*", "process=*,stream=7"];
    let filters = filters.iter().map(|text| Filter::parse(text).expect("a filter")).collect();
    let interval = Interval { from_ns: Some(100), to_ns: Some(1 << 40) };
    Selection::new(filters, interval).expect("few conditions")
}

fn consume<S: Sink>(batches: &[Batch], sink: S) -> (Totals, S) {
    let mut model = Model::new(sink);
    batches.iter().for_each(|batch| model.consume(batch));
    model.finish()
}

#[derive(Clone, Default)]
struct Written(Rc<RefCell<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
