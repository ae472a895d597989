//! Recorded streams, cut into files: read together, they are what one file is.

use std::fs;

use super::*;
use crate::aggregate::Aggregates;
use crate::flame::Flame;
use crate::model::Totals;
use crate::report::Report;
use crate::spans::{Naming, Sampling, SpanJson, SpanSink};
use crate::stream::replay::read_traces;
use crate::trace_file::TraceReader;

/// The batches of a recorded trace, cells in batches of a few entries, so that there is much to cut between.
fn recorded(name: &str) -> Vec<Batch> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(name);
    let mut batches = Vec::new();
    for batch in TraceReader::open(&path).unwrap() {
        let Batch::Cells { process, ring, cells } = batch else {
            batches.push(batch);
            continue;
        };
        let mut rest = &cells[..];
        while !rest.is_empty() {
            let mut length = 0;
            while length < rest.len().min(12) {
                length += usize::from(rest[length].cells());
            }
            let (now, later) = rest.split_at(length);
            batches.push(Batch::Cells { process, ring, cells: now.to_vec() });
            rest = later;
        }
    }
    batches
}

fn rotation() -> Rotation {
    let handle_closed = Box::new(|_: &ClosedFile| 0);
    Rotation::start(RotationConfig { size: None, every: None, handle_closed }).unwrap()
}

struct CutTrace {
    files: Vec<PathBuf>,
    _folder: tempfile::TempDir,
}

/// Writes the stream, and cuts it after each so many batches.
fn cut(batches: &[Batch], each: usize) -> CutTrace {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.gputrace");
    let mut store = Store::new(TraceWriter::create(&path).unwrap(), None, None);
    let mut rotation = rotation();
    for (index, batch) in batches.iter().enumerate() {
        store.write(batch);
        rotation.note(batch).unwrap();
        if index % each == each - 1 && !matches!(batch, Batch::SessionEnd { .. }) {
            // A moment that no event is near: nothing may come of it.
            rotation.cut(&mut store, rotation.session.monotonic_ns + 3_600_000_000_000).unwrap();
        }
    }
    store.finish();
    let (closed, _) = rotation.finish();
    let mut files: Vec<_> = (1..=closed as u32).map(|number| numbered(&path, number)).collect();
    files.push(path);
    let mut there: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path()).collect();
    there.sort();
    assert_eq!(there, files, "in order by name");
    CutTrace { files, _folder: folder }
}

fn read(files: &[PathBuf]) -> (Totals, Aggregates) {
    let replay = read_traces(files, Aggregates::default(), &mut |_| {}).unwrap();
    assert!(replay.damages.is_empty() && replay.skipped.is_empty());
    (replay.totals, replay.sink)
}

/// All outputs of files, but for what they say of the series.
fn outputs(files: &[PathBuf]) -> Vec<String> {
    let (mut totals, aggregates) = read(files);
    for session in &mut totals.sessions {
        let series = session.series.take();
        assert!(series.is_none_or(|series| series.missing == 0 && !series.goes_on));
    }
    let spans = SpanSink::new(SpanJson::new(Vec::new(), Naming::default()), Sampling::default());
    let (_, spans) = read_traces(files, spans, &mut |_| {}).unwrap().sink.finish();
    let (_, spans) = spans.finish().unwrap();
    vec![
        Report::new(&totals, &aggregates).to_json(),
        Flame::new(&totals, &aggregates).folded(),
        String::from_utf8(spans).unwrap(),
    ]
}

#[test]
fn series_read_together_is_what_one_file_is() {
    for name in ["demo-h200.gputrace", "pytorch-h200.gputrace"] {
        let batches = recorded(name);
        let whole = cut(&batches, usize::MAX);
        let expected = outputs(&whole.files);
        for each in [1, 2, 3, 7, 50] {
            let series = cut(&batches, each);
            assert!(series.files.len() > 1, "{name} {each}");
            assert_eq!(outputs(&series.files), expected, "{name} cut after each {each} batches");
            let mut shuffled = series.files.clone();
            shuffled.reverse();
            assert_eq!(outputs(&shuffled), expected, "{name}: files in any order");
        }
    }
}

#[test]
fn each_file_of_a_series_is_readable_alone() {
    for name in ["demo-h200.gputrace", "pytorch-h200.gputrace"] {
        let batches = recorded(name);
        let (whole, _) = read(&cut(&batches, usize::MAX).files);
        let series = cut(&batches, 7);
        let mut launches = 0;
        for (index, file) in series.files.iter().enumerate() {
            let (totals, aggregates) = read(std::slice::from_ref(file));
            assert_eq!(totals.losses(), whole.losses(), "{name} {index}");
            assert!(totals.processes.iter().all(|process| process.counts.unknown_kinds == 0));
            launches += totals.counts.launches;
            let report = Report::new(&totals, &aggregates);
            assert_eq!((report.sessions, report.complete), (1, false), "{name} {index}");
            let [part] = &report.series[..] else { panic!("{:?}", report.series) };
            let (number, is_last) = (index as u32 + 1, index + 1 == series.files.len());
            assert_eq!((part.first_file, part.last_file, part.goes_on), (number, number, !is_last));
            assert_eq!(part.missing_files, index as u32);
        }
        assert_eq!(launches, whole.counts.launches, "{name}");
    }
}

/// Files that were deleted at the beginning or in the middle are reported, and nothing counts twice.
#[test]
fn missing_file_of_a_series_is_reported() {
    let batches = recorded("pytorch-h200.gputrace");
    let series = cut(&batches, 7);
    let last = series.files.len() as u32;
    let alone: Vec<u64> =
        series.files.iter().map(|file| read(std::slice::from_ref(file)).0.counts.host_calls()).collect();
    for missing in [0, 1, 2] {
        let mut files = series.files.clone();
        files.remove(missing);
        let (totals, aggregates) = read(&files);
        let report = Report::new(&totals, &aggregates);
        assert!(!report.complete);
        let [part] = &report.series[..] else { panic!("{:?}", report.series) };
        let first = if missing == 0 { 2 } else { 1 };
        assert_eq!((part.first_file, part.last_file, part.missing_files), (first, last, 1));
        let calls: u64 = alone.iter().sum::<u64>() - alone[missing];
        assert_eq!((totals.counts.host_calls(), totals.processes.len()), (calls, 1), "without {missing}");
        assert!(report.to_text(&Default::default()).contains("1 file before the last was not read"));
    }
}

/// The open file is written on, and nothing is left of the attempt.
#[test]
fn cut_that_fails_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.gputrace");
    let mut store = Store::new(TraceWriter::create(&path).unwrap(), None, None);
    let mut rotation = rotation();
    let batches = recorded("demo-h200.gputrace");
    for (index, batch) in batches.iter().enumerate() {
        store.write(batch);
        rotation.note(batch).unwrap();
        if index == 5 {
            fs::write(numbered(&path, 1), "somebody's").unwrap();
            rotation.cut(&mut store, 1).unwrap_err();
            assert_eq!(fs::read(numbered(&path, 1)).unwrap(), b"somebody's");
        }
    }
    store.finish();
    assert_eq!(rotation.finish(), (0, 0));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    assert_eq!(outputs(&[path]), outputs(&cut(&batches, usize::MAX).files));
}

/// A cut drops the rows of processes that have exited, and the session's status keeps their sums.
#[test]
fn sums_of_exited_processes_outlive_the_cut() {
    let mut model = crate::model::Model::new(());
    recorded("pytorch-h200.gputrace").iter().for_each(|batch| model.consume(batch));
    let before = model.exited();
    let sums = (before.processes, before.counts.clone(), before.counters.clone());
    assert!(sums.0 == 1 && sums.1.launches > 0);
    model.forget_exited();
    model.forget_exited();
    let after = model.exited();
    assert_eq!((after.processes, after.counts.clone(), after.counters.clone()), sums);
    assert!(model.finish().0.processes.is_empty());
}

#[test]
fn cut_is_due_by_size_or_time_once_something_happened() {
    let batches = recorded("demo-h200.gputrace");
    let is_due = |size, every, batches: &[Batch]| {
        let handle_closed = Box::new(|_: &ClosedFile| 0);
        let mut rotation = Rotation::start(RotationConfig { size, every, handle_closed }).unwrap();
        batches.iter().for_each(|batch| rotation.note(batch).unwrap());
        [10, 1000].map(|bytes| rotation.is_due(bytes))
    };
    let (before_end, _) = batches.split_at(batches.len() - 1);
    assert_eq!(is_due(Some(1000), None, before_end), [false, true]);
    assert_eq!(is_due(None, Some(Duration::ZERO), before_end), [true, true]);
    assert_eq!(is_due(Some(1000), Some(Duration::ZERO), &batches[..1]), [false, false], "nothing happened");
    assert_eq!(is_due(Some(1000), Some(Duration::ZERO), &batches), [false, false], "the session has ended");
}
