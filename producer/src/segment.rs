//! The sealed memory file: making, laying out, mapping and publishing it.
//!
//! The file is sparse: its size is address space, and costs memory only where it was written. It is sealed
//! against growing and shrinking, so that neither side can make the other fault. It has no name, so that
//! nothing remains when both sides are gone.

use core::mem::size_of;
use core::sync::atomic::Ordering;

use gputrace_wire::atomic::{AtomicU32, AtomicU64};
use gputrace_wire::cell::{CELL_BYTES, CELL_WORDS};
use gputrace_wire::control::Control;
use gputrace_wire::definition::Area;
use gputrace_wire::ring::Ring;
use gputrace_wire::segment::{
    self, CONTROL_OFFSET, COUNTER_SLOTS, COUNTERS_OFFSET, RING_TABLE_OFFSET, RingHeader, SegmentHeader,
};

use crate::fork;
use crate::system;

/// The number and sizes of a segment's parts. Ring 0 of a primary segment is for device records, ring 1 for
/// the service thread, the others for the program's threads.
#[derive(Clone, Copy, Debug)]
pub struct SegmentPlan {
    pub kind: u32,
    pub definitions_bytes: usize,
    pub record_cells: usize,
    pub service_cells: usize,
    pub thread_rings: usize,
    pub thread_cells: usize,
}

impl SegmentPlan {
    /// 4 MiB a thread: 65 536 launches, 160 ms at 400 000 a second, many times the collector's pause. 16
    /// MiB for device records: a full CUPTI buffer of 256 KiB becomes 0.15 MiB of cells.
    pub const PRIMARY: SegmentPlan = SegmentPlan {
        kind: segment::kind::PRIMARY,
        definitions_bytes: 64 << 20,
        record_cells: 1 << 18,
        service_cells: 1 << 12,
        thread_rings: 62,
        thread_cells: 1 << 16,
    };
    /// Used where address space or memory files are limited.
    pub const PRIMARY_SMALL: SegmentPlan = SegmentPlan {
        kind: segment::kind::PRIMARY,
        definitions_bytes: 2 << 20,
        record_cells: 1 << 14,
        service_cells: 1 << 10,
        thread_rings: 14,
        thread_cells: 1 << 12,
    };
    pub const MORE_THREADS: SegmentPlan = SegmentPlan {
        kind: segment::kind::RINGS,
        definitions_bytes: 0,
        record_cells: 0,
        service_cells: 0,
        thread_rings: 64,
        thread_cells: 1 << 14,
    };

    fn ring_count(&self) -> usize {
        self.thread_rings + usize::from(self.record_cells > 0) + usize::from(self.service_cells > 0)
    }

    fn ring_cells(&self, index: usize) -> usize {
        match (self.kind, index) {
            (segment::kind::PRIMARY, 0) => self.record_cells,
            (segment::kind::PRIMARY, 1) => self.service_cells,
            _ => self.thread_cells,
        }
    }

    fn definitions_offset(&self) -> usize {
        (RING_TABLE_OFFSET + self.ring_count() * size_of::<RingHeader>()).next_multiple_of(4096)
    }

    fn rings_offset(&self) -> usize {
        (self.definitions_offset() + self.definitions_bytes).next_multiple_of(4096)
    }

    fn total_bytes(&self) -> usize {
        let cells: usize = (0..self.ring_count()).map(|index| self.ring_cells(index)).sum();
        (self.rings_offset() + cells * CELL_BYTES).next_multiple_of(4096)
    }
}

/// A mapped segment, or a copy of one: a mapping that threads write to is never unmapped. Only a segment
/// that no thread ever got may be [discarded](Segment::discard).
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    base: *mut u8,
    pub header: &'static SegmentHeader,
    pub rings: &'static [RingHeader],
    definitions: &'static [AtomicU64],
    bytes: usize,
}

// SAFETY: `base` is only used to make references to atomics inside a mapping that is never unmapped;
// atomics may be used from any thread.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// Makes and maps a segment. Also returns its descriptor, which the caller sends and closes. `None` if
    /// the kernel refuses (no memfd, seccomp, limits).
    pub fn create(plan: SegmentPlan) -> Option<(Segment, i32)> {
        let bytes = plan.total_bytes();
        if !may_make_a_file_of(bytes) {
            return None;
        }
        let descriptor = make_file();
        if descriptor < 0 {
            return None;
        }
        const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        const PROTECTION: i32 = libc::PROT_READ | libc::PROT_WRITE;
        const FLAGS: i32 = libc::MAP_SHARED | libc::MAP_NORESERVE;
        let is_sealed = system::ftruncate(descriptor, bytes) == 0
            && system::fcntl(descriptor, libc::F_ADD_SEALS, SEALS) == 0;
        // SAFETY: the descriptor is ours; a new shared mapping touches no existing memory.
        let map = || unsafe { system::mmap(core::ptr::null_mut(), bytes, PROTECTION, FLAGS, descriptor) };
        let Some(base) = is_sealed.then(map).flatten() else {
            // SAFETY: the descriptor was made above and is not used again.
            unsafe { system::close(descriptor) };
            return None;
        };
        // A forked child must not write into its parent's rings, so the memory is not mapped in the child.
        // SAFETY: the range is the mapping made above.
        if unsafe { system::madvise(base, bytes, libc::MADV_DONTFORK) } == 0 {
            fork::cover_in_children(base.cast(), bytes);
        }
        // SAFETY: the mapping is `bytes` long, page-aligned, zero, and never unmapped; all four
        // types consist of atomics, for which zero is valid; the plan keeps them inside.
        let segment = unsafe {
            let base = base.cast::<u8>();
            Segment {
                base,
                header: &*base.cast::<SegmentHeader>(),
                rings: core::slice::from_raw_parts(
                    base.add(RING_TABLE_OFFSET).cast::<RingHeader>(),
                    plan.ring_count(),
                ),
                definitions: core::slice::from_raw_parts(
                    base.add(plan.definitions_offset()).cast::<AtomicU64>(),
                    plan.definitions_bytes / 8,
                ),
                bytes,
            }
        };
        segment.lay_out(plan);
        Some((segment, descriptor))
    }

    /// Unmaps a segment that is not used after all.
    ///
    /// # Safety
    ///
    /// Nobody uses the segment or a reference into it any more: no thread was given one of its rings.
    pub unsafe fn discard(self) {
        fork::uncover_in_children(self.base);
        // SAFETY: the range is the mapping that `create` made, and the caller knows it unused.
        unsafe { system::munmap(self.base.cast(), self.bytes) };
    }

    /// Writes the header except for its version, which [`Segment::publish`] stores.
    fn lay_out(&self, plan: SegmentPlan) {
        let header = self.header;
        header.magic.store(segment::MAGIC, Ordering::Relaxed);
        header.kind.store(plan.kind, Ordering::Relaxed);
        header.total_bytes.store(self.bytes as u64, Ordering::Relaxed);
        header.ring_table_offset.store(RING_TABLE_OFFSET as u64, Ordering::Relaxed);
        header.ring_count.store(plan.ring_count() as u32, Ordering::Relaxed);
        header.definitions_offset.store(plan.definitions_offset() as u64, Ordering::Relaxed);
        header.definitions_bytes.store(plan.definitions_bytes as u64, Ordering::Relaxed);
        header.next_definition_id.store(1, Ordering::Relaxed);
        header.state.store(segment::state::RUNNING, Ordering::Relaxed);
        let mut offset = plan.rings_offset();
        for (index, ring) in self.rings.iter().enumerate() {
            let cells = plan.ring_cells(index);
            ring.data_offset.store(offset as u64, Ordering::Relaxed);
            ring.capacity_cells.store(cells as u64, Ordering::Relaxed);
            offset += cells * CELL_BYTES;
        }
    }

    /// Stores the version: from here on a reader may use the segment.
    pub fn publish(&self) {
        // SYNC: pairs with the Acquire load in `Layout::read`; everything else is written before it.
        self.header.version.store(gputrace_wire::VERSION, Ordering::Release);
    }

    pub fn area(&self) -> Area<'static> {
        Area {
            reserved: &self.header.definitions_reserved,
            next_id: &self.header.next_definition_id,
            words: self.definitions,
        }
    }

    pub fn control(&self) -> &'static Control {
        // SAFETY: every segment reaches past the control block; it consists of atomics.
        unsafe { &*self.base.add(CONTROL_OFFSET).cast::<Control>() }
    }

    pub fn counters(&self) -> &'static [AtomicU64] {
        // SAFETY: every segment reaches past the counters.
        unsafe {
            core::slice::from_raw_parts(self.base.add(COUNTERS_OFFSET).cast::<AtomicU64>(), COUNTER_SLOTS)
        }
    }

    /// Asks the kernel for the memory of some of a ring's cells now, so that the thread that will write
    /// them has no page fault there: 2 to 10 µs each on a virtual machine.
    pub fn populate(&self, plan: SegmentPlan, index: usize, first: u64, count: u64) {
        let before: usize = (0..index).map(|earlier| plan.ring_cells(earlier)).sum();
        let ring = plan.rings_offset() + before * CELL_BYTES;
        self.populate_part(ring, CELL_BYTES, plan.ring_cells(index), first, count);
    }

    /// The same for some of the definitions' words.
    pub fn populate_definitions(&self, plan: SegmentPlan, first: u64, count: u64) {
        self.populate_part(plan.definitions_offset(), size_of::<u64>(), self.definitions.len(), first, count);
    }

    /// Populates `count` items from `first` on, or as many as there are, of the part of the mapping that
    /// begins at `offset` and has `items` of that many bytes each.
    fn populate_part(&self, offset: usize, item_bytes: usize, items: usize, first: u64, count: u64) {
        const MADV_POPULATE_WRITE: i32 = 23;
        let [first, end] = [first, first.saturating_add(count)].map(|item| item.min(items as u64) as usize);
        if first < end {
            let start = (offset + first * item_bytes) & !4095;
            let end = (offset + end * item_bytes).next_multiple_of(4096);
            // SAFETY: the range is in the mapping, which is a number of pages, and populating changes no
            // contents. Kernels before 5.14 refuse; the page faults then happen at the first write.
            unsafe { system::madvise(self.base.add(start).cast(), end - start, MADV_POPULATE_WRITE) };
        }
    }

    /// The ring of that header, at the position where this process laid it out. The positions in shared
    /// memory are not used: a hostile collector must not be able to redirect our writes.
    pub fn ring(&self, plan: SegmentPlan, index: usize) -> Option<Ring<'static>> {
        let header = self.rings.get(index)?;
        let before: usize = (0..index).map(|earlier| plan.ring_cells(earlier)).sum();
        let offset = plan.rings_offset() + before * CELL_BYTES;
        let words = plan.ring_cells(index) * CELL_WORDS;
        // SAFETY: the plan the segment was made with keeps the ring inside the mapping.
        let slots = unsafe { core::slice::from_raw_parts(self.base.add(offset).cast::<AtomicU64>(), words) };
        Ring::new(&header.head, &header.tail, slots).ok()
    }
}

/// Makes a memory file that can be sealed and never executed: some machines allow no other kind. Kernels
/// before 6.3 do not know the flag and refuse it.
fn make_file() -> i32 {
    const MFD_NOEXEC_SEAL: libc::c_uint = 8;
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    let make = |flags| system::memfd_create(c"gputrace", flags);
    match make(flags | MFD_NOEXEC_SEAL) {
        refused if refused < 0 => make(flags),
        made => made,
    }
}

/// Whether RLIMIT_FSIZE lets the process make a file of that length. If not, an attempt does not just fail:
/// it raises SIGXFSZ, which kills the process.
fn may_make_a_file_of(bytes: usize) -> bool {
    bytes as u64 <= system::soft_limit(libc::RLIMIT_FSIZE)
}

/// Whether RLIMIT_FSIZE is the reason why there is no primary segment, not even a small one.
pub fn is_kept_out_by_file_limit() -> bool {
    !may_make_a_file_of(SegmentPlan::PRIMARY_SMALL.total_bytes())
}

const _: () = assert!(size_of::<AtomicU32>() == 4);

#[cfg(test)]
mod tests {
    use super::*;
    use gputrace_wire::cell::Cell;
    use gputrace_wire::ring::{Consumer, Producer};
    use gputrace_wire::segment::Layout;

    #[test]
    fn segment_reads_as_it_was_planned() {
        for plan in [SegmentPlan::PRIMARY, SegmentPlan::PRIMARY_SMALL, SegmentPlan::MORE_THREADS] {
            let (segment, descriptor) = Segment::create(plan).unwrap();
            assert!(Layout::read(segment.header, segment.bytes).is_err(), "not before it is published");
            segment.publish();
            let layout = Layout::read(segment.header, segment.bytes).unwrap();
            assert_eq!(layout.ring_count, plan.ring_count());
            assert_eq!(layout.definitions_bytes, plan.definitions_bytes);
            for (index, ring) in segment.rings.iter().enumerate() {
                let (_, cells) = Layout::ring_extent(ring, segment.bytes).unwrap();
                assert_eq!(cells, plan.ring_cells(index));
            }
            // SAFETY: the test's own descriptor.
            unsafe { libc::close(descriptor) };
        }
    }

    #[test]
    fn rings_do_not_overlap() {
        let plan = SegmentPlan::PRIMARY_SMALL;
        let (segment, descriptor) = Segment::create(plan).unwrap();
        for index in 0..plan.ring_count() {
            let mut producer = Producer::new(segment.ring(plan, index).unwrap());
            while producer.push(&[Cell([index as u64 + 1; 8])]) {}
        }
        for index in 0..plan.ring_count() {
            let consumer = Consumer::new(segment.ring(plan, index).unwrap());
            let mut count = 0;
            consumer
                .read(u64::MAX, |cell| {
                    assert_eq!(cell.0, [index as u64 + 1; 8]);
                    count += 1;
                })
                .unwrap();
            assert_eq!(count, plan.ring_cells(index));
        }
        // SAFETY: the test's own descriptor.
        unsafe { libc::close(descriptor) };
    }

    /// Needs Linux 5.14.
    #[test]
    fn only_what_is_written_next_is_populated() {
        let plan = SegmentPlan::PRIMARY_SMALL;
        let (segment, descriptor) = Segment::create(plan).unwrap();
        let first_page_of_ring = (plan.rings_offset() + plan.record_cells * CELL_BYTES) / 4096;
        let first_page_of_definitions = plan.definitions_offset() / 4096;
        // The second cell of the second page of ring 1, and 64 more: a part of two pages.
        segment.populate(plan, 1, 65, 64);
        // The last word of the third page, and one more.
        segment.populate_definitions(plan, 3 * 512 - 1, 2);
        // More than there is.
        segment.populate_definitions(plan, plan.definitions_bytes as u64 / 8 - 1, 1 << 20);
        let mut is_there = vec![0u8; segment.bytes / 4096];
        // SAFETY: the mapping, and a byte for each of its pages.
        assert_eq!(unsafe { libc::mincore(segment.base.cast(), segment.bytes, is_there.as_mut_ptr()) }, 0);
        let there: Vec<usize> = (0..is_there.len()).filter(|page| is_there[*page] & 1 != 0).collect();
        let last_page_of_definitions = first_page_of_definitions + plan.definitions_bytes / 4096 - 1;
        let expected = [
            first_page_of_definitions + 2,
            first_page_of_definitions + 3,
            last_page_of_definitions,
            first_page_of_ring + 1,
            first_page_of_ring + 2,
        ];
        // The headers were written when the segment was made.
        let there: Vec<usize> = there.into_iter().filter(|page| *page >= first_page_of_definitions).collect();
        assert_eq!(there, expected);
        // SAFETY: the test's own descriptor.
        unsafe { libc::close(descriptor) };
    }

    #[test]
    fn file_size_limit_is_an_error_and_no_signal() {
        for (limit_bytes, expected) in [(16 << 20, 1), (1 << 20, 0)] {
            // SAFETY: the child makes system calls only and exits.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                let limit = libc::rlimit { rlim_cur: limit_bytes, rlim_max: limit_bytes };
                // SAFETY: a live rlimit; it is the child's own.
                unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) };
                let made = [SegmentPlan::PRIMARY, SegmentPlan::PRIMARY_SMALL]
                    .map(|plan| Segment::create(plan).is_some());
                let code = i32::from(made[0]) << 1 | i32::from(made[1]);
                // SAFETY: ends the child without running anything of the parent's.
                unsafe { libc::_exit(code) };
            }
            let mut status = 0;
            // SAFETY: waits for the child made above.
            unsafe { libc::waitpid(pid, &mut status, 0) };
            assert!(libc::WIFEXITED(status), "killed by signal {}", libc::WTERMSIG(status));
            assert_eq!(libc::WEXITSTATUS(status), expected);
        }
    }

    #[test]
    fn file_cannot_be_resized() {
        let (_, descriptor) = Segment::create(SegmentPlan::MORE_THREADS).unwrap();
        let sealed = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: the test's own descriptor.
        unsafe {
            assert_eq!(libc::fcntl(descriptor, libc::F_GET_SEALS) & sealed, sealed);
            assert_ne!(libc::ftruncate(descriptor, 4096), 0);
            libc::close(descriptor);
        }
    }
}
