//! The trace file as the processing thread writes it. If its file system is full for a while, writing
//! continues once there is space.
//!
//! Meanwhile events are left out and counted; what later events need (processes, definitions, the threads of
//! rings, clocks) is held in memory and written first. A gap in each ring says how many entries are missing.
//! What is held is bounded: beyond the limit the file ends where it is.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::batch::{Batch, Gap, GapReason, SizeLimit};
use crate::error::Error;
use crate::flight_recorder::{Block, Marks};
use crate::session::bound::{Admitted, Bound};
use crate::trace_file::{BlockEncoder, TraceWriter};

/// The pause between a failure and the next attempt. It doubles after each stop up to the maximum, so that a
/// file system that frees a few blocks at a time causes few attempts and few messages. Without a stop for
/// [`FORGOTTEN_AFTER`] it is reset.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MOST: Duration = Duration::from_secs(60);
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The most bytes that are held: an hour of definitions, and more.
const HELD_BYTES_MAX: usize = 32 << 20;

/// A change of the trace file's state, reported on the processing thread.
#[derive(Debug)]
pub enum TraceEvent<'a> {
    /// The file cannot be written, for now.
    Stopped(&'a Error),
    /// The file is written again; `left_out` entries are missing.
    GoesOn { left_out: u64 },
    /// The file could not be closed at a cut; writing continues in it.
    NotRotated(&'a Error),
    /// The file has been moved or removed; writing continues in it.
    Removed(&'a Path),
}

pub type OnTraceEvent = fn(&TraceEvent);

pub(super) struct Store {
    writer: TraceWriter,
    /// `None` if the file's size is not limited.
    bound: Option<Bound>,
    on_event: Option<OnTraceEvent>,
    stall: Option<Stall>,
    pause: Duration,
    /// When writing continued after the last stop.
    went_on_at: Option<Instant>,
    /// Entries that are missing in the file so far.
    left_out: u64,
    /// When the file's path was last checked; `None` once the file was gone.
    looked_at: Option<Instant>,
}

/// The time in which nothing can be written.
struct Stall {
    error: Error,
    tried_at: Instant,
    encoder: BlockEncoder,
    /// What is written later, in order: all batches but samples and cells, and marks and gaps in place of
    /// cells.
    held: VecDeque<Block>,
    held_bytes: usize,
    marks: BTreeMap<u32, Marks>,
    /// Entries left out by process and ring, except those whose gap is held already.
    gaps: BTreeMap<(u32, u32), u64>,
    /// All entries left out.
    left_out: u64,
    /// Whether the limit of what is held was exceeded.
    is_over: bool,
}

/// How the file ended.
pub(super) struct Stored {
    pub path: PathBuf,
    pub whole_bytes: u64,
    pub left_out: u64,
    /// The limit of its size and what it leaves out, if the limit was reached.
    pub size_limit: Option<SizeLimit>,
    /// Why the file is incomplete.
    pub error: Option<Error>,
}

impl Store {
    pub fn new(writer: TraceWriter, bound: Option<Bound>, on_event: Option<OnTraceEvent>) -> Store {
        Store {
            writer,
            bound,
            on_event,
            stall: None,
            pause: PAUSE_FIRST,
            went_on_at: None,
            left_out: 0,
            looked_at: Some(Instant::now()),
        }
    }

    /// The file's length while it cannot be written; `None` otherwise.
    pub fn ends_at(&self) -> Option<u64> {
        self.stall.as_ref().map(|_| self.writer.whole_bytes())
    }

    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    pub fn path(&self) -> &Path {
        self.writer.path()
    }

    pub fn whole_bytes(&self) -> u64 {
        self.writer.whole_bytes()
    }

    pub fn note_not_rotated(&self, error: &Error) {
        if let Some(on_event) = self.on_event {
            on_event(&TraceEvent::NotRotated(error));
        }
    }

    /// Ends the file, renames it to `closed`, and continues in `next`. Changes nothing if that fails. Returns
    /// whether the file was still at its path.
    pub fn rotate(&mut self, ending: &[Batch], closed: &Path, mut next: TraceWriter) -> Result<bool, Error> {
        let (position, path) = (self.writer.position(), self.writer.path().to_owned());
        let is_there = self.writer.still_has_its_path();
        let writer = &mut self.writer;
        let ended = ending.iter().try_for_each(|batch| writer.write(batch));
        let rotated = ended.and_then(|()| if is_there { writer.rename(closed) } else { Ok(()) });
        let rotated = rotated.and_then(|()| {
            next.rename(&path).inspect_err(|_| {
                if is_there {
                    let _ = writer.rename(&path);
                }
            })
        });
        if let Err(error) = rotated {
            writer.return_to(position)?;
            return Err(error);
        }
        self.writer = next;
        self.looked_at = Some(Instant::now());
        Ok(is_there)
    }

    /// The limit of the file's size and what it leaves out so far, once it is reached.
    pub fn size_limit(&self) -> Option<SizeLimit> {
        self.bound.as_ref().and_then(Bound::reached)
    }

    /// Writes a batch, or the part that the file's limit admits, or holds what is needed later. True if the
    /// file's state changed.
    pub fn write(&mut self, batch: &Batch) -> bool {
        self.look();
        let Some(bound) = &mut self.bound else { return self.write_now(batch) };
        let held = self.stall.as_ref().map_or(0, |stall| stall.held_bytes as u64);
        // If the compressor fails, writing fails too and reports it.
        match bound.admit(batch, self.writer.whole_bytes() + held).unwrap_or(Admitted::Whole) {
            Admitted::Whole => self.write_now(batch),
            Admitted::Instead(batches) => {
                batches.iter().fold(false, |changed, batch| self.write_now(batch) | changed)
            }
        }
    }

    fn write_now(&mut self, batch: &Batch) -> bool {
        let resumed = self.stall.as_ref().is_some_and(|stall| stall.tried_at.elapsed() >= self.pause)
            && self.try_again();
        if let Some(stall) = &mut self.stall {
            self.left_out += stall.keep(batch);
            return false;
        }
        let Err(error) = self.writer.write(batch) else { return resumed };
        if let Some(on_event) = self.on_event {
            on_event(&TraceEvent::Stopped(&error));
        }
        if self.went_on_at.is_some_and(|at| at.elapsed() >= FORGOTTEN_AFTER) {
            self.pause = PAUSE_FIRST;
        }
        if let Ok(mut stall) = Stall::new(error) {
            self.left_out += stall.keep(batch);
            self.stall = Some(stall);
        }
        true
    }

    /// Checks once a second whether the file is still at its path. A program may run for days, and a user who
    /// removed the file by mistake should be warned early.
    fn look(&mut self) {
        if self.looked_at.is_none_or(|last| last.elapsed() < LOOK_EVERY) {
            return;
        }
        let has_its_path = self.writer.still_has_its_path();
        self.looked_at = has_its_path.then(Instant::now);
        if !has_its_path && let Some(on_event) = self.on_event {
            on_event(&TraceEvent::Removed(self.writer.path()));
        }
    }

    /// Writes what is held. True if all of it is in the file.
    fn try_again(&mut self) -> bool {
        let Some(mut stall) = self.stall.take_if(|stall| !stall.is_over) else { return false };
        match stall.write_to(&mut self.writer) {
            Ok(()) => {
                self.pause = (self.pause * 2).min(PAUSE_MOST);
                self.went_on_at = Some(Instant::now());
                if let Some(on_event) = self.on_event {
                    on_event(&TraceEvent::GoesOn { left_out: stall.left_out });
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

    /// Writes what is held, if possible, and ends.
    pub fn finish(mut self) -> Stored {
        self.try_again();
        Stored {
            path: self.writer.path().to_owned(),
            whole_bytes: self.writer.whole_bytes(),
            left_out: self.left_out,
            size_limit: self.size_limit(),
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
            // Later events need no samples.
            Batch::DeviceSamples(samples) => {
                let count = samples.samples.len() as u64;
                self.left_out += count;
                return count;
            }
            // Nothing may follow the end of a process.
            Batch::ProcessEnd { process, .. } => self.hold_marks_and_gaps(Some(*process)),
            _ => {}
        }
        self.hold(batch);
        0
    }

    /// Moves the marks and gaps of a process, or of all, to what is held.
    fn hold_marks_and_gaps(&mut self, only: Option<u32>) {
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

    /// Writes what is held. Blocks that were written are no longer held, even if a later one fails.
    fn write_to(&mut self, writer: &mut TraceWriter) -> Result<(), Error> {
        self.hold_marks_and_gaps(None);
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
#[path = "store_tests.rs"]
mod tests;
