//! Buffers that CUPTI returned: converted into events at once, or postponed.
//!
//! CUPTI may hand a buffer to a thread in the middle of a hook. That thread may not write to its own ring,
//! and another thread may hold the ring for records. No thread waits inside CUPTI: the buffer is put on a
//! list, and the holder of the ring, or the next delivery, processes it.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use cupti_sys::cupti::CUptiResult;
use gputrace_producer::clock;
use gputrace_producer::session::{self, Session};
use gputrace_wire::counter::Counter;

use super::buffers::{self, BUFFERS};
use super::root::{Reader, Root};
use super::{guest, open, records};
use crate::hook::held_calls;

/// Head of the list: a buffer's index in the pool plus 1; 0 if the list is empty.
static LATEST: AtomicU32 = AtomicU32::new(0);
/// State of a postponed buffer. Only its holder accesses it before it is in the list and after it is out.
struct Postponed {
    before: AtomicU32,
    context: AtomicPtr<c_void>,
    stream: AtomicU32,
    valid_bytes: AtomicUsize,
}
static POSTPONED: [Postponed; BUFFERS] = [const {
    Postponed {
        before: AtomicU32::new(0),
        context: AtomicPtr::new(core::ptr::null_mut()),
        stream: AtomicU32::new(0),
        valid_bytes: AtomicUsize::new(0),
    }
}; BUFFERS];

/// Whether buffers are put on the list as they come back, for later.
static POSTPONES: AtomicBool = AtomicBool::new(false);

/// For how many turns, of 50 ms, a record waits for a flush at most, where a flush takes little. It may be
/// read one turn later ([`open`]).
const LATE_TURNS: u32 = 2;
/// The longest flush that puts off the next one by twenty times as long.
const TOOK_MOST_NS: u64 = 5_000_000;
/// Whether a buffer has come back without a flush since the last turn of the service thread.
static HAS_COME: AtomicBool = AtomicBool::new(false);
/// The turn of the last flush, when it ended by the monotonic clock, and how long CUPTI took for it.
static FLUSHED_IN: AtomicU32 = AtomicU32::new(0);
static ENDED_NS: AtomicU64 = AtomicU64::new(0);
static TOOK_NS: AtomicU64 = AtomicU64::new(0);

/// Whether this turn of the service thread is to flush. To be asked once a turn.
pub fn is_flush_due(turn: u32) -> bool {
    let with_cupti = buffers::in_use().filter(|index| !open::is_ours(*index));
    let ages = with_cupti.map(|index| turn.wrapping_sub(open::given_in(index)));
    let since_flush = turn.wrapping_sub(FLUSHED_IN.load(Ordering::Relaxed));
    is_due(
        HAS_COME.swap(false, Ordering::Relaxed),
        ages.max().unwrap_or(0).min(since_flush),
        clock::monotonic_ns().saturating_sub(ENDED_NS.load(Ordering::Relaxed)),
        TOOK_NS.load(Ordering::Relaxed),
    )
}

/// Each flush holds the program's calls, and CUPTI takes longer for the same number of records the more it
/// has delivered, without gputrace too (docs/OVERHEAD.md). So flushes are left out while buffers come back by
/// themselves, and until the last one is a two-hundredth of the time. Where records have waited for
/// [`LATE_TURNS`], in a buffer that fills slowly, it may be a twentieth. A flush that takes longer than
/// 5 ms puts off the next one no more than one of 5 ms does: records are not to come later for it.
///
/// - `has_come`: whether a buffer came back by itself since the last turn;
/// - `waiting`: the most turns for which a record may have waited;
/// - `since_ns`, `took_ns`: the time since the last flush, and how long CUPTI took for it. That does not
///   contain the wait for a moment when no call is under way.
fn is_due(has_come: bool, waiting: u32, since_ns: u64, took_ns: u64) -> bool {
    let is_share_below = |parts: u64| since_ns >= took_ns.saturating_mul(parts);
    !has_come && is_share_below(200) || waiting >= LATE_TURNS && since_ns >= took_ns.min(TOOK_MOST_NS) * 20
}

/// Flushes CUPTI when no call of the driver's is under way ([`held_calls`]). With `must` the flush is never
/// put off, but waits up to 40 ms for such a moment. Without it, buffers that come back during the flush are
/// converted after it, so that calls are held only briefly; another client gets its records at once.
pub fn flush(session: &Session, root: &Root, flag: u32, must: bool) {
    held_calls::flush_with(session, must, || {
        POSTPONES.store(!must, Ordering::SeqCst);
        let begun_ns = clock::monotonic_ns();
        root.flush(flag);
        let ended_ns = clock::monotonic_ns();
        // SYNC: SeqCst: whoever has put a buffer on the list sees this, or `catch_up` sees the buffer.
        POSTPONES.store(false, Ordering::SeqCst);
        ENDED_NS.store(ended_ns, Ordering::Relaxed);
        TOOK_NS.store(ended_ns.saturating_sub(begun_ns), Ordering::Relaxed);
        FLUSHED_IN.store(open::latest_turn(), Ordering::Relaxed);
    });
    // Without it CUPTI's names of kernels might be unmapped meanwhile.
    if let Some(_reader) = Reader::new() {
        catch_up();
    }
}

/// Registers our buffer callbacks, if nobody did.
pub fn register_buffers(root: &Root) -> CUptiResult {
    if !buffers::prepare() {
        return CUptiResult::CUPTI_ERROR_OUT_OF_MEMORY;
    }
    root.register_buffers(Some(buffers::requested), Some(completed))
}

/// CUPTI gives a buffer back with records in it.
unsafe extern "C" fn completed(
    context: *mut cupti_sys::driver::CUctx_st,
    stream: u32,
    buffer: *mut u8,
    _: usize,
    valid_bytes: usize,
) {
    if buffers::give_back_discard(buffer) {
        if let Some(session) = session::current() {
            session.count(Counter::BuffersExhausted, 1);
        }
        return;
    }
    let Some(index) = buffers::index_of(buffer) else { return };
    let context = context.cast::<c_void>();
    let is_ours = open::take_back(index);
    // SAFETY: CUPTI states that so many bytes are records; the buffer is postponed or cleared only later.
    unsafe { guest::deliver(buffer, valid_bytes) };
    // SAFETY: the same, and the early reader is done with the buffer.
    let is_done = is_ours
        && !POSTPONES.load(Ordering::SeqCst)
        && unsafe { records::deliver(context, stream, buffer, valid_bytes, open::consumed(index)) };
    if is_done {
        // SAFETY: CUPTI gave the buffer back, and its records are consumed.
        unsafe { buffers::clear(index, valid_bytes) };
    } else {
        postpone(context, stream, index, valid_bytes);
    }
    if !POSTPONES.load(Ordering::SeqCst) {
        HAS_COME.store(true, Ordering::Relaxed);
        catch_up();
    }
}

/// Puts a buffer of the pool on the list.
pub(super) fn postpone(context: *mut c_void, stream: u32, index: usize, valid_bytes: usize) {
    let Some(postponed) = POSTPONED.get(index) else { return };
    postponed.context.store(context, Ordering::Relaxed);
    postponed.stream.store(stream, Ordering::Relaxed);
    postponed.valid_bytes.store(valid_bytes, Ordering::Relaxed);
    let mut latest = LATEST.load(Ordering::Relaxed);
    loop {
        postponed.before.store(latest, Ordering::Relaxed);
        // SYNC: Release: whoever takes the list sees the fields above. Lists are taken whole, so a buffer
        // that comes back meanwhile does no harm (no ABA).
        match LATEST.compare_exchange_weak(latest, index as u32 + 1, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => latest = now,
        }
    }
}

/// Processes postponed buffers as far as possible now. To be called after every delivery and every
/// [`postpone`]: then either the holder of the ring sees the list, or the caller of `postpone` finds the ring
/// free.
pub fn catch_up() {
    while LATEST.load(Ordering::SeqCst) != 0 {
        // SYNC: pairs with the exchange in `postpone`.
        let mut next = LATEST.swap(0, Ordering::SeqCst);
        let (mut is_stuck, mut is_read) = (false, false);
        while let Some(index) = (next as usize).checked_sub(1) {
            let (Some(postponed), Some(buffer)) = (POSTPONED.get(index), buffers::at(index)) else { return };
            next = postponed.before.load(Ordering::Relaxed);
            let context = postponed.context.load(Ordering::Relaxed);
            let (stream, valid_bytes) =
                (postponed.stream.load(Ordering::Relaxed), postponed.valid_bytes.load(Ordering::Relaxed));
            let deliver = || {
                let consumed = open::consumed(index);
                // SAFETY: CUPTI handed the buffer over with so many valid bytes; nobody has given it back.
                unsafe { records::deliver(context, stream, buffer, valid_bytes, consumed) }
            };
            is_read |= !open::is_ours(index);
            if !is_stuck && !is_read && deliver() {
                // SAFETY: the same, and its records are consumed.
                unsafe { buffers::clear(index, valid_bytes) };
            } else {
                is_stuck = true;
                postpone(context, stream, index, valid_bytes);
            }
        }
        // The holder of the ring checks the list when it is done, but it may have done so before the buffer
        // was put back on the list. An early reader always checks the list afterwards.
        if is_read || is_stuck && !records::ring_is_free() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushes_are_rarer_the_longer_they_take() {
        let ms = |ms: u64| ms * 1_000_000;
        for (has_come, waiting, since_ms, took_ns, wanted) in [
            // At each turn of 50 ms as long as one takes a quarter of a millisecond.
            (false, 1, 50, 250_000, true),
            (false, 1, 50, 251_000, false),
            (false, 2, 100, 500_000, true),
            // Not where buffers come back by themselves,
            (true, 1, 50, 0, false),
            // unless another one has been open for long.
            (true, 2, 100, ms(4), true),
            (false, 2, 99, ms(5), false),
            // A flush that stood still for long puts off the next one no more.
            (false, 2, 100, ms(2_000), true),
            (false, 1, 100, ms(2_000), false),
        ] {
            let due = is_due(has_come, waiting, ms(since_ms), took_ns);
            assert_eq!(due, wanted, "{has_come} {waiting} {since_ms} ms, {took_ns} ns");
        }
    }
}
