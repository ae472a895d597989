//! The store on files that are full.

use std::cell::Cell as Count;
use std::fs::{self, File, OpenOptions};

use gputrace_wire::cell::{Cell, kind};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use super::*;
use crate::batch::{Definition, ProcessBegin, ProcessEnd, SessionBegin};
use crate::trace_file::TraceReader;

thread_local! {
    static STOPPED: Count<u32> = const { Count::new(0) };
    static NOT_ROTATED: Count<u32> = const { Count::new(0) };
    static REMOVED: Count<u32> = const { Count::new(0) };
    static WENT_ON: Count<u64> = const { Count::new(0) };
}

fn count(event: &TraceEvent) {
    match event {
        TraceEvent::Stopped(_) => STOPPED.set(STOPPED.get() + 1),
        TraceEvent::GoesOn { left_out } => WENT_ON.set(WENT_ON.get() + left_out),
        TraceEvent::NotRotated(_) => NOT_ROTATED.set(NOT_ROTATED.get() + 1),
        TraceEvent::Removed(_) => REMOVED.set(REMOVED.get() + 1),
    }
}

fn cells(process: u32, ring: u32, count: usize) -> Batch {
    Batch::Cells { process, ring, cells: vec![Cell::new(kind::LAUNCH, 1, 0); count] }
}

fn begin(process: u32) -> Batch {
    Batch::ProcessBegin(ProcessBegin { process, pid: 100 + process, ..ProcessBegin::default() })
}

fn end(process: u32) -> Batch {
    Batch::ProcessEnd { process, end: ProcessEnd::Exit, monotonic_ns: 5 }
}

fn definition(process: u32, id: u32) -> Batch {
    let text = b"name".to_vec();
    Batch::Definitions { process, records: vec![Definition { kind: 1, id, fields: vec![], text }] }
}

/// A store whose file is at `path` and which writes into a full one.
struct Full {
    store: Store,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

fn full_after(first: &[Batch]) -> Full {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let mut store = Store::new(TraceWriter::create(&path).unwrap(), None, Some(count));
    first.iter().for_each(|batch| assert!(!store.write(batch)));
    store.writer.set_file(OpenOptions::new().write(true).open("/dev/full").unwrap());
    Full { store, path, _folder: folder }
}

impl Full {
    /// Gives the store its file back and makes the next attempt due.
    fn free_space(&mut self) {
        self.store.writer.set_file(OpenOptions::new().write(true).open(&self.path).unwrap());
        self.store.pause = Duration::ZERO;
    }

    fn finish(self) -> (Vec<Batch>, Stored) {
        let stored = self.store.finish();
        assert_eq!(fs::metadata(&self.path).unwrap().len(), stored.whole_bytes);
        let mut reader = TraceReader::open(&self.path).unwrap();
        (reader.by_ref().collect(), stored)
    }
}

fn gap(process: u32, ring: u32, count: u64) -> Batch {
    let gap = Gap { reason: GapReason::NotStored, count };
    Batch::Cells { process, ring, cells: vec![gap.to_cell()] }
}

#[test]
fn held_batches_and_gaps_are_written_once_there_is_space() {
    let session = Batch::SessionBegin(SessionBegin::default());
    let mut full = full_after(&[session.clone(), begin(0), begin(1), cells(0, 1, 10)]);
    assert!(full.store.write(&cells(0, 1, 20)));
    assert_eq!(full.store.ends_at(), Some(full.store.writer.whole_bytes()));
    for batch in [definition(0, 7), begin(2), cells(2, 4, 5), cells(1, 3, 30), end(1), cells(0, 1, 2)] {
        assert!(!full.store.write(&batch));
    }
    assert_eq!((full.store.left_out(), STOPPED.get(), WENT_ON.get()), (57, 1, 0));
    full.free_space();
    assert!(full.store.write(&cells(0, 1, 3)));
    assert_eq!((full.store.ends_at(), WENT_ON.get()), (None, 57));
    full.store.write(&end(0));
    let (batches, stored) = full.finish();
    assert!(stored.error.is_none());
    assert_eq!(stored.left_out, 57);
    let expected = [
        session,
        begin(0),
        begin(1),
        cells(0, 1, 10),
        definition(0, 7),
        begin(2),
        gap(1, 3, 30),
        end(1),
        gap(0, 1, 22),
        gap(2, 4, 5),
        cells(0, 1, 3),
        end(0),
    ];
    assert!(batches == expected, "{batches:#?}");
}

#[test]
fn space_that_is_freed_at_the_end_is_used() {
    let mut full = full_after(&[begin(0)]);
    full.store.write(&cells(0, 1, 4));
    full.store.write(&end(0));
    full.free_space();
    let (batches, stored) = full.finish();
    assert!(stored.error.is_none());
    assert!(batches == [begin(0), gap(0, 1, 4), end(0)], "{batches:#?}");
}

#[test]
fn file_on_a_full_disk_ends_whole() {
    let mut full = full_after(&[begin(0), cells(0, 1, 4)]);
    full.store.pause = Duration::ZERO;
    full.store.write(&cells(0, 1, 5));
    full.store.write(&cells(0, 1, 6));
    let (batches, stored) = full.finish();
    assert_eq!((stored.left_out, STOPPED.get()), (11, 1));
    assert!(matches!(&stored.error, Some(Error::TraceWrite { source, .. })
        if source.raw_os_error() == Some(libc::ENOSPC)));
    assert!(batches == [begin(0), cells(0, 1, 4)]);
}

/// Endless definitions must not fill the memory.
#[test]
fn held_batches_are_bounded() {
    let mut full = full_after(&[begin(0)]);
    full.store.write(&cells(0, 1, 1));
    let blob = noise(1 << 20);
    for id in 0..40 {
        let records = vec![Definition { kind: 1, id, fields: vec![], text: blob.clone() }];
        full.store.write(&Batch::Definitions { process: 0, records });
    }
    let stall = full.store.stall.as_ref().unwrap();
    assert!(stall.is_over && stall.held.is_empty());
    full.free_space();
    full.store.write(&cells(0, 1, 1));
    let (batches, stored) = full.finish();
    assert!(batches == [begin(0)] && stored.error.is_some());
    assert_eq!(stored.left_out, 2);
}

#[test]
fn moved_file_is_reported_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let mut store = Store::new(TraceWriter::create(&path).unwrap(), None, Some(count));
    let look = |store: &mut Store| {
        store.looked_at = store.looked_at.and_then(|last| last.checked_sub(LOOK_EVERY));
        store.write(&cells(0, 1, 1));
        REMOVED.get()
    };
    assert_eq!(look(&mut store), 0);
    fs::rename(&path, folder.path().join("elsewhere")).unwrap();
    assert_eq!(look(&mut store), 1);
    fs::write(&path, "another").unwrap();
    assert_eq!(look(&mut store), 1);
}

/// Bytes that do not compress.
fn noise(bytes: usize) -> Vec<u8> {
    let mut seed = 1u64;
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    (0..bytes / 8).flat_map(|_| random().to_le_bytes()).collect()
}

/// A file that is full in the middle of a batch of many blocks has none of it.
#[test]
fn batch_is_in_the_file_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let mut writer = TraceWriter::create(&path).unwrap();
    writer.write(&begin(0)).unwrap();
    let whole_bytes = writer.whole_bytes();
    // Space for the first block and a part of the second.
    let small = File::from(memfd_create("small", MemfdFlags::ALLOW_SEALING).unwrap());
    small.set_len(3 << 19).unwrap();
    fcntl_add_seals(&small, SealFlags::GROW).unwrap();
    writer.set_file(small.try_clone().unwrap());
    let text = noise(1 << 20);
    let records = (0..4).map(|id| Definition { kind: 1, id, fields: vec![], text: text.clone() }).collect();
    assert!(writer.write(&Batch::Definitions { process: 0, records }).is_err());
    assert_eq!((writer.whole_bytes(), small.metadata().unwrap().len()), (whole_bytes, whole_bytes));
    writer.set_file(OpenOptions::new().write(true).open(&path).unwrap());
    writer.resume().unwrap();
    writer.write(&end(0)).unwrap();
    let batches: Vec<Batch> = TraceReader::open(&path).unwrap().collect();
    assert!(batches == [begin(0), end(0)]);
}

#[test]
fn stops_of_long_ago_are_forgotten() {
    let mut full = full_after(&[begin(0)]);
    let stop_and_go = |full: &mut Full| {
        full.store.writer.set_file(OpenOptions::new().write(true).open("/dev/full").unwrap());
        full.store.write(&cells(0, 1, 1));
        let pause = full.store.pause;
        full.free_space();
        full.store.pause = pause;
        let stall = full.store.stall.as_mut().unwrap();
        stall.tried_at = stall.tried_at.checked_sub(pause).unwrap();
        full.store.write(&cells(0, 1, 1));
        assert_eq!(full.store.ends_at(), None);
        pause
    };
    let pauses = [(); 8].map(|()| stop_and_go(&mut full).as_secs());
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
    full.store.went_on_at = full.store.went_on_at.and_then(|at| at.checked_sub(FORGOTTEN_AFTER));
    assert_eq!(stop_and_go(&mut full), PAUSE_FIRST);
}
