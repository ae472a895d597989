//! What the tests of formats share: outputs of recorded traces, and a session with hostile names.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::rc::Rc;

use gputrace_wire::cell::kind as cell;
use gputrace_wire::definition::kind;
use gputrace_wire::range::{RangeBegin, RangeEnd};
use proptest::prelude::*;

use crate::aggregate::Aggregates;
use crate::batch::Batch;
use crate::export::{Destination, FORMATS, Feed, FormatEntry, Trace};
use crate::model::sink::Sink;
use crate::model::{Model, Totals};
use crate::report::tests::tape::Tape;
use crate::trace_file::TraceReader;

/// An output, and what the report is made of.
pub(super) struct Exported {
    pub bytes: Vec<u8>,
    pub events: u64,
    pub totals: Totals,
    pub aggregates: Aggregates,
}

#[derive(Clone, Default)]
struct KeptBytes(Rc<RefCell<Vec<u8>>>);

impl Write for KeptBytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn played<S: Sink>(batches: &[Batch], sink: S) -> (Totals, S) {
    let mut model = Model::new(sink);
    batches.iter().for_each(|batch| model.consume(batch));
    model.finish()
}

pub(super) fn exported(format: &FormatEntry, batches: &[Batch]) -> Exported {
    let (totals, aggregates) = played(batches, Aggregates::default());
    let kept = KeptBytes::default();
    let writer = (format.open)(Destination::Stream(Box::new(kept.clone()))).unwrap();
    let (_, feed) = played(batches, Feed::new(Trace::new(&totals, &aggregates), writer));
    let events = feed.finish().unwrap();
    let bytes = kept.0.borrow().clone();
    Exported { bytes, events, totals, aggregates }
}

/// Recorded traces: a demo, and steps of a training run.
pub(super) fn recorded() -> Vec<Vec<Batch>> {
    let open = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(name);
        TraceReader::open(&path).unwrap().collect()
    };
    vec![open("demo-h200.gputrace"), open("pytorch-h200.gputrace")]
}

/// Calls and nanoseconds by name.
pub(super) type SumsByName = BTreeMap<String, (u64, u64)>;

pub(super) fn add(sums: &mut SumsByName, name: &str, ns: u64) {
    let sum = sums.entry(name.to_owned()).or_default();
    *sum = (sum.0 + 1, sum.1 + ns);
}

impl Exported {
    /// Of the report: kernels by their full or short names.
    pub(super) fn kernels(&self, is_full: bool) -> SumsByName {
        let mut trace = Trace::new(&self.totals, &self.aggregates);
        let mut sums = SumsByName::new();
        for (key, kernel) in self.aggregates.kernels.iter() {
            let name = trace.labels.kernels.name(key.process, key.name);
            let name = if is_full { name.full } else { name.short };
            let sum = sums.entry(name.to_string()).or_default();
            *sum = (sum.0 + kernel.calls, sum.1 + kernel.durations.total_ns());
        }
        sums
    }

    pub(super) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.bytes).unwrap()
    }

    /// That no name of the program's reaches a terminal or a page as more than plain text.
    pub(super) fn assert_plain_json(&self) {
        // The only control character between values is the end of a line.
        assert!(self.bytes.iter().all(|byte| *byte >= 0x20 && *byte != 0x7f || *byte == b'\n'));
        fn assert_plain(value: &serde_json::Value) {
            match value {
                serde_json::Value::String(text) => assert_plain_text(text),
                serde_json::Value::Array(values) => values.iter().for_each(assert_plain),
                serde_json::Value::Object(values) => values.iter().for_each(|(key, value)| {
                    assert_plain_text(key);
                    assert_plain(value);
                }),
                _ => {}
            }
        }
        assert_plain(&self.json());
    }
}

pub(super) fn assert_plain_text(text: &str) {
    let is_plain = |c: char| !c.is_control() && !('\u{202a}'..='\u{202e}').contains(&c);
    assert!(text.chars().all(is_plain), "{text:?}");
}

/// A session whose kernel, call, process, thread, range, function, file and device have this name.
pub(super) fn hostile(name: &[u8]) -> Vec<Batch> {
    let mut tape = Tape::new(false);
    tape.define(kind::NAME, 60, &[], name);
    tape.define(kind::FUNCTION, 70, &[0, 60, 0, 32], b"");
    tape.define(kind::API, 61, &[], name);
    tape.define(kind::RANGE, 62, &[63], name);
    tape.define(kind::DOMAIN, 63, &[], name);
    tape.define(kind::THREAD, 64, &[77, 0], name);
    tape.define(kind::DEVICE, 65, &[5], name);
    tape.define(kind::STREAM, 66, &[9, 5], b"");
    tape.define(kind::LABEL, 67, &[66, 0], name);
    tape.code(68, name, name, 3);
    tape.stack(69, &[(68, 1)]);
    tape.thread(64);
    tape.at(69);
    tape.on(66, 7, 5);
    let range =
        RangeBegin { kind: cell::RANGE_PUSH, range: 62, start_ticks: 1_000_000_001, ..Default::default() };
    tape.entry(range.to_cell());
    tape.launch(60, 64, Some(5_000));
    tape.call(cell::CALL, 61, 700, 0, 0, Default::default());
    tape.entry(
        RangeEnd {
            kind: cell::RANGE_POP,
            range: 62,
            start_ticks: 1_000_000_001,
            end_ticks: 1_000_009_000,
            ..Default::default()
        }
        .to_cell(),
    );
    let mut batches = tape.batches_of_session();
    if let Some(Batch::SessionBegin(begin)) = batches.first_mut() {
        begin.command = vec![String::from_utf8_lossy(name).into_owned()];
    }
    // A process's first definition of itself counts.
    let command = [name, b"\0".as_slice()].concat();
    for batch in tape.batches_of_process() {
        batches.push(match batch {
            Batch::Definitions { process, mut records } => {
                let own = records.iter_mut().filter(|record| record.kind == kind::PROCESS);
                own.for_each(|record| record.text.clone_from(&command));
                Batch::Definitions { process, records }
            }
            other => other,
        });
    }
    batches
}

/// What the recording lost is warned about, and is in the outputs that have a place for a text.
#[test]
fn lost_entries_are_warned_about_and_in_the_outputs() {
    let mut tape = Tape::new(false);
    tape.launch(20, 64, Some(700));
    let mut batches = tape.batches();
    for batch in &mut batches {
        if let Batch::Counters(counters) = batch {
            counters.ring_full = 5;
        }
    }
    let text = "the recording is incomplete; it lost: ring_full 5";
    for name in ["perfetto", "chrome", "speedscope", "pprof"] {
        let format = FORMATS.iter().find(|format| format.name == name).unwrap();
        let exported = exported(format, &batches);
        let found = String::from_utf8_lossy(&exported.bytes).matches(text).count();
        assert_eq!(found, 1, "{name}");
        assert_eq!(Trace::new(&exported.totals, &exported.aggregates).warnings, [text]);
    }
    assert!(Trace::new(&Totals::default(), &Aggregates::default()).warnings.is_empty());
}

/// Names to try: every byte, markup, escapes of terminals, marks of writing direction, and anything.
pub(super) fn names() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just((0..=255u8).collect::<Vec<u8>>()),
        Just(b"</script><img src=x onerror=alert(1)>\"'`\\".to_vec()),
        Just("\u{1b}]0;x\u{7}\u{202e}\u{2028}\u{feff}".as_bytes().to_vec()),
        Just(Vec::new()),
        prop::collection::vec(any::<u8>(), 0..80),
        any::<String>().prop_map(String::into_bytes),
    ]
}
