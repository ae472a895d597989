//! A process that has joined: its segments, how they are drained, and how it ends.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use gputrace_wire::atomic::{AtomicU32, AtomicU64, Ordering};
use gputrace_wire::counter::Counter;
use gputrace_wire::definition::kind;
use gputrace_wire::handshake::bye;
use gputrace_wire::segment::kind as segment_kind;

use crate::batch::{Batch, Counters, Definition, Gap, GapReason, ProcessBegin, ProcessEnd};
use crate::session::area::{AreaEnd, AreaReader};
use crate::session::ready::{self, ProcessSockets};
use crate::session::segment::{Drained, Segment};
use crate::session::step_sender::StepSender;
use crate::stream::coalesce::Coalescer;

/// The most cells that are read from one ring before the next ring's turn: a quarter of a megabyte, and more
/// than the longest entry has.
const CELLS_A_TURN: u64 = 4096;
/// A ring that was filled to more than this fraction (1/64) since it was last read is read again soon.
const MUCH_SHARE: u64 = 64;
/// Of a ring with fewer cells, anything is much: at 400 000 launches a second these last 40 ms.
const RING_CELLS_SMALL: u64 = 16_384;
/// How long cells wait for a definition that is being written and that they may use. The writer needs a few
/// stores, unless a debugger or a signal has stopped it.
const HOLE_PATIENCE: Duration = Duration::from_millis(100);
/// The longest time between the announcement of an exec and the end of all other threads. The exec of a
/// process that writes later has failed.
const EXEC_TAKES_MOST: Duration = Duration::from_millis(500);
/// The most segments of one process.
const SEGMENTS_MAX: usize = 64;
/// The ring number of gaps that belong to no ring.
const NO_RING: u32 = u32::MAX;

/// The result of one turn of draining.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Turn {
    Nothing,
    /// Everything was read.
    Some,
    /// The same, and a ring may be full soon.
    Much,
    /// A ring has more entries than one turn reads.
    More,
}

fn is_much(count: u64, ring_cells: u64) -> bool {
    count > ring_cells / MUCH_SHARE || ring_cells < RING_CELLS_SMALL
}

#[derive(Debug)]
pub struct Tracked {
    /// The number within the session.
    pub number: u32,
    /// According to the kernel; 0 if it has no id in this namespace.
    pub pid: u32,
    pub generation: u32,
    /// `None` once it is closed.
    pub connection: Option<OwnedFd>,
    /// Readable once the process is dead; `None` if the kernel refused one.
    pub watch: Option<OwnedFd>,
    /// Whether the process is dead.
    pub dead: bool,
    /// Whether it sent good-bye.
    pub bye: bool,
    /// When it announced an exec. The exec succeeded if the socket closes after that.
    exec_announced: Option<Instant>,
    /// Whether another program with the same process id has replaced it.
    pub replaced: bool,
    /// Whether slots are released only once their entries are stored.
    hold: bool,
    primary: Segment,
    more: Vec<Segment>,
    area: AreaReader,
    /// New definitions of names that may change.
    named: Vec<Definition>,
    /// Whether its names were looked at for the last time.
    pub looked_last: bool,
    hole_since: Option<Instant>,
    reported_holes: u64,
}

impl Tracked {
    pub fn new(number: u32, pid: u32, generation: u32, primary: Segment, hold: bool) -> Tracked {
        Tracked {
            number,
            pid,
            generation,
            connection: None,
            watch: None,
            dead: false,
            bye: false,
            exec_announced: None,
            replaced: false,
            hold,
            primary,
            more: Vec::new(),
            area: AreaReader::default(),
            named: Vec::new(),
            looked_last: false,
            hole_since: None,
            reported_holes: 0,
        }
    }

    pub fn sockets(&self) -> ProcessSockets<'_> {
        ProcessSockets { connection: self.connection.as_ref(), watch: self.watch.as_ref() }
    }

    /// The process according to its segment's header.
    fn begin(&self) -> ProcessBegin {
        let header = self.primary.header();
        let word = |word: &AtomicU32| word.load(Ordering::Relaxed);
        let long = |word: &AtomicU64| word.load(Ordering::Relaxed);
        ProcessBegin {
            process: self.number,
            pid: if self.pid != 0 { self.pid } else { word(&header.pid) },
            parent_pid: word(&header.parent_pid),
            generation: self.generation,
            tick_kind: word(&header.tick_kind),
            ticks_per_second: long(&header.ticks_per_second),
            start_ticks: long(&header.start_ticks),
            start_monotonic_ns: long(&header.start_monotonic_ns),
            start_realtime_ns: long(&header.start_realtime_ns),
        }
    }

    /// The process id in its own namespace.
    pub fn own_pid(&self) -> u32 {
        self.primary.header().pid.load(Ordering::Relaxed)
    }

    pub fn primary(&self) -> &Segment {
        &self.primary
    }

    /// Maps another segment of rings that the process sent.
    pub fn take_segment(&mut self, fd: &OwnedFd, gather: &mut Coalescer) {
        let segment = Segment::open(fd).ok().filter(|segment| segment.kind() == segment_kind::RINGS);
        match segment {
            // A process that joins again sends all its segments again.
            Some(segment) if self.more.iter().any(|known| known.identity() == segment.identity()) => {}
            Some(segment) if self.more.len() + 1 < SEGMENTS_MAX => {
                let first_ring = self.segments().map(Segment::ring_count).sum();
                self.write_ring_gaps(&segment, first_ring, gather);
                self.more.push(segment);
            }
            _ => self.write_gap(GapReason::RefusedSegment, 1, NO_RING, gather),
        }
    }

    /// Writes gaps for rings that cannot be read, and for rings that are not read from their beginning.
    fn write_ring_gaps(&self, segment: &Segment, first_ring: usize, gather: &mut Coalescer) {
        let number = |ring: usize| u32::try_from(first_ring + ring).unwrap_or(NO_RING);
        for ring in segment.unusable_rings() {
            self.write_gap(GapReason::DamagedRing, 1, number(ring), gather);
        }
        for (ring, position) in segment.taken_over() {
            self.write_gap(GapReason::TakenOver, position, number(ring), gather);
        }
    }

    /// Sends the begin of the process, and the gaps of its first segment.
    pub fn introduce(&self, gather: &mut Coalescer, out: &StepSender) {
        out.batch(Batch::ProcessBegin(self.begin()));
        self.write_ring_gaps(&self.primary, 0, gather);
    }

    /// Whether the process can write nothing more.
    pub fn is_over(&self) -> bool {
        self.dead
            || self.replaced
            || (self.connection.is_none()
                && (self.watch.is_none() || self.bye || self.exec_announced.is_some()))
    }

    /// Notes a good-bye. An exec that is announced may fail; the process continues then.
    pub fn take_bye(&mut self, reason: u64) {
        match reason {
            bye::EXEC => self.exec_announced = Some(Instant::now()),
            _ => self.bye = true,
        }
    }

    fn segments(&self) -> impl Iterator<Item = &Segment> {
        std::iter::once(&self.primary).chain(&self.more)
    }

    /// Reads what is published: definitions to `out`, cells to `gather`. `last`: the process writes no more.
    pub fn drain(&mut self, last: bool, gather: &mut Coalescer, out: &StepSender) -> Turn {
        // Reads the rings' heads before the definitions, so that every definition that a cell before these
        // heads refers to is already reserved.
        let mut damaged = Vec::new();
        let mut heads = Vec::new();
        let mut ring = 0;
        for segment in std::iter::once(&mut self.primary).chain(&mut self.more) {
            for index in 0..segment.ring_count() {
                match segment.available(index) {
                    Drained::Cells(count) => heads.push(count),
                    Drained::Damaged => {
                        heads.push(0);
                        damaged.push(ring);
                    }
                }
                ring += 1;
            }
        }
        let mut turn = match self.drain_definitions(last, gather, out) {
            true => Turn::Some,
            false => Turn::Nothing,
        };
        if !last && self.must_wait_for_hole() {
            return turn;
        }
        let mut ring = 0;
        for segment in std::iter::once(&mut self.primary).chain(&mut self.more) {
            for index in 0..segment.ring_count() {
                let count = heads.get(ring as usize).copied().unwrap_or(0);
                if count > 0 {
                    let cells = gather.cells(self.number, ring);
                    match segment.drain(index, count, CELLS_A_TURN, self.hold, cells) {
                        Drained::Cells(taken) if taken < count => turn = Turn::More,
                        Drained::Cells(_) if is_much(count, segment.ring_cells(index)) => {
                            turn = turn.max(Turn::Much);
                        }
                        Drained::Cells(_) => turn = turn.max(Turn::Some),
                        Drained::Damaged => damaged.push(ring),
                    }
                }
                ring += 1;
            }
        }
        for ring in damaged {
            self.write_gap(GapReason::DamagedRing, 1, ring, gather);
        }
        if gather.is_full(self.number) || self.hold && self.segments().any(Segment::presses) {
            gather.flush(self.number, &mut |batch| out.batch(batch));
            self.note_sent(out);
        }
        // The service thread writes in every turn, and an exec that succeeds ends it at once.
        let goes_on = turn != Turn::Nothing && self.connection.is_some();
        if goes_on && self.exec_announced.is_some_and(|at| at.elapsed() > EXEC_TAKES_MOST) {
            self.exec_announced = None;
        }
        turn
    }

    /// Notes that all cells that were read are sent.
    pub fn note_sent(&mut self, out: &StepSender) {
        if self.hold {
            self.segments_mut().for_each(|segment| segment.note_sent(out.sent()));
        }
    }

    /// The first `stored` batches are in the file: releases the slots of their cells.
    pub fn give_back(&mut self, stored: u64) {
        if self.hold {
            self.segments_mut().for_each(|segment| segment.give_back(stored));
        }
    }

    fn segments_mut(&mut self) -> impl Iterator<Item = &mut Segment> {
        std::iter::once(&mut self.primary).chain(&mut self.more)
    }

    fn drain_definitions(&mut self, last: bool, gather: &mut Coalescer, out: &StepSender) -> bool {
        let mut any = false;
        loop {
            let mut records = Vec::new();
            let end = self.area.read(self.primary.definitions(), last, &mut records);
            if !records.is_empty() {
                any = true;
                let has_name = |record: &&Definition| matches!(record.kind, kind::PROCESS | kind::THREAD);
                self.named.extend(records.iter().filter(has_name).cloned());
                out.batch(Batch::Definitions { process: self.number, records });
            }
            match end {
                AreaEnd::More => continue,
                AreaEnd::All => self.hole_since = None,
                AreaEnd::Hole => {
                    // After progress this is another hole.
                    if any || self.hole_since.is_none() {
                        self.hole_since = Some(Instant::now());
                    }
                }
                AreaEnd::Damaged => self.write_gap(GapReason::DamagedDefinitions, 1, NO_RING, gather),
            }
            let holes = self.area.holes - self.reported_holes;
            if holes > 0 {
                self.reported_holes = self.area.holes;
                self.write_gap(GapReason::UnfinishedDefinitions, holes, NO_RING, gather);
            }
            return any;
        }
    }

    pub fn take_named(&mut self) -> Vec<Definition> {
        std::mem::take(&mut self.named)
    }

    /// Whether the process is alive now, as far as can be known.
    pub fn is_alive(&self) -> bool {
        match &self.watch {
            Some(watch) => !self.dead && !ready::is_readable(watch),
            None => self.connection.is_some(),
        }
    }

    fn must_wait_for_hole(&self) -> bool {
        self.hole_since.is_some_and(|since| since.elapsed() < HOLE_PATIENCE)
    }

    /// Writes a gap: something could not be read.
    fn write_gap(&self, reason: GapReason, count: u64, ring: u32, gather: &mut Coalescer) {
        gather.cells(self.number, ring).push(Gap { reason, count }.to_cell());
    }

    pub fn counters(&self) -> Counters {
        let mut counters =
            Counters { process: self.number, values: [0; Counter::COUNT], ..Counters::default() };
        for (to, from) in counters.values.iter_mut().zip(self.primary.counters()) {
            *to = from.load(Ordering::Relaxed);
        }
        let add = |to: &mut u64, from: &AtomicU64| *to = to.saturating_add(from.load(Ordering::Relaxed));
        for ring in self.segments().flat_map(Segment::ring_headers) {
            add(&mut counters.ring_full, &ring.dropped);
            add(&mut counters.written, &ring.written);
            add(&mut counters.sampled_hooks, &ring.sampled_hooks);
            add(&mut counters.sampled_ticks, &ring.sampled_ticks);
            add(&mut counters.counted_launches, &ring.counted_launches);
            if let Some(paused) = counters.values.get_mut(Counter::PausedLaunches as usize) {
                add(paused, &ring.paused_launches);
            }
        }
        counters
    }

    /// Reads all that is left and sends the end of the process.
    pub fn finish(&mut self, monotonic_ns: u64, gather: &mut Coalescer, out: &StepSender) {
        // This many turns read all that is published now; a process that still runs may publish more.
        let cells = self.segments().map(Segment::ring_cells_max).max().unwrap_or(0);
        for _ in 0..cells / CELLS_A_TURN + 2 {
            if self.drain(true, gather, out) == Turn::Nothing {
                break;
            }
        }
        gather.flush(self.number, &mut |batch| out.batch(batch));
        self.note_sent(out);
        out.batch(Batch::Counters(self.counters()));
        out.batch(Batch::ProcessEnd { process: self.number, end: self.end(), monotonic_ns });
    }

    pub fn end(&self) -> ProcessEnd {
        match self.bye {
            true => ProcessEnd::Exit,
            false if self.replaced => ProcessEnd::Exec,
            false if !self.is_over() => ProcessEnd::Running,
            false if self.exec_announced.is_some() => ProcessEnd::Exec,
            false => ProcessEnd::Vanished,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_that_may_be_full_soon_has_much() {
        assert!(!is_much(1024, 65_536));
        assert!(is_much(1025, 65_536));
        // The rings of a program without much address space.
        assert!(is_much(1, 4096));
    }
}
