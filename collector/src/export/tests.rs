use std::cell::RefCell;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use gputrace_wire::call::Detail;

use crate::aggregate::Aggregates;
use crate::export::{
    Choices, Destination, Event, FORMATS, Fed, Feed, Format, Interval, Selection, Target, Trace,
};
use crate::filter::Filter;
use crate::model::operation::What;
use crate::spans::{Naming, Sampling, SpanJson, SpanSink};
use crate::stream::replay::read_traces;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(name)
}

fn fixtures() -> [PathBuf; 2] {
    [fixture("demo-h200.gputrace"), fixture("pytorch-h200.gputrace")]
}

/// Exports as the command line does.
fn export(paths: &[PathBuf], choices: Choices, selection: Selection, format: Box<dyn Format>) -> Fed {
    let first = read_traces(paths, Aggregates::default(), &mut |_| {}).unwrap();
    let mut trace = Trace::new(&first.totals, &first.sink);
    trace.choices = choices;
    read_traces(paths, Feed::of(selection, trace, format), &mut |_| {}).unwrap().sink.end()
}

/// Bytes that a test reads when the format is gone.
#[derive(Clone, Default)]
struct SharedBytes(Rc<RefCell<Vec<u8>>>);

impl Write for SharedBytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a format was given: kind of event, name, times, and numbers of its process and device.
#[derive(Clone, PartialEq, Debug)]
struct Seen {
    kind: &'static str,
    /// The short name of the kernel that was launched or executed; empty of anything else.
    kernel: String,
    device: Option<u32>,
    process: u32,
    start_ns: u64,
    end_ns: u64,
}

struct Notes(Rc<RefCell<Vec<Seen>>>);

impl Seen {
    fn at(kind: &'static str, process: u32, (start_ns, duration_ns): (u64, u64), trace: &Trace<'_>) -> Seen {
        let start_ns = trace.unix_ns(process, start_ns) - trace.begin_unix_ns;
        Seen { kind, kernel: String::new(), device: None, process, start_ns, end_ns: start_ns + duration_ns }
    }
}

impl Format for Notes {
    fn event(&mut self, event: Event<'_>, trace: &mut Trace<'_>) -> io::Result<()> {
        let seen = match event {
            Event::Call(call, _) => {
                let seen = Seen::at("call", call.process, (call.start_ns, call.duration_ns), trace);
                let kernel = match call.detail {
                    Detail::Launch(launch) => {
                        trace.labels.kernels.function(call.process, launch.function).short.to_string()
                    }
                    _ => String::new(),
                };
                Seen { kernel, ..seen }
            }
            Event::Range(range, _) => {
                Seen::at("range", range.process, (range.start_ns, range.end_ns - range.start_ns), trace)
            }
            Event::Operation(operation, _) => {
                let timing = operation.timing.unwrap();
                let times = (timing.start_ns, timing.duration_ns);
                let seen = Seen::at("operation", operation.process, times, trace);
                let kernel = match operation.what {
                    What::Kernel(kernel) => trace.labels.kernels.name(operation.process, kernel.name).short,
                    _ => "".into(),
                };
                Seen { kernel: kernel.to_string(), device: Some(operation.device), ..seen }
            }
            _ => return Ok(()),
        };
        self.0.borrow_mut().push(seen);
        Ok(())
    }

    fn finish(&mut self, _: &mut Trace<'_>) -> io::Result<u64> {
        Ok(self.0.borrow().len() as u64)
    }
}

/// What a format is given of both fixtures, and how many events were left out.
fn seen(filters: &[&str], interval: Interval) -> (Vec<Seen>, u64) {
    let filters = filters.iter().map(|text| Filter::parse(text).unwrap()).collect();
    let notes = Rc::default();
    let format = Box::new(Notes(Rc::clone(&notes)));
    let selection = Selection::new(filters, interval).unwrap();
    let fed = export(&fixtures(), Choices::default(), selection, format);
    let seen = notes.take();
    assert_eq!(fed.written.unwrap(), seen.len() as u64);
    (seen, fed.left_out)
}

fn everything() -> Vec<Seen> {
    let (seen, left_out) = seen(&[], Interval::default());
    assert_eq!(left_out, 0);
    seen
}

/// Checks that exactly those events of all are selected.
#[track_caller]
fn selects(filters: &[&str], expected: impl Fn(&Seen) -> bool) {
    let all = everything();
    let (selected, left_out) = seen(filters, Interval::default());
    assert!(!selected.is_empty(), "{filters:?}");
    assert_eq!(selected.len() as u64 + left_out, all.len() as u64, "{filters:?}");
    let expected: Vec<Seen> = all.into_iter().filter(expected).collect();
    assert!(selected == expected, "{filters:?}: {} and not {}", selected.len(), expected.len());
}

#[test]
fn otlp_json_is_what_the_span_sink_writes() {
    for all in [false, true] {
        let sampling = Sampling { all, rate: None, ..Sampling::default() };
        for path in fixtures() {
            let direct = SpanSink::new(SpanJson::new(Vec::new(), Naming::default()), sampling);
            let read = read_traces(std::slice::from_ref(&path), direct, &mut |_| {}).unwrap();
            let (count, expected) = read.sink.finish().1.finish().unwrap();
            let written = SharedBytes::default();
            let entry = FORMATS.iter().find(|format| format.name == "otlp-json").unwrap();
            let format = (entry.open)(Destination::Stream(Box::new(written.clone()))).unwrap();
            let choices = Choices { sampling, ..Choices::default() };
            let fed = export(&[path], choices, Selection::default(), format);
            assert_eq!(fed.written.unwrap(), count);
            assert!(*written.0.borrow() == expected && !expected.is_empty());
        }
    }
}

#[test]
fn names_of_formats_are_unique_and_each_opens_its_own_kind_of_destination() {
    let folder = tempfile::tempdir().unwrap();
    let mut names: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), FORMATS.len());
    for format in FORMATS {
        let path = folder.path().join(format.name);
        let wrong = match format.target {
            Target::Stream => Destination::File(path),
            Target::File | Target::Folder => Destination::Stream(Box::new(io::sink())),
        };
        assert!((format.open)(wrong).is_err(), "{}", format.name);
    }
}

#[test]
fn filter_takes_the_events_that_have_what_it_names() {
    // A launch has the kernel that it launches.
    selects(&["kernel=gemm_backward"], |seen| seen.kernel == "gemm_backward");
    selects(&["kernel=gemm_b*,device=0", "kernel=soft?ax"], |seen| {
        ["gemm_backward", "softmax"].contains(&seen.kernel.as_str())
    });
    selects(&["kernel=*"], |seen| !seen.kernel.is_empty());
    selects(&["process=*"], |_| true);
    let first = everything()[0].process;
    selects(&["process=gputrace"], |seen| seen.process == first);
}

#[test]
fn filter_that_nothing_has_takes_nothing() {
    for filter in ["kernel=no such", "process=1", "device=7", "kernel=gemm_backward,process=python*"] {
        let (selected, left_out) = seen(&[filter], Interval::default());
        assert_eq!((selected.len(), left_out), (0, everything().len() as u64), "{filter}");
    }
}

#[test]
fn interval_takes_what_overlaps_it() {
    let all = everything();
    let middle_ns = all[all.len() / 4].start_ns + 1;
    let count = |from_ns, to_ns| seen(&[], Interval { from_ns, to_ns }).0.len();
    let (before, after) = (count(None, Some(middle_ns)), count(Some(middle_ns), None));
    assert_eq!(before, all.iter().filter(|seen| seen.start_ns < middle_ns).count());
    let is_after = |seen: &&Seen| seen.end_ns > middle_ns || seen.start_ns >= middle_ns;
    assert_eq!(after, all.iter().filter(is_after).count());
    assert!(before > 0 && after > 0 && before + after > all.len(), "{before} and {after} of {}", all.len());
    assert_eq!(count(Some(u64::MAX), None), 0);
}

#[test]
fn selection_has_a_limit() {
    let filter = Filter::parse("device=0").unwrap();
    assert!(Selection::new(vec![filter.clone(); 64], Interval::default()).is_some());
    assert!(Selection::new(vec![filter; 65], Interval::default()).is_none());
}

/// Fails at the first event.
struct Refusing;

impl Format for Refusing {
    fn event(&mut self, event: Event<'_>, _: &mut Trace<'_>) -> io::Result<()> {
        match event {
            Event::Operation(..) => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }

    fn finish(&mut self, _: &mut Trace<'_>) -> io::Result<u64> {
        Ok(0)
    }
}

#[test]
fn error_of_a_format_is_the_end() {
    let fed = export(&fixtures(), Choices::default(), Selection::default(), Box::new(Refusing));
    assert_eq!(fed.written.unwrap_err().kind(), io::ErrorKind::StorageFull);
}
