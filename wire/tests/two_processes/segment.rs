//! A primary segment in a real memfd: one ring, one definitions area.

use gputrace_wire::VERSION;
use gputrace_wire::cell::{CELL_BYTES, CELL_WORDS};
use gputrace_wire::definition::Area;
use gputrace_wire::ring::Ring;
use gputrace_wire::segment::{self, Layout, RING_TABLE_OFFSET, RingHeader, SegmentHeader};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// One process's mapping of the segment.
pub struct Segment {
    base: *mut libc::c_void,
    bytes: usize,
    file: OwnedFd,
}

const DEFINITIONS_OFFSET: usize = RING_TABLE_OFFSET + size_of::<RingHeader>();

impl Segment {
    pub fn create(ring_cells: usize, definition_words: usize) -> Segment {
        let data_offset = DEFINITIONS_OFFSET + definition_words * 8;
        let bytes = data_offset + ring_cells * CELL_BYTES;
        // SAFETY: the name is a C string; the result is checked and owned here alone.
        let file = unsafe {
            let fd = libc::memfd_create(c"wire-test".as_ptr(), libc::MFD_CLOEXEC);
            assert!(fd >= 0);
            assert_eq!(libc::ftruncate(fd, bytes as libc::off_t), 0);
            OwnedFd::from_raw_fd(fd)
        };
        let segment = Segment::map(file, bytes);
        let header = segment.header();
        header.magic.store(segment::MAGIC, Ordering::Relaxed);
        header.kind.store(segment::kind::PRIMARY, Ordering::Relaxed);
        header.total_bytes.store(bytes as u64, Ordering::Relaxed);
        header.ring_table_offset.store(RING_TABLE_OFFSET as u64, Ordering::Relaxed);
        header.ring_count.store(1, Ordering::Relaxed);
        header.definitions_offset.store(DEFINITIONS_OFFSET as u64, Ordering::Relaxed);
        header.definitions_bytes.store((definition_words * 8) as u64, Ordering::Relaxed);
        header.next_definition_id.store(1, Ordering::Relaxed);
        let ring = &segment.at::<RingHeader>(RING_TABLE_OFFSET, 1)[0];
        ring.data_offset.store(data_offset as u64, Ordering::Relaxed);
        ring.capacity_cells.store(ring_cells as u64, Ordering::Relaxed);
        header.version.store(VERSION, Ordering::Release);
        segment
    }

    fn map(file: OwnedFd, bytes: usize) -> Segment {
        // SAFETY: a new mapping of a file that is that long and is never shortened.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(base, libc::MAP_FAILED);
        Segment { base, bytes, file }
    }

    /// The same memory at another address, as another process has it.
    pub fn map_again(&self) -> Segment {
        // SAFETY: the descriptor is open for as long as `self` is; the copy is checked.
        let file = unsafe {
            let fd = libc::dup(self.file.as_raw_fd());
            assert!(fd >= 0);
            OwnedFd::from_raw_fd(fd)
        };
        Segment::map(file, self.bytes)
    }

    fn at<T>(&self, offset: usize, count: usize) -> &[T] {
        assert!(offset.is_multiple_of(align_of::<T>()) && offset + count * size_of::<T>() <= self.bytes);
        // SAFETY: inside the mapping and aligned, as just asserted; only called for atomics and
        // structs of them, for which any bytes are valid and which others may change.
        unsafe { std::slice::from_raw_parts(self.base.cast::<u8>().add(offset).cast::<T>(), count) }
    }

    pub fn header(&self) -> &SegmentHeader {
        &self.at::<SegmentHeader>(0, 1)[0]
    }

    pub fn ring_header(&self) -> &RingHeader {
        let layout = Layout::read(self.header(), self.bytes).unwrap();
        &self.at::<RingHeader>(layout.ring_table_offset, layout.ring_count)[0]
    }

    pub fn ring(&self) -> Ring<'_> {
        let header = self.ring_header();
        let (offset, cells) = Layout::ring_extent(header, self.bytes).unwrap();
        Ring::new(&header.head, &header.tail, self.at(offset, cells * CELL_WORDS)).unwrap()
    }

    pub fn definition_words(&self) -> &[AtomicU64] {
        let layout = Layout::read(self.header(), self.bytes).unwrap();
        self.at(layout.definitions_offset, layout.definitions_bytes / 8)
    }

    pub fn definitions(&self) -> Area<'_> {
        let header = self.header();
        Area {
            reserved: &header.definitions_reserved,
            next_id: &header.next_definition_id,
            words: self.definition_words(),
        }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; every reference into it borrowed `self`.
        unsafe { libc::munmap(self.base, self.bytes) };
    }
}
