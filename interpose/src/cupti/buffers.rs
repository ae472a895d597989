//! The buffers that CUPTI fills: a pool that is mapped as needed and used again and again.
//!
//! A buffer that CUPTI holds is never freed. When the pool is used up, CUPTI gets a buffer whose
//! contents are thrown away and counted: before CUDA 12.9 it crashes if it gets none.

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use gputrace_producer::{memory, session};
use gputrace_wire::counter::Counter;

use super::{guest, open, pace, postponed, records};

/// About 4 700 kernel records, a few milliseconds of the densest launching: small enough that
/// what a killed process takes with it is little. 256 KiB to 8 MiB made no measurable difference. CUPTI is told of
/// less where so many operations would take long.
const BUFFER_BYTES: usize = 1 << 20;
const LARGE: usize = 64;
/// CUPTI from 12.x on takes a buffer for every thread that launches (measured with 200 of them on 13.0). Threads beyond the
/// first get small ones, about 300 kernel records, of which a turn of the service thread brings back what is filled.
const SMALL_BYTES: usize = 1 << 16;
/// At least what any record takes.
const RECORD_BYTES: usize = 256;
/// No buffer is smaller than what CUPTI was seen to use (13.0, which uses 2 KiB too).
const LEAST_BYTES: usize = 8192;
/// So many are in use with few records each, and no more: of a long queue the rest gets what there is.
const FEW_MOST: u32 = 512;
/// In all: 64 MiB and 124 MiB of addresses at most, of which only what CUPTI wrote to is memory. What is beyond is counted.
pub const BUFFERS: usize = 2048;
const WORDS: usize = BUFFERS / 64;
/// The word of the first small ones.
const FIRST_SMALL: usize = LARGE / 64;

static FREE: [AtomicU64; WORDS] = [const { AtomicU64::new(u64::MAX) }; WORDS];
static POOL: [AtomicPtr<u8>; BUFFERS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; BUFFERS];
/// Buffers whose contents are thrown away, mapped beforehand; a page of them costs nothing until
/// it is written to. CUPTI completes records in place, so no two of its buffers may be one, but for
/// the last of these, which is given again and again where even they are used up.
const DISCARDS: usize = 16;
static DISCARD: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static DISCARDS_FREE: AtomicU64 = AtomicU64::new((1 << DISCARDS) - 1);

/// Maps what cannot be mapped in a callback when memory is short.
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

/// A buffer of the pool's and its size; large ones first.
fn take() -> Option<(*mut u8, usize)> {
    take_from(0)
}

fn take_from(word: usize) -> Option<(*mut u8, usize)> {
    FREE.iter().enumerate().skip(word).find_map(|(word, free)| take_of(word, free))
}

fn small_in_use() -> u32 {
    FREE.iter().skip(FIRST_SMALL).map(|free| free.load(Ordering::Relaxed).count_zeros()).sum()
}

/// A buffer for so many records, if that can be: what CUPTI is to be told of its size and of the most records, 0 for any.
fn take_for(most_records: usize) -> Option<(*mut u8, usize, usize)> {
    let bytes = most_records.saturating_mul(RECORD_BYTES);
    if bytes <= SMALL_BYTES
        && small_in_use() < FEW_MOST
        && let Some((buffer, _)) = take_from(FIRST_SMALL)
    {
        return Some((buffer, bytes.max(LEAST_BYTES), most_records));
    }
    let (buffer, size) = take()?;
    Some((buffer, if bytes > SMALL_BYTES { size.min(bytes) } else { size }, 0))
}

fn take_of(word: usize, free: &AtomicU64) -> Option<(*mut u8, usize)> {
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
            return Some((known, bytes_of(index)));
        }
        let new = memory::map_bytes(bytes_of(index));
        match new {
            Some(new) => slot.store(new, Ordering::Release),
            // There may be memory again later.
            None => give_back(index),
        }
        return Some((new?, bytes_of(index)));
    }
}

/// A buffer to be thrown away.
fn take_discard() -> *mut u8 {
    let taken = DISCARDS_FREE.fetch_update(Ordering::AcqRel, Ordering::Acquire, |free| {
        (free != 0).then_some(free & (free.wrapping_sub(1)))
    });
    let index = taken.map_or(DISCARDS - 1, |free| free.trailing_zeros() as usize);
    let first = DISCARD.load(Ordering::Acquire);
    if first.is_null() { first } else { first.wrapping_add(index * BUFFER_BYTES) }
}

/// Takes one back; false if the buffer is none of them.
fn give_back_discard(buffer: *mut u8) -> bool {
    let first = DISCARD.load(Ordering::Acquire);
    let offset = (buffer as usize).wrapping_sub(first as usize);
    if first.is_null() || offset >= DISCARDS * BUFFER_BYTES {
        return false;
    }
    DISCARDS_FREE.fetch_or(1 << (offset / BUFFER_BYTES), Ordering::AcqRel);
    true
}

/// The places of the buffers that are in use.
pub fn in_use() -> impl Iterator<Item = usize> {
    FREE.iter().enumerate().flat_map(|(word, free)| {
        let free = free.load(Ordering::Relaxed);
        (0..64).filter(move |bit| free & 1 << bit == 0).map(move |bit| word * 64 + bit)
    })
}

/// The place of a buffer in the pool.
fn index_of(buffer: *mut u8) -> Option<usize> {
    POOL.iter().position(|slot| slot.load(Ordering::Acquire) == buffer)
}

/// The buffer at a place of the pool.
pub fn at(index: usize) -> Option<*mut u8> {
    POOL.get(index).map(|slot| slot.load(Ordering::Acquire)).filter(|buffer| !buffer.is_null())
}

/// Nobody needs what is in it any more, in its first so many bytes. Who reads along next must not find it.
///
/// # Safety
/// CUPTI gave the buffer back, and nobody reads it.
pub unsafe fn clear(index: usize, used_bytes: usize) {
    if let Some(buffer) = at(index) {
        // SAFETY: the caller's word; no more than the buffer has.
        unsafe { buffer.write_bytes(0, used_bytes.min(bytes_of(index))) };
    }
    give_back(index);
}

fn give_back(index: usize) {
    if let Some(free) = FREE.get(index / 64) {
        free.fetch_or(1 << (index % 64), Ordering::AcqRel);
    }
}

/// CUPTI wants a buffer.
pub unsafe extern "C" fn requested(buffer: *mut *mut u8, bytes: *mut usize, most_records: *mut usize) {
    let (given, size, most) =
        take_for(pace::most_records()).unwrap_or_else(|| (take_discard(), BUFFER_BYTES, 0));
    if let (Some(index), Some(session)) = (index_of(given), session::current()) {
        open::give(index, session.generation, size);
    }
    // SAFETY: CUPTI's own out parameters.
    unsafe {
        buffer.write(given);
        bytes.write(size);
        most_records.write(most);
    }
}

/// CUPTI gives a buffer back with records in it.
pub unsafe extern "C" fn completed(
    context: *mut cupti_sys::driver::CUctx_st,
    stream: u32,
    buffer: *mut u8,
    _: usize,
    valid_bytes: usize,
) {
    if give_back_discard(buffer) {
        if let Some(session) = session::current() {
            session.count(Counter::BuffersExhausted, 1);
        }
        return;
    }
    let Some(index) = index_of(buffer) else { return };
    let context = context.cast::<c_void>();
    // SAFETY: CUPTI says that so many bytes of the buffer are records; it is put by, or given back, after this.
    let is_done = unsafe {
        guest::deliver(buffer, valid_bytes);
        open::take_back(index) && records::deliver(context, stream, buffer, valid_bytes, open::told(index))
    };
    if is_done {
        // SAFETY: it came back, and was told.
        unsafe { clear(index, valid_bytes) };
    } else {
        postponed::put_by(context, stream, index, valid_bytes);
    }
    postponed::catch_up();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_and_run_out() {
        assert!(prepare());
        let all: Vec<_> = (0..BUFFERS).map(|_| take().unwrap()).collect();
        assert!(all[..LARGE].iter().all(|(_, bytes)| *bytes == BUFFER_BYTES));
        assert!(all[LARGE..].iter().all(|(_, bytes)| *bytes == SMALL_BYTES));
        let taken: Vec<_> = all.into_iter().map(|(buffer, _)| buffer).collect();
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
        assert_eq!((index_of(taken[70]), at(70)), (Some(70), Some(taken[70])));
        give_back(70);
        assert_eq!(take(), Some((taken[70], SMALL_BYTES)));
        // Without a session nothing is to be done for those that were put by.
        for index in [3, 1900, 70] {
            postponed::put_by(core::ptr::null_mut(), 0, index, 0);
        }
        postponed::catch_up();
        let again: Vec<_> = std::iter::from_fn(take).map(|(buffer, _)| buffer).collect();
        assert_eq!(again, [taken[3], taken[70], taken[1900]]);
        (0..BUFFERS).for_each(give_back);
        sizes_are_by_the_records_that_are_wanted();
        assert!(FREE.iter().all(|free| free.load(Ordering::Relaxed) == u64::MAX));
    }

    /// A part of the test above: both use the one pool.
    fn sizes_are_by_the_records_that_are_wanted() {
        let sizes = |most| {
            let (buffer, bytes, records) = take_for(most).unwrap();
            let index = index_of(buffer).unwrap();
            give_back(index);
            (index >= LARGE, bytes, records)
        };
        assert_eq!(sizes(1), (true, LEAST_BYTES, 1));
        assert_eq!(sizes(50), (true, 50 * RECORD_BYTES, 50));
        assert_eq!(sizes(256), (true, SMALL_BYTES, 256));
        assert_eq!(sizes(1000), (false, 1000 * RECORD_BYTES, 0));
        assert_eq!(sizes(usize::MAX), (false, BUFFER_BYTES, 0));
        let few: Vec<_> = (0..FEW_MOST).map(|_| take_for(1).unwrap().0).collect();
        assert_eq!(sizes(1), (false, BUFFER_BYTES, 0), "a long queue");
        few.into_iter().filter_map(index_of).for_each(give_back);
    }
}
