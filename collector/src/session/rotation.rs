//! Rotation: the stream of a daemon's session, cut into a series of trace files.
//!
//! At a cut the open file is ended and gets a numbered name, and the stream continues in a new file. The new
//! file begins with what later events need: the running processes, their definitions, clocks, and the threads
//! of rings. It is written under another name first, so that a cut that fails changes nothing, and a
//! collector that is killed during a cut leaves whole files. Another thread makes the outputs of closed
//! files.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use gputrace_wire::atomic::{AtomicU64, Ordering};
use gputrace_wire::cell::{Cell, kind};

use crate::batch::{Batch, Gap, GapReason, ProcessEnd, SeriesFile, SeriesMark, SessionBegin};
use crate::error::Error;
use crate::flight_recorder::{Block, Kept};
use crate::session::store::Store;
use crate::session::threads::spawn;
use crate::trace_file::{BlockEncoder, TraceWriter};

/// The time after a failed cut (on a full disk, for example) before the next attempt.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// A trace file that was closed at a cut.
#[derive(Debug)]
pub struct ClosedFile {
    pub path: PathBuf,
    pub number: u32,
}

/// Makes the outputs of a closed file, on a thread of its own. Returns how many old files it deleted.
pub type HandleClosedFile = Box<dyn FnMut(&ClosedFile) -> u64 + Send>;

/// When the trace is cut.
pub struct RotationConfig {
    /// Cut once the file has about this many bytes.
    pub size: Option<u64>,
    /// Cut once this time has passed since the last cut.
    pub every: Option<Duration>,
    pub handle_closed: HandleClosedFile,
}

impl std::fmt::Debug for RotationConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (size, every) = (&self.size, &self.every);
        f.debug_struct("RotationConfig").field("size", size).field("every", every).finish_non_exhaustive()
    }
}

/// The name of a file in a series, by its number: `trace.000001.gputrace` of `trace.gputrace`.
pub fn numbered(path: &Path, number: u32) -> PathBuf {
    let ending = path.extension().unwrap_or_default().to_string_lossy();
    path.with_extension(format!("{number:06}.{ending}"))
}

pub(super) struct Rotation {
    size: Option<u64>,
    every: Option<Duration>,
    session: SessionBegin,
    /// Processes that have not ended.
    processes: BTreeMap<u32, RepeatedProcess>,
    encoder: BlockEncoder,
    /// The number of the open file.
    number: u32,
    opened_at: Instant,
    /// The bytes in the open file before its first new event.
    repeated_bytes: u64,
    /// Whether the open file has anything that the next file will not repeat.
    has_changes: bool,
    /// Whether the open file has samples of devices. They alone make a cut by size, and none by time: an idle
    /// program's samples must not replace the files of its work where few are kept.
    has_samples: bool,
    retry_at: Option<Instant>,
    closed: Sender<ClosedFile>,
    handler: JoinHandle<()>,
    deleted: Arc<AtomicU64>,
}

/// A running process, as the next file repeats it.
struct RepeatedProcess {
    kept: Kept,
    /// Cells written to each ring since its creation.
    positions: BTreeMap<u32, u64>,
}

impl Rotation {
    pub fn start(config: RotationConfig) -> Result<Rotation, Error> {
        let RotationConfig { size, every, mut handle_closed } = config;
        let (closed, files) = crossbeam_channel::unbounded::<ClosedFile>();
        let deleted = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&deleted);
        let handler = spawn("rotation", move || {
            for file in files {
                count.fetch_add(handle_closed(&file), Ordering::Relaxed);
            }
        })?;
        let encoder = BlockEncoder::new()
            .map_err(|source| Error::System { operation: "making a compressor", source })?;
        Ok(Rotation {
            size,
            every,
            session: SessionBegin::default(),
            processes: BTreeMap::new(),
            encoder,
            number: 1,
            opened_at: Instant::now(),
            repeated_bytes: 0,
            has_changes: false,
            has_samples: false,
            retry_at: None,
            closed,
            handler,
            deleted,
        })
    }

    /// How many files were closed, and how many of those were deleted.
    pub fn files(&self) -> (u64, u64) {
        (u64::from(self.number) - 1, self.deleted.load(Ordering::Relaxed))
    }

    /// Notes a batch that was stored. Fails only if the compressor does.
    pub fn note(&mut self, batch: &Batch) -> io::Result<()> {
        match batch {
            Batch::SessionBegin(begin) => self.session = begin.clone(),
            Batch::ProcessBegin(begin) => {
                let running = RepeatedProcess { kept: Kept::new(begin.clone()), positions: BTreeMap::new() };
                self.processes.insert(begin.process, running);
                self.has_changes = true;
            }
            Batch::Definitions { process, .. } => {
                let Some(running) = self.processes.get_mut(process) else { return Ok(()) };
                return self.encoder.encode(batch, &mut |encoded| {
                    running.kept.definitions.push(Block::new(&encoded));
                    Ok(())
                });
            }
            Batch::Cells { process, ring, cells } => {
                if let Some(running) = self.processes.get_mut(process) {
                    self.has_changes |= running.note(*ring, cells);
                }
            }
            Batch::Counters(counters) => {
                if let Some(running) = self.processes.get_mut(&counters.process) {
                    running.kept.counters = counters.clone();
                }
            }
            Batch::ProcessEnd { process, .. } => {
                self.processes.remove(process);
                self.has_changes = true;
            }
            Batch::DeviceSamples(_) => self.has_samples = true,
            // The stream ends: no more cuts.
            Batch::Unrecorded(_) | Batch::SessionEnd { .. } => (self.size, self.every) = (None, None),
            Batch::Excerpt(_) | Batch::SizeLimit(_) | Batch::SeriesFile(_) => {}
        }
        Ok(())
    }

    /// Cuts the trace if a cut is due. True if it was cut.
    pub fn cut_if_due(&mut self, store: &mut Store, now_ns: u64) -> bool {
        let is_due = self.is_due(store.whole_bytes());
        if !is_due || store.ends_at().is_some() || self.retry_at.is_some_and(|at| Instant::now() < at) {
            return false;
        }
        let cut = self.cut(store, now_ns);
        if let Err(error) = &cut {
            if self.retry_at.is_none() {
                store.note_not_rotated(error);
            }
            self.retry_at = Some(Instant::now() + RETRY_AFTER);
        }
        cut.is_ok()
    }

    fn is_due(&mut self, bytes: u64) -> bool {
        let is_late = self.every.is_some_and(|every| self.opened_at.elapsed() >= every);
        // At least half of each file is new, however much is repeated.
        let is_long = self.size.is_some_and(|size| bytes >= size.max(2 * self.repeated_bytes));
        if !self.has_changes {
            // An interval without events gets no file.
            if is_late {
                self.opened_at = Instant::now();
            }
            return is_long && self.has_samples;
        }
        is_late || is_long
    }

    fn cut(&mut self, store: &mut Store, now_ns: u64) -> Result<(), Error> {
        let number = self.number;
        let mut aside = store.path().as_os_str().to_owned();
        aside.push(".next");
        let aside = PathBuf::from(aside);
        let mut next = TraceWriter::create(&aside)?;
        let path = numbered(store.path(), number);
        let cut = self.repeat(&mut next, now_ns).and_then(|()| {
            let repeated_bytes = next.whole_bytes();
            let is_there = store.rotate(&self.ending(now_ns), &path, next)?;
            Ok((repeated_bytes, is_there))
        });
        let (repeated_bytes, is_there) = cut.inspect_err(|_| _ = std::fs::remove_file(&aside))?;
        self.number += 1;
        self.opened_at = Instant::now();
        (self.repeated_bytes, self.has_changes, self.retry_at) = (repeated_bytes, false, None);
        self.has_samples = false;
        // Gaps are counted by file.
        self.processes.values_mut().for_each(|running| running.kept.before.forget_gaps());
        if is_there {
            let _ = self.closed.send(ClosedFile { path, number });
        }
        Ok(())
    }

    /// Writes the beginning of the next file.
    fn repeat(&self, next: &mut TraceWriter, cut_ns: u64) -> Result<(), Error> {
        let mark = |mark| Batch::SeriesFile(SeriesFile { number: self.number + 1, mark, cut_ns });
        next.write(&Batch::SessionBegin(self.session.clone()))?;
        next.write(&mark(SeriesMark::Begins))?;
        for RepeatedProcess { kept, positions } in self.processes.values() {
            let process = kept.begin.process;
            next.write(&Batch::ProcessBegin(kept.begin.clone()))?;
            kept.definitions.iter().try_for_each(|block| next.write_encoded(&block.encoded()))?;
            for (ring, position) in positions {
                let gap = Gap { reason: GapReason::TakenOver, count: *position };
                next.write(&Batch::Cells { process, ring: *ring, cells: vec![gap.to_cell()] })?;
            }
            kept.before.batches(process).iter().try_for_each(|batch| next.write(batch))?;
            next.write(&Batch::Counters(kept.counters.clone()))?;
        }
        next.write(&mark(SeriesMark::Repeated))
    }

    /// The batches that end the open file.
    fn ending(&self, now_ns: u64) -> Vec<Batch> {
        let goes_on = SeriesFile { number: self.number, mark: SeriesMark::GoesOn, cut_ns: now_ns };
        let end = |process| Batch::ProcessEnd { process, end: ProcessEnd::Running, monotonic_ns: now_ns };
        let mut ending = vec![Batch::SeriesFile(goes_on)];
        ending.extend(self.processes.keys().copied().map(end));
        ending.push(Batch::SessionEnd { wall_ns: now_ns.saturating_sub(self.session.monotonic_ns) });
        ending
    }

    /// Waits for the outputs of closed files. Returns [`Rotation::files`].
    pub fn finish(self) -> (u64, u64) {
        let Rotation { closed, handler, deleted, number, .. } = self;
        drop(closed);
        // If the thread panicked, its files have no outputs.
        let _ = handler.join();
        (u64::from(number) - 1, deleted.load(Ordering::Relaxed))
    }
}

impl RepeatedProcess {
    /// Notes whole entries. True if any of them is an event.
    fn note(&mut self, ring: u32, cells: &[Cell]) -> bool {
        let (mut rest, mut has_events) = (cells, false);
        let position = self.positions.entry(ring).or_default();
        while let Some(first) = rest.first() {
            let length = usize::from(first.cells()).max(1);
            rest = rest.get(length..).unwrap_or(&[]);
            self.kept.before.take(ring, first);
            match (first.kind(), Gap::from_cell(first)) {
                (kind::GAP, Some(Gap { reason: GapReason::TakenOver, count })) => *position = count,
                (kind::GAP, _) => {}
                (kind, _) => {
                    *position += length as u64;
                    has_events |= kind >= kind::LAUNCH;
                }
            }
        }
        has_events
    }
}

#[cfg(test)]
#[path = "rotation_tests.rs"]
mod tests;
