//! The buffers that CUPTI fills: a pool that is mapped as needed and used again and again.
//!
//! A buffer that CUPTI holds is never freed. When the pool is used up, CUPTI gets a buffer whose
//! contents are thrown away and counted: before CUDA 12.9 it crashes if it gets none.

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use gputrace_producer::{memory, session};
use gputrace_wire::counter::Counter;

use super::{guest, records};

/// About 4 700 kernel records, a few milliseconds of the densest launching: small enough that
/// what a killed process takes with it is little. 256 KiB to 8 MiB made no measurable difference.
const BUFFER_BYTES: usize = 1 << 20;
/// 64 MiB at most, bits of one word. CUPTI takes one or two a context; should it be told to take
/// one a thread, more than so many launching threads find none left, which is counted.
const BUFFERS: usize = 64;

static FREE: AtomicU64 = AtomicU64::new(u64::MAX);
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

fn take() -> Option<*mut u8> {
    loop {
        let free = FREE.load(Ordering::Acquire);
        if free == 0 {
            return None;
        }
        let index = free.trailing_zeros() as usize;
        if FREE.compare_exchange(free, free & !(1 << index), Ordering::AcqRel, Ordering::Acquire).is_err() {
            continue;
        }
        let slot = POOL.get(index)?;
        let known = slot.load(Ordering::Acquire);
        if !known.is_null() {
            return Some(known);
        }
        let new = memory::map_bytes(BUFFER_BYTES);
        match new {
            Some(new) => slot.store(new, Ordering::Release),
            // There may be memory again later.
            None => {
                FREE.fetch_or(1 << index, Ordering::AcqRel);
            }
        }
        return new;
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

fn give_back(buffer: *mut u8) {
    if let Some(index) = POOL.iter().position(|slot| slot.load(Ordering::Acquire) == buffer) {
        FREE.fetch_or(1 << index, Ordering::AcqRel);
    }
}

/// CUPTI wants a buffer.
pub unsafe extern "C" fn requested(buffer: *mut *mut u8, bytes: *mut usize, most_records: *mut usize) {
    let given = take().unwrap_or_else(take_discard);
    // SAFETY: CUPTI's own out parameters.
    unsafe {
        buffer.write(given);
        bytes.write(BUFFER_BYTES);
        most_records.write(0);
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
    // SAFETY: CUPTI says that so many bytes of the buffer are records.
    unsafe {
        records::deliver(context.cast::<c_void>(), stream, buffer, valid_bytes);
        guest::deliver(buffer, valid_bytes);
    }
    give_back(buffer);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_and_run_out() {
        assert!(prepare());
        let taken: Vec<_> = (0..BUFFERS).map(|_| take().unwrap()).collect();
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
        give_back(taken[3]);
        assert_eq!(take(), Some(taken[3]));
        taken.into_iter().for_each(give_back);
        assert_eq!(FREE.load(Ordering::Relaxed), u64::MAX);
    }
}
