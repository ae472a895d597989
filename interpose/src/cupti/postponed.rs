//! Full buffers that could not be turned into events at once.
//!
//! A thread to which CUPTI hands a buffer in the middle of a hook may not write to its own ring, and the ring for records may be
//! another's just then. Nobody waits inside CUPTI: the buffer is put by, and whoever holds the ring, or comes next, does it too.

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use super::buffers::{self, BUFFERS};
use super::{open, records};

/// The latest one, by its place in the pool, from 1 on; 0 where there is none.
static LATEST: AtomicU32 = AtomicU32::new(0);
/// What is known of a buffer that was put by; its holder's alone until it is in the list, and again once it is out.
struct Held {
    before: AtomicU32,
    context: AtomicPtr<c_void>,
    stream: AtomicU32,
    valid_bytes: AtomicUsize,
}
static HELD: [Held; BUFFERS] = [const {
    Held {
        before: AtomicU32::new(0),
        context: AtomicPtr::new(core::ptr::null_mut()),
        stream: AtomicU32::new(0),
        valid_bytes: AtomicUsize::new(0),
    }
}; BUFFERS];

/// Puts a buffer of the pool's by.
pub fn put_by(context: *mut c_void, stream: u32, index: usize, valid_bytes: usize) {
    let Some(held) = HELD.get(index) else { return };
    held.context.store(context, Ordering::Relaxed);
    held.stream.store(stream, Ordering::Relaxed);
    held.valid_bytes.store(valid_bytes, Ordering::Relaxed);
    let mut latest = LATEST.load(Ordering::Relaxed);
    loop {
        held.before.store(latest, Ordering::Relaxed);
        // SYNC: Release makes the fields above seen by who takes the list. Lists are taken whole, so a place that comes
        // back meanwhile does no harm.
        match LATEST.compare_exchange_weak(latest, index as u32 + 1, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => latest = now,
        }
    }
}

/// Does what was put by, as far as it can be done now. To be called after every delivery and every [`put_by`]: between the
/// two, either the one who held the ring sees the list, or the one who put by finds the ring free.
pub fn catch_up() {
    while LATEST.load(Ordering::SeqCst) != 0 {
        // SYNC: pairs with the exchange in `put_by`.
        let mut next = LATEST.swap(0, Ordering::SeqCst);
        let (mut is_stuck, mut is_read) = (false, false);
        while let Some(index) = (next as usize).checked_sub(1) {
            let (Some(held), Some(buffer)) = (HELD.get(index), buffers::at(index)) else { return };
            next = held.before.load(Ordering::Relaxed);
            let context = held.context.load(Ordering::Relaxed);
            let (stream, valid_bytes) =
                (held.stream.load(Ordering::Relaxed), held.valid_bytes.load(Ordering::Relaxed));
            let deliver = || {
                let told = open::told(index);
                // SAFETY: CUPTI handed the buffer over with so many valid bytes, and nobody has given it back since.
                unsafe { records::deliver(context, stream, buffer, valid_bytes, told) }
            };
            is_read |= !open::is_ours(index);
            if !is_stuck && !is_read && deliver() {
                // SAFETY: the same, and it was told.
                unsafe { buffers::clear(index, valid_bytes) };
            } else {
                is_stuck = true;
                put_by(context, stream, index, valid_bytes);
            }
        }
        // Whoever holds the ring looks here when it is done, but may have done so before we put it by again. Who reads one
        // along looks here in any case.
        if is_read || is_stuck && !records::ring_is_free() {
            return;
        }
    }
}
