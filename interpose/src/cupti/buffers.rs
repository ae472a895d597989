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
static DISCARD: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());

/// Maps what cannot be mapped in a callback when memory is short.
pub fn prepare() -> bool {
    if DISCARD.load(Ordering::Acquire).is_null()
        && let Some(discard) = memory::map_bytes(BUFFER_BYTES)
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

fn give_back(buffer: *mut u8) {
    if let Some(index) = POOL.iter().position(|slot| slot.load(Ordering::Acquire) == buffer) {
        FREE.fetch_or(1 << index, Ordering::AcqRel);
    }
}

/// CUPTI wants a buffer.
pub unsafe extern "C" fn requested(buffer: *mut *mut u8, bytes: *mut usize, most_records: *mut usize) {
    let given = take().unwrap_or_else(|| DISCARD.load(Ordering::Acquire));
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
    if buffer == DISCARD.load(Ordering::Acquire) {
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
