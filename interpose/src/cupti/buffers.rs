//! The pool of buffers that CUPTI fills. Buffers are mapped on first use and reused.
//!
//! A buffer that CUPTI holds is never freed. When the pool is used up, CUPTI gets a buffer whose contents
//! are discarded and counted: before CUDA 12.9 it crashes if it gets none.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use gputrace_producer::{memory, session};

use super::open;

/// About 1 170 kernel records. A thread that launches 23 000 kernels a second fills one in 50 ms, so that it
/// comes back by itself before there is a flush, which holds the program's calls ([`super::returned`]).
/// 256 KiB to 8 MiB made no measurable difference; with few records in each, a buffer costs the launching
/// thread 30 to 50 µs (`scripts/bench-cupti-buffers`).
const BUFFER_BYTES: usize = 1 << 18;
const LARGE: usize = 256;
/// CUPTI from 12.x on takes one buffer for every launching thread (measured with 200 threads on 13.0).
/// Buffers beyond the first `LARGE` are small, about 300 kernel records.
const SMALL_BYTES: usize = 1 << 16;
/// At most 64 MiB and 112 MiB of addresses; only the pages that CUPTI wrote use memory. Records beyond
/// that are counted.
pub const BUFFERS: usize = 2048;
const WORDS: usize = BUFFERS / 64;

static FREE: [AtomicU64; WORDS] = [const { AtomicU64::new(u64::MAX) }; WORDS];
static POOL: [AtomicPtr<u8>; BUFFERS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; BUFFERS];
/// Buffers whose contents are discarded, mapped in advance; a page costs nothing until it is written.
/// CUPTI writes to every buffer that it holds, so each is given out once. The last one is the exception:
/// it is given again and again when all are in use.
const DISCARDS: usize = 16;
static DISCARD: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static DISCARDS_FREE: AtomicU64 = AtomicU64::new((1 << DISCARDS) - 1);

/// Maps the discard buffers in advance: in a callback, memory may be short.
pub fn prepare() -> bool {
    if DISCARD.load(Ordering::Acquire).is_null()
        && let Some(discard) = memory::map_bytes(DISCARDS * BUFFER_BYTES)
    {
        DISCARD.store(discard, Ordering::Release);
    }
    !DISCARD.load(Ordering::Acquire).is_null()
}

fn bytes_of(index: usize) -> usize {
    if index < LARGE { BUFFER_BYTES } else { SMALL_BYTES }
}

/// Takes a buffer of the pool: its index, address and size. Large buffers come first.
fn take() -> Option<(usize, *mut u8, usize)> {
    FREE.iter().enumerate().find_map(|(word, free)| take_of(word, free))
}

fn take_of(word: usize, free: &AtomicU64) -> Option<(usize, *mut u8, usize)> {
    loop {
        let bits = free.load(Ordering::Acquire);
        if bits == 0 {
            return None;
        }
        let bit = bits.trailing_zeros() as usize;
        if free.compare_exchange(bits, bits & !(1 << bit), Ordering::AcqRel, Ordering::Acquire).is_err() {
            continue;
        }
        let index = word * 64 + bit;
        let slot = POOL.get(index)?;
        let known = slot.load(Ordering::Acquire);
        if !known.is_null() {
            return Some((index, known, bytes_of(index)));
        }
        let new = memory::map_bytes(bytes_of(index));
        match new {
            Some(new) => slot.store(new, Ordering::Release),
            // A later attempt may find memory.
            None => give_back(index),
        }
        return Some((index, new?, bytes_of(index)));
    }
}

/// Takes a discard buffer.
fn take_discard() -> *mut u8 {
    let taken = DISCARDS_FREE.fetch_update(Ordering::AcqRel, Ordering::Acquire, |free| {
        (free != 0).then_some(free & (free.wrapping_sub(1)))
    });
    let index = taken.map_or(DISCARDS - 1, |free| free.trailing_zeros() as usize);
    let first = DISCARD.load(Ordering::Acquire);
    if first.is_null() { first } else { first.wrapping_add(index * BUFFER_BYTES) }
}

/// Takes a discard buffer back; false if the buffer is not one.
pub fn give_back_discard(buffer: *mut u8) -> bool {
    let first = DISCARD.load(Ordering::Acquire);
    let offset = (buffer as usize).wrapping_sub(first as usize);
    if first.is_null() || offset >= DISCARDS * BUFFER_BYTES {
        return false;
    }
    DISCARDS_FREE.fetch_or(1 << (offset / BUFFER_BYTES), Ordering::AcqRel);
    true
}

/// The indices of the buffers in use.
pub fn in_use() -> impl Iterator<Item = usize> {
    FREE.iter().enumerate().flat_map(|(word, free)| {
        let free = free.load(Ordering::Relaxed);
        (0..64).filter(move |bit| free & 1 << bit == 0).map(move |bit| word * 64 + bit)
    })
}

/// The index of a buffer in the pool.
pub fn index_of(buffer: *mut u8) -> Option<usize> {
    POOL.iter().position(|slot| slot.load(Ordering::Acquire) == buffer)
}

/// The buffer at an index of the pool.
pub fn at(index: usize) -> Option<*mut u8> {
    POOL.get(index).map(|slot| slot.load(Ordering::Acquire)).filter(|buffer| !buffer.is_null())
}

/// Zeroes the used bytes of a buffer and frees it, so that the next early reader finds no old records.
///
/// # Safety
/// CUPTI gave the buffer back, and nobody reads it.
pub unsafe fn clear(index: usize, used_bytes: usize) {
    if let Some(buffer) = at(index) {
        // SAFETY: the caller's guarantee; no more than the buffer has.
        unsafe { buffer.write_bytes(0, used_bytes.min(bytes_of(index))) };
    }
    give_back(index);
}

fn give_back(index: usize) {
    if let Some(free) = FREE.get(index / 64) {
        free.fetch_or(1 << (index % 64), Ordering::AcqRel);
    }
}

/// CUPTI's request for a buffer.
pub unsafe extern "C" fn requested(buffer: *mut *mut u8, bytes: *mut usize, most_records: *mut usize) {
    let (given, size) = match take() {
        Some((index, given, size)) => {
            open::give(index, session::current().map_or(0, |session| session.generation), size);
            (given, size)
        }
        None => (take_discard(), BUFFER_BYTES),
    };
    // SAFETY: CUPTI's own out parameters.
    unsafe {
        buffer.write(given);
        bytes.write(size);
        most_records.write(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cupti::returned;

    #[test]
    fn buffers_come_back_and_run_out() {
        assert!(prepare());
        let all: Vec<_> = (0..BUFFERS).map(|_| take().unwrap()).collect();
        assert!(all[..LARGE].iter().all(|(.., bytes)| *bytes == BUFFER_BYTES));
        assert!(all[LARGE..].iter().all(|(.., bytes)| *bytes == SMALL_BYTES));
        assert!(all.iter().enumerate().all(|(at, (index, ..))| at == *index));
        let taken: Vec<_> = all.into_iter().map(|(_, buffer, _)| buffer).collect();
        assert!(take().is_none());
        let (mut given, mut bytes, mut most) = (core::ptr::null_mut(), 0, 9);
        // SAFETY: three out parameters that live across the call.
        unsafe { requested(&mut given, &mut bytes, &mut most) };
        assert_eq!((given, bytes, most), (DISCARD.load(Ordering::Relaxed), BUFFER_BYTES, 0));
        let more: Vec<_> = (0..DISCARDS).map(|_| take_discard()).collect();
        assert!(!more.contains(&given) && more[DISCARDS - 1] == more[DISCARDS - 2], "{more:?}");
        assert!(give_back_discard(more[3]) && !give_back_discard(taken[0]));
        assert_eq!(take_discard(), more[3]);
        let mut distinct = taken.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), BUFFERS);
        assert_eq!((index_of(taken[470]), at(470)), (Some(470), Some(taken[470])));
        // SAFETY: this test's own buffer, shared with nobody.
        let left = unsafe {
            taken[470].write_bytes(7, 100);
            clear(470, 60);
            [59, 60].map(|at| taken[470].add(at).read())
        };
        assert_eq!((left, take()), ([0, 7], Some((470, taken[470], SMALL_BYTES))));
        // Without a session nothing is done for postponed buffers.
        for index in [3, 1900, 470] {
            returned::postpone(core::ptr::null_mut(), 0, index, 0);
        }
        returned::catch_up();
        let again: Vec<_> = std::iter::from_fn(take).map(|(_, buffer, _)| buffer).collect();
        assert_eq!(again, [taken[3], taken[470], taken[1900]]);
        (0..BUFFERS).for_each(give_back);
        assert!(FREE.iter().all(|free| free.load(Ordering::Relaxed) == u64::MAX));
    }
}
