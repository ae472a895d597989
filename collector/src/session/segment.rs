//! A process's segment in this address space: mapped once, checked once, read through atomics.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

use gputrace_wire::atomic::{AtomicU64, Ordering};
use gputrace_wire::cell::{CELL_WORDS, Cell};
use gputrace_wire::control::Control;
use gputrace_wire::counter::Counter;
use gputrace_wire::ring::{Consumer, Ring};
use gputrace_wire::segment::{
    BadSegment, CONTROL_OFFSET, COUNTERS_OFFSET, Layout, RING_TABLE_OFFSET, RingHeader, SEGMENT_BYTES_MAX,
    SegmentHeader,
};
use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags};

/// The type that `statfs` reports for ordinary memory files.
const TMPFS: libc::__fsword_t = 0x0102_1994;

/// Why a segment cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    #[error("the descriptor is no memory file that is sealed against resizing")]
    NotSealed,
    #[error("the memory file has {0} bytes, which no segment has")]
    Size(u64),
    #[error("the memory file is not a segment")]
    NotASegment,
    #[error("the segment's sizes and offsets contradict each other")]
    Layout,
    #[error(
        "it speaks wire version {}.{} and this gputrace {}.{}: preload the library of the same gputrace (gputrace lib)",
        .0 >> 16, .0 & 0xffff, gputrace_wire::VERSION_MAJOR, gputrace_wire::VERSION_MINOR
    )]
    Version(u32),
    #[error("the segment cannot be mapped: {0}")]
    Map(rustix::io::Errno),
}

/// The mapping, unmapped when dropped.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is only reached through references to atomics, which any thread may use;
// whoever owns the value decides when it is unmapped.
unsafe impl Send for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `base` and `bytes` are of a mapping that `Segment::open` made and nobody else
        // unmaps; `Segment` hands out no reference that outlives it.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// A ring and its consumer.
#[derive(Debug)]
struct RingReader {
    header: &'static RingHeader,
    /// The capacity.
    cells: u64,
    /// `None` if the ring's offset or capacity is invalid, and after damage.
    consumer: Option<Consumer<'static>>,
    /// Pairs of a number of batches and a position: once that many batches are stored, all cells before the
    /// position are.
    sent: VecDeque<(u64, u64)>,
}

/// At most this fraction of a ring (1/4) is held until it is stored. Beyond it, free slots for the program
/// matter more than the entries that a killed collector would lose.
const HELD_SHARE: u64 = 4;
/// At this fraction of a ring (1/8), gathered cells are sent.
const GATHERED_SHARE: u64 = 8;

impl RingReader {
    /// How many cells were read and not sent.
    fn gathered(&self) -> u64 {
        let Some(consumer) = &self.consumer else { return 0 };
        let sent = self.sent.back().map(|(_, position)| *position);
        sent.map_or_else(|| consumer.held(), |sent| consumer.position().wrapping_sub(sent))
    }
}

/// The result of reading a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drained {
    /// This many cells, all of them whole entries.
    Cells(u64),
    /// The ring's contents are invalid. It is not read any further.
    Damaged,
}

/// A checked segment. Its `'static` references are to the mapping that it owns; they stay in private fields,
/// so that none outlives the value.
#[derive(Debug)]
pub struct Segment {
    rings: Vec<RingReader>,
    header: &'static SegmentHeader,
    control: &'static Control,
    counters: &'static [AtomicU64],
    definitions: &'static [AtomicU64],
    layout: Layout,
    /// The memory file's device and inode, by which a process that joins again is recognized.
    identity: (u64, u64),
    _mapping: Mapping,
}

impl Segment {
    /// Maps a segment that a process handed over.
    pub fn open(fd: &OwnedFd) -> Result<Segment, Refusal> {
        // Only memory files have seals. Without SHRINK the file could be truncated while it is mapped, and
        // the next access would raise SIGBUS.
        let seals = rustix::fs::fcntl_get_seals(fd).map_err(|_| Refusal::NotSealed)?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL) {
            return Err(Refusal::NotSealed);
        }
        // Files of huge pages have seals as well, but an access to a hole in them raises SIGBUS if no huge
        // page is free.
        if rustix::fs::fstatfs(fd).map_err(Refusal::Map)?.f_type != TMPFS {
            return Err(Refusal::NotSealed);
        }
        let about = rustix::fs::fstat(fd).map_err(Refusal::Map)?;
        let size = u64::try_from(about.st_size).unwrap_or(0);
        let bytes = usize::try_from(size).unwrap_or(0);
        if bytes < RING_TABLE_OFFSET || size > SEGMENT_BYTES_MAX {
            return Err(Refusal::Size(size));
        }
        // SAFETY: a new mapping at an address of the kernel's choice; it aliases no Rust object.
        let mapped = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd.as_fd(),
                0,
            )
        };
        let base = NonNull::new(mapped.map_err(Refusal::Map)?.cast::<u8>()).ok_or(Refusal::Layout)?;
        let mapping = Mapping { base, bytes };

        // SAFETY: at least RING_TABLE_OFFSET bytes are mapped, they hold the header, and the
        // seal keeps them there. The mapping is page-aligned. The type is atomics throughout,
        // for which any bytes are valid and which others may change at any time.
        let header: &'static SegmentHeader = unsafe { mapping.base.cast::<SegmentHeader>().as_ref() };
        let layout = Layout::read(header, bytes).map_err(|bad| match bad {
            BadSegment::NotASegment => Refusal::NotASegment,
            BadSegment::Version(version) => Refusal::Version(version),
            BadSegment::Layout => Refusal::Layout,
        })?;
        // SAFETY: as for the header; `Layout::read` checked that all of it lies inside.
        let (control, counters, definitions, headers) = unsafe {
            (
                mapping.base.add(CONTROL_OFFSET).cast::<Control>().as_ref(),
                mapping.words(COUNTERS_OFFSET, Counter::COUNT),
                mapping.words(layout.definitions_offset, layout.definitions_bytes / 8),
                std::slice::from_raw_parts(
                    mapping.base.add(layout.ring_table_offset).cast::<RingHeader>().as_ptr().cast_const(),
                    layout.ring_count,
                ),
            )
        };
        let rings = headers
            .iter()
            .map(|header| {
                let ring = Layout::ring_extent(header, bytes).and_then(|(offset, cells)| {
                    // SAFETY: `ring_extent` checked that the cells lie inside, aligned to 64.
                    let words = unsafe { mapping.words(offset, cells * CELL_WORDS) };
                    Ring::new(&header.head, &header.tail, words).ok()
                });
                let cells = ring.map_or(0, |ring| ring.capacity());
                RingReader { header, cells, consumer: ring.map(Consumer::new), sent: VecDeque::new() }
            })
            .collect();
        let identity = (about.st_dev, about.st_ino);
        Ok(Segment { rings, header, control, counters, definitions, layout, identity, _mapping: mapping })
    }

    pub fn kind(&self) -> u32 {
        self.layout.kind
    }

    pub fn identity(&self) -> (u64, u64) {
        self.identity
    }

    pub fn header(&self) -> &SegmentHeader {
        self.header
    }

    pub fn control(&self) -> &Control {
        self.control
    }

    /// Process-wide counters, by [`Counter`] index.
    pub fn counters(&self) -> &[AtomicU64] {
        self.counters
    }

    pub fn ring_headers(&self) -> impl Iterator<Item = &RingHeader> {
        self.rings.iter().map(|ring| ring.header)
    }

    /// The definitions area up to what is reserved so far. Reading further would make the kernel allocate
    /// pages that nobody wrote.
    pub fn definitions(&self) -> &[AtomicU64] {
        // Relaxed is enough: a producer reserves an id's words before it publishes an entry with that id, and
        // the ring's head was read with Acquire.
        let reserved = self.header.definitions_reserved.load(Ordering::Relaxed);
        let reserved = usize::try_from(reserved).unwrap_or(usize::MAX);
        self.definitions.get(..reserved).unwrap_or(self.definitions)
    }

    pub fn ring_count(&self) -> usize {
        self.rings.len()
    }

    /// How many cells a ring has.
    pub fn ring_cells(&self, ring: usize) -> u64 {
        self.rings.get(ring).map_or(0, |ring| ring.cells)
    }

    /// The cells of the largest ring.
    pub fn ring_cells_max(&self) -> u64 {
        self.rings.iter().map(|ring| ring.cells).max().unwrap_or(0)
    }

    /// Rings whose header was invalid from the start.
    pub fn unusable_rings(&self) -> impl Iterator<Item = usize> {
        self.rings.iter().enumerate().filter(|(_, ring)| ring.consumer.is_none()).map(|(index, _)| index)
    }

    /// Rings that are not read from their beginning, and the position at which reading began.
    pub fn taken_over(&self) -> impl Iterator<Item = (usize, u64)> {
        let positions = self.rings.iter().map(|ring| ring.consumer.as_ref().map_or(0, Consumer::position));
        positions.enumerate().filter(|(_, position)| *position > 0)
    }

    /// Whether the gathered cells of any ring should be sent.
    pub fn presses(&self) -> bool {
        self.rings.iter().any(|ring| ring.gathered() > ring.cells / GATHERED_SHARE)
    }

    /// Notes that all cells that were read are in the first `sent` batches.
    pub fn note_sent(&mut self, sent: u64) {
        for ring in self.rings.iter_mut().filter(|ring| ring.gathered() > 0) {
            let position = ring.consumer.as_ref().map_or(0, Consumer::position);
            ring.sent.push_back((sent, position));
        }
    }

    /// The first `stored` batches are in the file: releases the slots of their cells, and slots that are held
    /// beyond the limit.
    pub fn give_back(&mut self, stored: u64) {
        for ring in &mut self.rings {
            let Some(consumer) = &mut ring.consumer else { continue };
            while let Some((_, position)) = ring.sent.pop_front_if(|(sent, _)| *sent <= stored) {
                consumer.give_back(position);
            }
            let most = ring.cells / HELD_SHARE;
            if consumer.held() > most {
                consumer.give_back(consumer.position().wrapping_sub(most));
            }
        }
    }

    /// How many cells a ring holds now.
    pub fn available(&mut self, ring: usize) -> Drained {
        let Some(reader) = self.rings.get_mut(ring) else { return Drained::Cells(0) };
        let Some(consumer) = &reader.consumer else { return Drained::Cells(0) };
        match consumer.available() {
            Ok(count) => Drained::Cells(count),
            Err(_) => {
                reader.consumer = None;
                Drained::Damaged
            }
        }
    }

    /// Appends whole entries of a ring to `out`: of the `published` cells that [`Segment::available`]
    /// returned, at most `limit`, which is at least the length of the longest entry. Releases their slots
    /// unless `hold`.
    pub fn drain(
        &mut self,
        ring: usize,
        published: u64,
        limit: u64,
        hold: bool,
        out: &mut Vec<Cell>,
    ) -> Drained {
        let Some(reader) = self.rings.get_mut(ring) else { return Drained::Cells(0) };
        let Some(consumer) = &mut reader.consumer else { return Drained::Cells(0) };
        let first = out.len();
        let read = consumer.read(published.min(limit), |cell| out.push(cell));
        let end = read.is_ok().then(|| whole_entries(out.get(first..).unwrap_or(&[])));
        let (whole, sound) = match (&read, end) {
            // An entry that is cut by the limit is read next time. An entry that is cut by the head was not
            // published whole: damage.
            (Ok(count), Some(Cut::At(whole))) => (whole, whole as u64 == *count || published > limit),
            (_, Some(Cut::Damaged(whole))) => (whole, false),
            _ => (0, false),
        };
        out.truncate(first + whole);
        consumer.take(whole as u64);
        if !hold {
            consumer.give_back(consumer.position());
        }
        if sound {
            return Drained::Cells(whole as u64);
        }
        reader.consumer = None;
        Drained::Damaged
    }
}

/// Where the whole entries end.
enum Cut {
    At(usize),
    /// Before an entry whose length is 0.
    Damaged(usize),
}

fn whole_entries(cells: &[Cell]) -> Cut {
    let mut at = 0;
    while let Some(first) = cells.get(at) {
        let length = usize::from(first.cells());
        if length == 0 {
            return Cut::Damaged(at);
        }
        if at + length > cells.len() {
            break;
        }
        at += length;
    }
    Cut::At(at)
}

impl Mapping {
    /// Words of the mapping.
    ///
    /// # Safety
    /// `offset` is a multiple of 8, `offset + count * 8` lies inside the mapping, and the
    /// reference is not used after the mapping is dropped.
    unsafe fn words(&self, offset: usize, count: usize) -> &'static [AtomicU64] {
        // SAFETY: the caller's promise; atomics may be shared with other processes.
        unsafe { std::slice::from_raw_parts(self.base.add(offset).cast().as_ptr(), count) }
    }
}
