//! The trace file as the digest thread writes it: where its file system is full for a while, it
//! goes on once there is room.
//!
//! Meanwhile events are left out and counted; what later ones need to be understood (who a process
//! is, its definitions, whose a ring is, clocks) is held in memory and written first. A gap in each
//! ring says how many entries are missing. What is held is bounded: past that the file ends where it is.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::batch::{Batch, Gap, GapReason};
use crate::error::Error;
use crate::flight_recorder::{Block, Marks};
use crate::trace_file::{BlockEncoder, TraceWriter};

/// Between a failure and the next attempt, twice as long after each up to the most: a file system
/// that has room for a few blocks at a time is not asked, and not talked of, all the time.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MOST: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What may be held of what later events need: an hour of definitions, and more.
const HELD_BYTES_MAX: usize = 32 << 20;

/// What becomes of the file, told on the digest thread as it happens.
#[derive(Debug)]
pub enum TraceNews<'a> {
    /// It cannot be written, for now.
    Stopped(&'a Error),
    /// It is written again; so many entries are not in it.
    GoesOn { left_out: u64 },
    /// It is not where it was made any more; what is written goes to the file all the same.
    Removed(&'a Path),
}

pub type HearsTraceNews = fn(&TraceNews);

pub(super) struct Store {
    writer: TraceWriter,
    hears: Option<HearsTraceNews>,
    stall: Option<Stall>,
    pause: Duration,
    /// Entries that are not in the file, by now.
    left_out: u64,
    /// When it was last looked for where it was made; `None` once it was missed.
    looked_at: Option<Instant>,
}

/// The time in which nothing can be written.
struct Stall {
    error: Error,
    tried_at: Instant,
    encoder: BlockEncoder,
    /// What is to be written, in order: all that are no cells, and what is told of cells.
    held: VecDeque<Block>,
    held_bytes: usize,
    marks: BTreeMap<u32, Marks>,
    /// Entries left out by process and ring, as far as that is not held.
    gaps: BTreeMap<(u32, u32), u64>,
    /// All of them.
    left_out: u64,
    /// More than may be held was to be.
    is_over: bool,
}

/// How the file ended.
pub(super) struct Stored {
    pub path: PathBuf,
    pub whole_bytes: u64,
    pub left_out: u64,
    /// Why it is not whole up to its end.
    pub error: Option<Error>,
}

impl Store {
    pub fn new(writer: TraceWriter, hears: Option<HearsTraceNews>) -> Store {
        Store { writer, hears, stall: None, pause: PAUSE_FIRST, left_out: 0, looked_at: Some(Instant::now()) }
    }

    /// Bytes after which nothing is written for now; `None` if all is.
    pub fn ends_at(&self) -> Option<u64> {
        self.stall.as_ref().map(|_| self.writer.whole_bytes())
    }

    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Writes a batch, or keeps of it what is needed later. True if the file's state changed.
    pub fn write(&mut self, batch: &Batch) -> bool {
        self.look();
        let resumed = self.stall.as_ref().is_some_and(|stall| stall.tried_at.elapsed() >= self.pause)
            && self.try_again();
        if let Some(stall) = &mut self.stall {
            self.left_out += stall.keep(batch);
            return false;
        }
        let Err(error) = self.writer.write(batch) else { return resumed };
        if let Some(hears) = self.hears {
            hears(&TraceNews::Stopped(&error));
        }
        if let Ok(mut stall) = Stall::new(error) {
            self.left_out += stall.keep(batch);
            self.stall = Some(stall);
        }
        true
    }

    /// Now and then: whether the file is still there. A program runs for days, and who removed its
    /// outputs by mistake wants to hear of it before they are missed.
    fn look(&mut self) {
        if self.looked_at.is_none_or(|last| last.elapsed() < LOOK_EVERY) {
            return;
        }
        let in_place = self.writer.is_in_place();
        self.looked_at = in_place.then(Instant::now);
        if !in_place && let Some(hears) = self.hears {
            hears(&TraceNews::Removed(self.writer.path()));
        }
    }

    /// True if all that was held is in the file.
    fn try_again(&mut self) -> bool {
        let Some(mut stall) = self.stall.take_if(|stall| !stall.is_over) else { return false };
        match stall.write_to(&mut self.writer) {
            Ok(()) => {
                self.pause = (self.pause * 2).min(PAUSE_MOST);
                if let Some(hears) = self.hears {
                    hears(&TraceNews::GoesOn { left_out: stall.left_out });
                }
                true
            }
            Err(error) => {
                stall.error = error;
                stall.tried_at = Instant::now();
                self.stall = Some(stall);
                false
            }
        }
    }

    /// Nothing more comes: what is held is written if it can be.
    pub fn finish(mut self) -> Stored {
        self.try_again();
        Stored {
            path: self.writer.path().to_owned(),
            whole_bytes: self.writer.whole_bytes(),
            left_out: self.left_out,
            error: self.stall.map(|stall| stall.error),
        }
    }
}

impl Stall {
    fn new(error: Error) -> io::Result<Stall> {
        Ok(Stall {
            error,
            tried_at: Instant::now(),
            encoder: BlockEncoder::new()?,
            held: VecDeque::new(),
            held_bytes: 0,
            marks: BTreeMap::new(),
            gaps: BTreeMap::new(),
            left_out: 0,
            is_over: false,
        })
    }

    /// Returns how many entries are left out.
    fn keep(&mut self, batch: &Batch) -> u64 {
        match batch {
            Batch::Cells { process, ring, cells } => {
                let marks = self.marks.entry(*process).or_default();
                let (mut entries, mut rest) = (0, cells.as_slice());
                while let Some(first) = rest.first() {
                    rest = rest.get(usize::from(first.cells()).max(1)..).unwrap_or(&[]);
                    marks.take(*ring, first);
                    entries += 1;
                }
                *self.gaps.entry((*process, *ring)).or_default() += entries;
                self.left_out += entries;
                return entries;
            }
            // Nothing may be said of a process after its end.
            Batch::ProcessEnd { process, .. } => self.settle(Some(*process)),
            _ => {}
        }
        self.hold(batch);
        0
    }

    /// Holds the marks and gaps of a process, or of all, as they are to stand in the file.
    fn settle(&mut self, only: Option<u32>) {
        let is_asked = |process: u32| only.is_none_or(|only| only == process);
        let marks: Vec<_> = self.marks.extract_if(.., |process, _| is_asked(*process)).collect();
        for (process, marks) in marks {
            marks.batches(process).iter().for_each(|batch| self.hold(batch));
        }
        let gaps: Vec<_> = self.gaps.extract_if(.., |(process, _), _| is_asked(*process)).collect();
        for ((process, ring), count) in gaps {
            let gap = Gap { reason: GapReason::NotStored, count };
            self.hold(&Batch::Cells { process, ring, cells: vec![gap.to_cell()] });
        }
    }

    fn hold(&mut self, batch: &Batch) {
        if self.is_over {
            return;
        }
        let Stall { encoder, held, held_bytes, .. } = self;
        let encoded = encoder.encode(batch, &mut |encoded| {
            let block = Block::new(&encoded);
            *held_bytes += block.bytes();
            held.push_back(block);
            Ok(())
        });
        if encoded.is_err() || self.held_bytes > HELD_BYTES_MAX {
            self.is_over = true;
            self.held = VecDeque::new();
        }
    }

    /// What was written is held no more, whether all could be or not.
    fn write_to(&mut self, writer: &mut TraceWriter) -> Result<(), Error> {
        self.settle(None);
        writer.resume()?;
        while let Some(block) = self.held.front() {
            writer.write_encoded(&block.encoded())?;
            self.held_bytes -= block.bytes();
            self.held.pop_front();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell as Told;
    use std::fs::{self, File, OpenOptions};

    use gputrace_wire::cell::{Cell, kind};
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

    use super::*;
    use crate::batch::{Definition, ProcessBegin, ProcessEnd, SessionBegin};
    use crate::trace_file::TraceReader;

    thread_local! {
        static STOPPED: Told<u32> = const { Told::new(0) };
        static REMOVED: Told<u32> = const { Told::new(0) };
        static WENT_ON: Told<u64> = const { Told::new(0) };
    }

    fn hear(news: &TraceNews) {
        match news {
            TraceNews::Stopped(_) => STOPPED.set(STOPPED.get() + 1),
            TraceNews::GoesOn { left_out } => WENT_ON.set(WENT_ON.get() + left_out),
            TraceNews::Removed(_) => REMOVED.set(REMOVED.get() + 1),
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
        let mut store = Store::new(TraceWriter::create(&path).unwrap(), Some(hear));
        first.iter().for_each(|batch| assert!(!store.write(batch)));
        store.writer.set_file(OpenOptions::new().write(true).open("/dev/full").unwrap());
        Full { store, path, _folder: folder }
    }

    impl Full {
        /// There is room again, and it is time to try.
        fn make_room(&mut self) {
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
    fn what_events_need_is_written_when_there_is_room_and_gaps_are_told() {
        let session = Batch::SessionBegin(SessionBegin::default());
        let mut full = full_after(&[session.clone(), begin(0), begin(1), cells(0, 1, 10)]);
        assert!(full.store.write(&cells(0, 1, 20)));
        assert_eq!(full.store.ends_at(), Some(full.store.writer.whole_bytes()));
        for batch in [definition(0, 7), begin(2), cells(2, 4, 5), cells(1, 3, 30), end(1), cells(0, 1, 2)] {
            assert!(!full.store.write(&batch));
        }
        assert_eq!((full.store.left_out(), STOPPED.get(), WENT_ON.get()), (57, 1, 0));
        full.make_room();
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
    fn room_that_comes_with_the_end_is_used() {
        let mut full = full_after(&[begin(0)]);
        full.store.write(&cells(0, 1, 4));
        full.store.write(&end(0));
        full.make_room();
        let (batches, stored) = full.finish();
        assert!(stored.error.is_none());
        assert!(batches == [begin(0), gap(0, 1, 4), end(0)], "{batches:#?}");
    }

    #[test]
    fn without_room_the_file_ends_whole() {
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

    /// Definitions without end must not fill the memory.
    #[test]
    fn what_is_held_is_bounded() {
        let mut full = full_after(&[begin(0)]);
        full.store.write(&cells(0, 1, 1));
        let blob = noise(1 << 20);
        for id in 0..40 {
            let records = vec![Definition { kind: 1, id, fields: vec![], text: blob.clone() }];
            full.store.write(&Batch::Definitions { process: 0, records });
        }
        let stall = full.store.stall.as_ref().unwrap();
        assert!(stall.is_over && stall.held.is_empty());
        full.make_room();
        full.store.write(&cells(0, 1, 1));
        let (batches, stored) = full.finish();
        assert!(batches == [begin(0)] && stored.error.is_some());
        assert_eq!(stored.left_out, 2);
    }

    #[test]
    fn a_file_that_was_moved_away_is_missed_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        let mut store = Store::new(TraceWriter::create(&path).unwrap(), Some(hear));
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
    fn a_batch_is_in_the_file_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        let mut writer = TraceWriter::create(&path).unwrap();
        writer.write(&begin(0)).unwrap();
        let whole_bytes = writer.whole_bytes();
        // Room for the first block and some of the second.
        let small = File::from(memfd_create("small", MemfdFlags::ALLOW_SEALING).unwrap());
        small.set_len(3 << 19).unwrap();
        fcntl_add_seals(&small, SealFlags::GROW).unwrap();
        writer.set_file(small.try_clone().unwrap());
        let text = noise(1 << 20);
        let records =
            (0..4).map(|id| Definition { kind: 1, id, fields: vec![], text: text.clone() }).collect();
        assert!(writer.write(&Batch::Definitions { process: 0, records }).is_err());
        assert_eq!((writer.whole_bytes(), small.metadata().unwrap().len()), (whole_bytes, whole_bytes));
        writer.set_file(OpenOptions::new().write(true).open(&path).unwrap());
        writer.resume().unwrap();
        writer.write(&end(0)).unwrap();
        let batches: Vec<Batch> = TraceReader::open(&path).unwrap().collect();
        assert!(batches == [begin(0), end(0)]);
    }
}
