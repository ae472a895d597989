//! The window over the stream: batches as encoded blocks, oldest first, bounded in time and bytes.
//!
//! A batch is evicted when all its events are older than the window's length. Age is counted from the newest
//! event of the session and not from the wall clock, so that the window of a program that hangs still shows
//! what it did before. Clock anchors alone evict nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;

use crate::batch::{Batch, DeviceSamples, Excerpt, LeftOut, ProcessEnd, SessionBegin};
use crate::flight_recorder::block::Block;
use crate::flight_recorder::kept::Kept;
use crate::flight_recorder::kept_samples::KeptSamples;
use crate::flight_recorder::marks::Marks;
use crate::flight_recorder::scan::scan;
use crate::flight_recorder::snapshot::{ProcessPart, Snapshot};
use crate::trace_file::encode::BlockEncoder;

/// The default limit of bytes for batches: some eight million launches with their records.
pub const BYTES_MAX: usize = 64 << 20;

/// At least so many, and at most twice as many, of the latest processes that ended without an event in the
/// window are kept. Programs that use no GPU make no events that would evict them.
pub const QUIET_KEPT: usize = 256;
/// The most bytes of those processes, definitions included. Above it the oldest are evicted until half of it
/// is left. A single process is kept whatever its size: the user may ask about it, and its definitions are
/// bounded themselves.
pub const QUIET_BYTES_MAX: usize = 16 << 20;

/// A batch of cells, or a process's end, which has no block.
#[derive(Debug)]
struct Entry {
    process: u32,
    ring: Option<u32>,
    blocks: Vec<Block>,
    /// When its last event ended. Without events, when the newest event before it ended.
    last_ns: u64,
    /// When its first event ended, if the time of one is known.
    first_ns: Option<u64>,
    has_events: bool,
    counts: LeftOut,
    marks: Marks,
    bytes: usize,
}

pub struct Window {
    length_ns: u64,
    bytes_max: usize,
    encoder: BlockEncoder,
    begin: SessionBegin,
    processes: BTreeMap<u32, Kept>,
    entries: VecDeque<Entry>,
    samples: KeptSamples,
    bytes: usize,
    definition_bytes: usize,
    newest_ns: u64,
    left_out: LeftOut,
    wall_ns: Option<u64>,
    unrecorded: Vec<String>,
    /// Processes that ended without an event in the window, in that order, each with its bytes.
    quiet: VecDeque<(u32, usize)>,
    quiet_bytes: usize,
}

impl Window {
    pub fn new(length_ns: u64, bytes_max: usize) -> io::Result<Window> {
        Ok(Window {
            length_ns,
            bytes_max,
            encoder: BlockEncoder::new()?,
            begin: SessionBegin::default(),
            processes: BTreeMap::new(),
            entries: VecDeque::new(),
            samples: KeptSamples::default(),
            bytes: 0,
            definition_bytes: 0,
            newest_ns: 0,
            left_out: LeftOut::default(),
            wall_ns: None,
            unrecorded: Vec::new(),
            quiet: VecDeque::new(),
            quiet_bytes: 0,
        })
    }

    /// The bytes held, definitions included.
    pub fn bytes(&self) -> usize {
        self.bytes + self.definition_bytes + self.samples.bytes()
    }

    /// The most bytes of events.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    pub fn left_out(&self) -> &LeftOut {
        &self.left_out
    }

    pub fn processes(&self) -> impl Iterator<Item = &Kept> {
        self.processes.values()
    }

    pub fn newest_ns(&self) -> u64 {
        self.newest_ns
    }

    /// Whether the window has an event of that process.
    pub fn has_events_of(&self, process: u32) -> bool {
        self.processes.get(&process).is_some_and(|kept| kept.batches_with_events > 0)
    }

    /// Adds a batch. `now_ns` is the time on CLOCK_MONOTONIC; event times are limited to it, since a wrong
    /// later time would evict the events of all processes.
    pub fn push(&mut self, batch: &Batch, now_ns: u64) -> io::Result<()> {
        match batch {
            Batch::SessionBegin(begin) => {
                self.newest_ns = begin.monotonic_ns;
                self.begin = begin.clone();
            }
            Batch::ProcessBegin(begin) => {
                self.processes.entry(begin.process).or_insert_with(|| Kept::new(begin.clone()));
            }
            Batch::Definitions { process, .. } => {
                let blocks = self.encode(batch)?;
                if let Some(kept) = self.processes.get_mut(process) {
                    self.definition_bytes += blocks.iter().map(Block::bytes).sum::<usize>();
                    kept.definitions.extend(blocks);
                }
            }
            Batch::Cells { process, ring, cells } => {
                let blocks = self.encode(batch)?;
                let Some(kept) = self.processes.get_mut(process) else { return Ok(()) };
                let epoch = kept.epochs.entry(*ring).or_default();
                let found = scan(*ring, cells, &mut kept.clocks, epoch);
                kept.counts.add(&found.counts);
                let ended_ns = found.ended_ns.map(|(first, last)| (first.min(now_ns), last.min(now_ns)));
                let last_ns = ended_ns.map_or(self.newest_ns, |(_, last_ns)| last_ns);
                self.add(Entry {
                    process: *process,
                    ring: Some(*ring),
                    last_ns,
                    first_ns: ended_ns.map(|(first_ns, _)| first_ns),
                    has_events: found.has_events,
                    counts: found.counts,
                    bytes: bytes_of(&blocks, &found.marks),
                    marks: found.marks,
                    blocks,
                });
            }
            Batch::Counters(counters) => {
                if let Some(kept) = self.processes.get_mut(&counters.process) {
                    kept.counters = counters.clone();
                }
            }
            Batch::ProcessEnd { process, end, monotonic_ns } => {
                self.end(*process, *end, (*monotonic_ns).min(now_ns));
            }
            Batch::SessionEnd { wall_ns } => self.wall_ns = Some(*wall_ns),
            Batch::Unrecorded(lines) => self.unrecorded.clone_from(lines),
            Batch::DeviceSamples(DeviceSamples { samples, .. }) => {
                let blocks = self.encode(batch)?;
                let last_ns = samples.last().map_or(self.newest_ns, |sample| sample.monotonic_ns.min(now_ns));
                self.samples.push(last_ns, blocks);
                self.samples.evict(self.newest_ns.saturating_sub(self.length_ns), self.newest_ns);
            }
            // Only streams that were kept in part have these.
            Batch::Excerpt(_) | Batch::SizeLimit(_) | Batch::SeriesFile(_) => {}
        }
        Ok(())
    }

    fn encode(&mut self, batch: &Batch) -> io::Result<Vec<Block>> {
        let mut blocks = Vec::with_capacity(1);
        self.encoder.encode(batch, &mut |encoded| {
            blocks.push(Block::new(&encoded));
            Ok(())
        })?;
        Ok(blocks)
    }

    /// Adds a process's end as an entry, so that an exited process is evicted after its last event.
    fn end(&mut self, process: u32, end: ProcessEnd, monotonic_ns: u64) {
        let Some(kept) = self.processes.get_mut(&process) else { return };
        kept.end = Some((end, monotonic_ns));
        self.add(Entry {
            process,
            ring: None,
            blocks: Vec::new(),
            last_ns: monotonic_ns,
            first_ns: None,
            has_events: false,
            counts: LeftOut::default(),
            marks: Marks::default(),
            bytes: bytes_of(&[], &Marks::default()),
        });
        if let Some(kept) = self.processes.get(&process).filter(|kept| kept.batches_with_events == 0) {
            let bytes = kept.bytes();
            self.quiet.push_back((process, bytes));
            self.quiet_bytes += bytes;
        }
        if self.quiet.len() >= 2 * QUIET_KEPT || self.quiet_bytes > QUIET_BYTES_MAX {
            self.drop_quiet_processes();
        }
    }

    /// Evicts half of the quiet processes at a time, by number or by bytes, since each time walks all
    /// entries.
    fn drop_quiet_processes(&mut self) {
        // Some may have been evicted already.
        let processes = &self.processes;
        self.quiet.retain(|(process, _)| processes.contains_key(process));
        self.quiet_bytes = self.quiet.iter().map(|(_, bytes)| bytes).sum();
        let half_if = |too_many: bool, most: usize| if too_many { most / 2 } else { most };
        let kept = half_if(self.quiet.len() >= 2 * QUIET_KEPT, 2 * QUIET_KEPT);
        let kept_bytes = half_if(self.quiet_bytes > QUIET_BYTES_MAX, QUIET_BYTES_MAX);
        let mut oldest = BTreeSet::new();
        while self.quiet.len() > 1
            && (self.quiet.len() > kept || self.quiet_bytes > kept_bytes)
            && let Some((process, bytes)) = self.quiet.pop_front()
        {
            self.quiet_bytes -= bytes;
            oldest.insert(process);
        }
        if oldest.is_empty() {
            return;
        }
        for entry in std::mem::take(&mut self.entries) {
            match oldest.contains(&entry.process) {
                true => self.release(&entry),
                false => self.entries.push_back(entry),
            }
        }
    }

    fn add(&mut self, entry: Entry) {
        if !entry.has_events && entry.ring.is_some() {
            self.drop_quiet_before(&entry);
        }
        if let Some(kept) = self.processes.get_mut(&entry.process) {
            kept.batches += 1;
            kept.batches_with_events += usize::from(entry.has_events);
        }
        if entry.has_events {
            self.newest_ns = self.newest_ns.max(entry.last_ns);
        }
        self.bytes += entry.bytes;
        self.entries.push_back(entry);
        self.evict();
    }

    /// An idle program still writes clock anchors, for days. Of consecutive batches of a ring without events
    /// only the last is kept.
    fn drop_quiet_before(&mut self, entry: &Entry) {
        let quiet = self.entries.iter().rev().take_while(|known| !known.has_events && known.ring.is_some());
        let same = |known: &Entry| known.process == entry.process && known.ring == entry.ring;
        let Some(back) = quiet.enumerate().find(|(_, known)| same(known)).map(|(back, _)| back) else {
            return;
        };
        if let Some(old) = self.entries.remove(self.entries.len() - 1 - back) {
            self.release(&old);
        }
    }

    /// Evicts the oldest until at most so many bytes are held, definitions included.
    pub fn shrink_to(&mut self, bytes: usize) {
        self.bytes_max = self.bytes_max.min(bytes.saturating_sub(self.definition_bytes));
        self.evict();
    }

    fn evict(&mut self) {
        let from_ns = self.newest_ns.saturating_sub(self.length_ns);
        while let Some(front) = self.entries.front() {
            let too_old = front.last_ns < from_ns;
            if !too_old && self.bytes <= self.bytes_max {
                break;
            }
            let Some(old) = self.entries.pop_front() else { break };
            if !too_old {
                self.left_out.over_capacity = self.left_out.over_capacity.saturating_add(old.counts.entries);
            }
            self.release(&old);
        }
    }

    fn release(&mut self, old: &Entry) {
        self.bytes -= old.bytes;
        self.left_out.add(&old.counts);
        let Some(kept) = self.processes.get_mut(&old.process) else { return };
        kept.before.absorb(&old.marks);
        kept.batches -= 1;
        kept.batches_with_events -= usize::from(old.has_events);
        if kept.end.is_some() && kept.batches == 0 {
            self.left_out.processes += 1;
            self.left_out.lost = self.left_out.lost.saturating_add(kept.lost());
            self.definition_bytes -= kept.definitions.iter().map(Block::bytes).sum::<usize>();
            self.processes.remove(&old.process);
        }
    }

    /// The current content as a whole trace.
    pub fn snapshot(&self, reason: &str, now_ns: u64) -> Snapshot {
        let first_ns = self.entries.iter().filter_map(|entry| entry.first_ns).min();
        let excerpt = Excerpt {
            window_ns: self.length_ns,
            from_ns: first_ns.unwrap_or(self.newest_ns),
            to_ns: self.newest_ns,
            reason: reason.to_owned(),
            left_out: self.left_out,
        };
        let wall_ns = self.wall_ns.unwrap_or_else(|| now_ns.saturating_sub(self.begin.monotonic_ns));
        let parts = self.processes.values().map(|kept| ProcessPart::new(kept, now_ns)).collect();
        let events = self.entries.iter().flat_map(|entry| &entry.blocks);
        let blocks = events.chain(self.samples.blocks(excerpt.from_ns)).cloned().collect();
        let unrecorded = self.unrecorded.clone();
        Snapshot { begin: self.begin.clone(), excerpt, parts, blocks, unrecorded, wall_ns }
    }
}

fn bytes_of(blocks: &[Block], marks: &Marks) -> usize {
    blocks.iter().map(Block::bytes).sum::<usize>() + marks.bytes() + size_of::<Entry>()
}
