//! Streams of all sizes through a file of limited size.

use std::fs;

use gputrace_wire::cell::kind;
use gputrace_wire::counter::Counter;

use super::*;
use crate::batch::{Definition, ProcessBegin, ProcessEnd, SessionBegin};
use crate::session::store::Store;
use crate::trace_file::{TraceReader, TraceWriter};

/// Launches that compress badly, numbered from `first` on.
fn launches(process: u32, ring: u32, first: u64, count: u64) -> Batch {
    let launch = |number: u64| {
        let mut cell = Cell::new(kind::LAUNCH, 1, 0);
        cell.put_u64(8, number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        cell.put_u64(40, number.wrapping_mul(0xbf58_476d_1ce4_e5b9));
        cell
    };
    Batch::Cells { process, ring, cells: (first..first + count).map(launch).collect() }
}

fn counters(process: u32, written: u64) -> Batch {
    let values = [u64::MAX; Counter::COUNT];
    let most = u64::MAX;
    Batch::Counters(Counters {
        process,
        values,
        written,
        ring_full: most,
        sampled_hooks: most,
        sampled_ticks: most,
        counted_launches: most,
    })
}

/// Two processes with several rings, definitions between events, and one that begins late.
fn stream() -> Vec<Batch> {
    let begin = |process| {
        Batch::ProcessBegin(ProcessBegin { process, pid: 100 + process, ..ProcessBegin::default() })
    };
    let end = |process| Batch::ProcessEnd { process, end: ProcessEnd::Exit, monotonic_ns: u64::MAX };
    let mut batches = vec![Batch::SessionBegin(SessionBegin::default()), begin(0), begin(1)];
    for round in 0..40 {
        for (process, ring) in [(0, 0), (0, 1), (1, 0), (0, 2 + round as u32)] {
            batches.push(launches(process, ring, round * 500, 500));
        }
        let text = vec![round as u8; 64];
        let records = vec![Definition { kind: 1, id: round as u32, fields: vec![round], text }];
        batches.push(Batch::Definitions { process: 1, records });
        batches.push(counters(0, round));
        batches.push(counters(1, round));
    }
    batches.extend([end(0), begin(2), launches(2, 0, 0, 3), counters(2, 3), end(2), end(1)]);
    batches.push(Batch::SessionEnd { wall_ns: u64::MAX });
    batches
}

fn entries(batches: &[Batch]) -> u64 {
    let all = batches.iter().map(|batch| match batch {
        Batch::Cells { cells, .. } => cells.iter().filter(|cell| cell.kind() != kind::GAP).count() as u64,
        _ => 0,
    });
    all.sum()
}

/// The batches in the file, and its length.
fn stored(max_bytes: Option<u64>, stream: &[Batch]) -> (Vec<Batch>, u64) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let bound = max_bytes.map(|max_bytes| Bound::new(max_bytes).unwrap());
    let mut store = Store::new(TraceWriter::create(&path).unwrap(), bound, None);
    stream.iter().for_each(|batch| _ = store.write(batch));
    assert!(store.finish().error.is_none());
    let mut reader = TraceReader::open(&path).unwrap();
    let batches = reader.by_ref().collect();
    let is_closed = matches!(stream.last(), Some(Batch::SessionEnd { .. }));
    assert_eq!(reader.damage().is_none(), is_closed, "{:?}", reader.damage());
    (batches, fs::metadata(path).unwrap().len())
}

#[test]
fn file_stays_within_its_limit_and_omissions_are_counted() {
    let stream = stream();
    let (all, whole_bytes) = stored(None, &stream);
    assert!(all == stream);
    let launches = entries(&stream);
    for max_bytes in (40_000..whole_bytes).step_by(50_021) {
        let (batches, bytes) = stored(Some(max_bytes), &stream);
        assert!(bytes <= max_bytes, "{bytes} of {max_bytes}");
        let Some([Batch::SizeLimit(limit), Batch::SessionEnd { .. }]) = batches.last_chunk::<2>() else {
            panic!("{max_bytes}: {:?}", batches.last())
        };
        let left_out = limit.left_out;
        assert_eq!(limit.max_bytes, max_bytes);
        assert_eq!(entries(&batches) + left_out.entries, launches, "{max_bytes}");
        assert_eq!((left_out.launches, left_out.host_calls), (left_out.entries, left_out.entries));
        // What a process that is not in the file has lost is said nowhere else.
        assert_eq!(left_out.lost, if left_out.processes > 0 { u64::MAX } else { 0 }, "{max_bytes}");
        // Entries of a process that is not in the file are in no gap.
        let gaps = batches.iter().filter_map(|batch| match batch {
            Batch::Cells { cells, .. } => Gap::from_cell(&cells[0]).filter(|_| cells[0].kind() == kind::GAP),
            _ => None,
        });
        let missing: u64 = gaps.map(|gap| gap.count).sum();
        assert_eq!(missing + 3 * left_out.processes, left_out.entries, "{max_bytes}");
        for process in [0, 1] {
            let end = batches.iter().rposition(
                |batch| matches!(batch, Batch::ProcessEnd { process: ended, .. } if *ended == process),
            );
            assert!(batches[..end.unwrap()].contains(&counters(process, 39)), "its last counters");
        }
    }
    // The space is used up to the size of a batch.
    let max_bytes = whole_bytes / 2;
    assert!(stored(Some(max_bytes), &stream).1 > max_bytes / 10 * 8);
}

#[test]
fn limit_that_is_not_reached_changes_nothing() {
    let stream = stream();
    let (_, bytes) = stored(None, &stream);
    assert_eq!(stored(Some(bytes + 100_000), &stream), (stream, bytes));
}

/// A killed collector writes no end; the size limit is in the file from the moment it was reached.
#[test]
fn file_of_a_killed_collector_records_its_limit() {
    let mut stream = stream();
    stream.pop();
    let (batches, _) = stored(Some(200_000), &stream);
    assert!(
        batches.iter().any(|batch| matches!(batch, Batch::SizeLimit(limit) if limit.max_bytes == 200_000))
    );
}
