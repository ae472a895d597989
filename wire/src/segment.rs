//! Segments: the sealed memory files that rings and definitions live in.
//!
//! ```text
//!  offset      primary segment                                written by
//!  0           SegmentHeader                                  producer (once; state at the end)
//!  4096        Control                                        collector
//!  5120        counters, 64-bit words by Counter index        producer, any thread
//!  8192        ring table: RingHeader × ring_count            each ring's owner; tail: collector
//!  …           definitions                                    producer, any thread
//!  …           ring data                                      each ring's owner
//! ```
//!
//! A process makes one primary segment; more segments with rings only (`kind` = `RINGS`) follow
//! when it has more threads than rings. The collector reads every offset and size below from memory
//! that a hostile producer can change at any time: [`Layout::read`] copies them once and checks the
//! copy against the size of the mapping.

use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::cell::CELL_BYTES;
#[cfg(not(loom))]
use core::mem::offset_of;
use core::mem::size_of;

/// "GPUTRACE" in the first eight bytes.
pub const MAGIC: u64 = u64::from_le_bytes(*b"GPUTRACE");

/// Values of [`SegmentHeader::kind`].
pub mod kind {
    pub const PRIMARY: u32 = 1;
    pub const RINGS: u32 = 2;
}

pub const CONTROL_OFFSET: usize = 4096;
pub const COUNTERS_OFFSET: usize = 5120;
/// Space for counters; [`crate::counter::Counter::COUNT`] of them are used.
pub const COUNTER_SLOTS: usize = 128;
pub const RING_TABLE_OFFSET: usize = 8192;
/// The most rings a segment may claim.
pub const RINGS_MAX: u32 = 1024;
/// The largest segment a collector maps.
pub const SEGMENT_BYTES_MAX: u64 = 4 << 30;

/// The first page of a segment.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct SegmentHeader {
    pub magic: AtomicU64,
    /// Stored last, with Release: a reader that sees it sees the rest.
    pub version: AtomicU32,
    pub kind: AtomicU32,
    pub total_bytes: AtomicU64,
    pub ring_table_offset: AtomicU64,
    pub ring_count: AtomicU32,
    reserved: AtomicU32,
    pub definitions_offset: AtomicU64,
    pub definitions_bytes: AtomicU64,

    pub pid: AtomicU32,
    pub parent_pid: AtomicU32,
    /// The session's number in this process. A forked child inherits the counter, so that its number differs
    /// from its parent's.
    pub generation: AtomicU32,
    /// One of [`crate::clock::tick`].
    pub tick_kind: AtomicU32,
    /// As exactly as it was known at the start; the anchors give a better value.
    pub ticks_per_second: AtomicU64,
    pub start_ticks: AtomicU64,
    pub start_monotonic_ns: AtomicU64,
    pub start_realtime_ns: AtomicU64,
    /// One of [`state`].
    pub state: AtomicU32,
    pad: [AtomicU32; 5],

    /// See [`crate::definition::Area`]. In its own cache line: many threads write it.
    pub definitions_reserved: AtomicU64,
    pub next_definition_id: AtomicU32,
    pad2: [AtomicU32; 13],
}

/// Values of [`SegmentHeader::state`].
pub mod state {
    pub const RUNNING: u32 = 1;
    /// The producer sent its good-bye: everything is published.
    pub const ENDED: u32 = 2;
}

/// One ring of a segment's table.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct RingHeader {
    /// One of [`ring_state`]; changed by compare-exchange.
    pub state: AtomicU32,
    reserved: AtomicU32,
    /// From the segment's start; fixed at creation.
    pub data_offset: AtomicU64,
    /// A power of two; fixed at creation.
    pub capacity_cells: AtomicU64,
    /// Sampled launch calls inside and outside of windows of device times, and their total duration; and the
    /// cost of the hooks of those inside. Only the owning thread writes these.
    pub inside_calls: AtomicU64,
    pub inside_ticks: AtomicU64,
    pub outside_calls: AtomicU64,
    pub outside_ticks: AtomicU64,
    pub inside_hook_ticks: AtomicU64,

    /// The producer's cache line: only the owning thread writes it.
    pub head: AtomicU64,
    /// Entries that did not fit.
    pub dropped: AtomicU64,
    /// Entries written.
    pub written: AtomicU64,
    /// The number of hooks whose own cost was measured, and their total cost.
    pub sampled_hooks: AtomicU64,
    pub sampled_ticks: AtomicU64,
    /// Launches made in windows of device times, and CUPTI's correlation id for the last of them, or for the
    /// last call that was marked after it.
    pub window_launches: AtomicU64,
    pub window_latest: AtomicU32,
    /// When the driver call that the owning thread is inside of began, in units of 1024 ticks, with
    /// the lowest bit set; 0 for none. Calls that only wait and launches while the session is paused are left
    /// out. Only the process itself reads it.
    pub in_call: AtomicU32,
    /// Launches that were counted instead of recorded ([`crate::counted`]).
    pub counted_launches: AtomicU64,

    /// How far the consumer has read. Only the consumer writes this cache line, but for the next field.
    pub tail: AtomicU64,
    /// Launches that were not recorded because the session was paused. Only the owning thread writes this
    /// field. It is on the consumer's line because the owner's is full; during a pause the consumer rarely
    /// writes to its line.
    pub paused_launches: AtomicU64,
    pad3: [AtomicU64; 6],
}

/// Values of [`RingHeader::state`].
pub mod ring_state {
    pub const FREE: u32 = 0;
    pub const OWNED: u32 = 1;
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<SegmentHeader>() == 192);
    assert!(offset_of!(SegmentHeader, version) == 8);
    assert!(offset_of!(SegmentHeader, pid) == 56);
    assert!(offset_of!(SegmentHeader, state) == 104);
    assert!(offset_of!(SegmentHeader, definitions_reserved) == 128);
    assert!(RING_TABLE_OFFSET >= COUNTERS_OFFSET + COUNTER_SLOTS * 8);
    assert!(COUNTERS_OFFSET >= CONTROL_OFFSET + size_of::<crate::control::Control>());
    assert!(CONTROL_OFFSET >= size_of::<SegmentHeader>());
    assert!(crate::counter::Counter::COUNT <= COUNTER_SLOTS);
    assert!(size_of::<RingHeader>() == 192);
    assert!(offset_of!(RingHeader, head) == 64);
    assert!(offset_of!(RingHeader, tail) == 128);
};

/// Why a segment is not readable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadSegment {
    NotASegment,
    /// Made by another version of the format; the version word is given.
    Version(u32),
    /// Sizes or offsets that contradict each other or the mapping.
    Layout,
}

/// A checked copy of the layout in a segment's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    pub kind: u32,
    pub ring_table_offset: usize,
    pub ring_count: usize,
    pub definitions_offset: usize,
    pub definitions_bytes: usize,
}

impl Layout {
    /// Copies the layout out of a header and checks it against the mapping's true size.
    ///
    /// In a layout that passes, the control block and the counters are inside the mapping, too. The caller
    /// must ensure by the file's seals that the mapping cannot shrink.
    pub fn read(header: &SegmentHeader, mapped_bytes: usize) -> Result<Layout, BadSegment> {
        // SYNC: pairs with the Release store of `version` by the producer, after all the rest.
        // Without it the version could be seen before the sizes.
        let version = header.version.load(Ordering::Acquire);
        if header.magic.load(Ordering::Relaxed) != MAGIC {
            return Err(BadSegment::NotASegment);
        }
        if crate::major_of(version) != crate::VERSION_MAJOR {
            return Err(BadSegment::Version(version));
        }
        let size = |offset: &AtomicU64| usize::try_from(offset.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        let layout = Layout {
            kind: header.kind.load(Ordering::Relaxed),
            ring_table_offset: size(&header.ring_table_offset),
            ring_count: header.ring_count.load(Ordering::Relaxed) as usize,
            definitions_offset: size(&header.definitions_offset),
            definitions_bytes: size(&header.definitions_bytes),
        };
        let inside =
            |offset: usize, bytes: usize| offset.checked_add(bytes).is_some_and(|end| end <= mapped_bytes);
        let table_bytes = layout.ring_count.saturating_mul(size_of::<RingHeader>());
        let sound = layout.ring_count <= RINGS_MAX as usize
            && layout.ring_table_offset >= RING_TABLE_OFFSET
            && layout.ring_table_offset.is_multiple_of(64)
            && inside(layout.ring_table_offset, table_bytes)
            && layout.definitions_offset.is_multiple_of(64)
            && layout.definitions_bytes.is_multiple_of(8)
            && (layout.definitions_bytes == 0 || layout.definitions_offset >= RING_TABLE_OFFSET)
            && size(&header.total_bytes) <= mapped_bytes
            && inside(layout.definitions_offset, layout.definitions_bytes)
            && matches!(layout.kind, kind::PRIMARY | kind::RINGS);
        if sound { Ok(layout) } else { Err(BadSegment::Layout) }
    }

    /// Copies a ring's place out of its header and checks it: (offset, cells).
    pub fn ring_extent(ring: &RingHeader, mapped_bytes: usize) -> Option<(usize, usize)> {
        let offset = usize::try_from(ring.data_offset.load(Ordering::Relaxed)).ok()?;
        let cells = usize::try_from(ring.capacity_cells.load(Ordering::Relaxed)).ok()?;
        let end = cells.checked_mul(CELL_BYTES)?.checked_add(offset)?;
        (cells.is_power_of_two()
            && offset >= RING_TABLE_OFFSET
            && offset.is_multiple_of(64)
            && end <= mapped_bytes)
            .then_some((offset, cells))
    }
}
