//! A process's segment in our address space: mapped once, checked once, read through atomics.

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

/// The file system that ordinary memory files are in, as `statfs` names it.
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

/// One ring as its consumer sees it.
#[derive(Debug)]
struct RingReader {
    header: &'static RingHeader,
    /// Capacity.
    cells: u64,
    /// `None` where the header's place for the ring makes no sense, and after damage.
    consumer: Option<Consumer<'static>>,
    /// Where the ring was read up to when so many batches had been sent: what lies before is
    /// stored when they are.
    sent: VecDeque<(u64, u64)>,
}

/// Of a ring's capacity, the share that is held back at most until it is stored: beyond it room
/// for the program goes before what a killed collector would lose.
const HELD_SHARE: u64 = 4;
/// The share at which what was gathered goes out.
const GATHERED_SHARE: u64 = 8;

impl RingReader {
    /// Cells that were read and not sent.
    fn gathered(&self) -> u64 {
        let Some(consumer) = &self.consumer else { return 0 };
        let sent = self.sent.back().map(|(_, position)| *position);
        sent.map_or_else(|| consumer.held(), |sent| consumer.position().wrapping_sub(sent))
    }
}

/// What one look at a ring gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drained {
    /// So many cells, all of them whole entries.
    Cells(u64),
    /// The ring holds nonsense and is not read any further.
    Damaged,
}

/// A checked segment. The `'static` references in it are to the mapping it owns; they stay in
/// private fields, so that none outlives the value.
#[derive(Debug)]
pub struct Segment {
    rings: Vec<RingReader>,
    header: &'static SegmentHeader,
    control: &'static Control,
    counters: &'static [AtomicU64],
    definitions: &'static [AtomicU64],
    layout: Layout,
    /// The memory file's device and inode, by which it is known again.
    identity: (u64, u64),
    _mapping: Mapping,
}

impl Segment {
    /// Maps a segment that a process handed over.
    pub fn open(fd: &OwnedFd) -> Result<Segment, Refusal> {
        // Only memory files have seals. Without this one the file could be cut short under us,
        // and the next look at it would be a SIGBUS.
        let seals = rustix::fs::fcntl_get_seals(fd).map_err(|_| Refusal::NotSealed)?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL) {
            return Err(Refusal::NotSealed);
        }
        // Huge pages are seals' only other home, and a hole in them is a SIGBUS where no huge page
        // is free.
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

    /// The definitions area up to what was reserved in it so far. Looking further would make the
    /// kernel find memory for pages that nobody wrote.
    pub fn definitions(&self) -> &[AtomicU64] {
        // Relaxed: whoever published an entry with an id reserved that id's words before, and
        // the ring's head, which was read with Acquire, comes after both.
        let reserved = self.header.definitions_reserved.load(Ordering::Relaxed);
        let reserved = usize::try_from(reserved).unwrap_or(usize::MAX);
        self.definitions.get(..reserved).unwrap_or(self.definitions)
    }

    pub fn ring_count(&self) -> usize {
        self.rings.len()
    }

    /// The cells of the largest ring.
    pub fn ring_cells_max(&self) -> u64 {
        self.rings.iter().map(|ring| ring.cells).max().unwrap_or(0)
    }

    /// Rings whose header made no sense from the start.
    pub fn unusable_rings(&self) -> impl Iterator<Item = usize> {
        self.rings.iter().enumerate().filter(|(_, ring)| ring.consumer.is_none()).map(|(index, _)| index)
    }

    /// Rings that are not read from their beginning, and from where they are.
    pub fn taken_over(&self) -> impl Iterator<Item = (usize, u64)> {
        let positions = self.rings.iter().map(|ring| ring.consumer.as_ref().map_or(0, Consumer::position));
        positions.enumerate().filter(|(_, position)| *position > 0)
    }

    /// Whether a ring has so much in what was gathered that it should go out.
    pub fn presses(&self) -> bool {
        self.rings.iter().any(|ring| ring.gathered() > ring.cells / GATHERED_SHARE)
    }

    /// All that was read is in the first `sent` batches.
    pub fn note_sent(&mut self, sent: u64) {
        for ring in self.rings.iter_mut().filter(|ring| ring.gathered() > 0) {
            let position = ring.consumer.as_ref().map_or(0, Consumer::position);
            ring.sent.push_back((sent, position));
        }
    }

    /// The first `stored` batches are in the file: what they hold is given back, and what is held
    /// beyond measure too.
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

    /// Appends cells of a ring to `out`, as many as make whole entries, and gives their slots
    /// back unless they are to be held: of the `published` ones that [`Segment::available`] told, up
    /// to `limit`, which is at least the length of the longest entry.
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
            // An entry that is cut by the limit is read next time; one that is cut by the head
            // was never published whole, and no writer of the format does that.
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

/// Where whole entries end.
enum Cut {
    At(usize),
    /// Before an entry that says it has no cells.
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
    /// Words of the mapping, for as long as the mapping lives.
    ///
    /// # Safety
    /// `offset` is a multiple of 8, `offset + count * 8` lies inside the mapping, and the
    /// reference is not used after the mapping is dropped.
    unsafe fn words(&self, offset: usize, count: usize) -> &'static [AtomicU64] {
        // SAFETY: the caller's promise; atomics may be shared with other processes.
        unsafe { std::slice::from_raw_parts(self.base.add(offset).cast().as_ptr(), count) }
    }
}
