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

/// Once CUPTI has had a buffer for this many turns of 50 ms, a flush is allowed even while other buffers come
/// back by themselves. The limit of [`PARTS`] still applies.
const LATE_TURNS: u32 = 2;
/// After a flush, at least this many times the expected duration of one passes before the next, so that
/// flushes are at most a two-hundredth of the time in the long run.
const PARTS: u64 = 200;
/// After a slower flush, the expected duration becomes at most twice the former one plus this.
const MORE_NS: u64 = 500_000;
/// After a faster flush, it falls by the difference divided by this.
const FALLS_BY: u64 = 4;
/// Whether a buffer has come back since the last turn of the service thread. Those that come back during a
/// flush without `must` do not count.
static HAS_COME: AtomicBool = AtomicBool::new(false);
/// When the last flush ended, by the monotonic clock, and how long CUPTI is expected to take for one.
static ENDED_NS: AtomicU64 = AtomicU64::new(0);
static EXPECTED_NS: AtomicU64 = AtomicU64::new(0);

/// Whether this turn of the service thread is to flush. To be asked once a turn.
pub fn is_flush_due(turn: u32) -> bool {
    let with_cupti = buffers::in_use().filter(|index| !open::is_ours(*index));
    let ages = with_cupti.map(|index| turn.wrapping_sub(open::given_in(index)));
    is_due(
        HAS_COME.swap(false, Ordering::Relaxed),
        ages.max().unwrap_or(0),
        clock::monotonic_ns().saturating_sub(ENDED_NS.load(Ordering::Relaxed)),
        EXPECTED_NS.load(Ordering::Relaxed),
    )
}

/// The program's calls wait during a flush. With CUPTI 12.9 and 13.0 each record takes longer the longer the
/// process has run, with or without gputrace (docs/OVERHEAD.md). So the share of time that flushes take is
/// limited, even if records come late then. No call waits for a buffer that comes back by itself. While that
/// happens there is no flush, unless CUPTI has had some buffer for [`LATE_TURNS`].
///
/// - `has_come`: whether a buffer came back by itself since the last turn;
/// - `age`: for how many turns CUPTI has had the oldest buffer;
/// - `since_ns`, `expected_ns`: the time since the last flush, and how long one takes. That does not contain
///   the wait for a moment when no call is under way.
fn is_due(has_come: bool, age: u32, since_ns: u64, expected_ns: u64) -> bool {
    (!has_come || age >= LATE_TURNS) && since_ns >= expected_ns.saturating_mul(PARTS)
}

/// How long a flush is expected to take after one that took `took_ns`. A single outlier changes that only in
/// part: a flush may be slow only as its process was stopped, and fast only as there were no records.
fn expected(before_ns: u64, took_ns: u64) -> u64 {
    let most = before_ns.saturating_mul(2).saturating_add(MORE_NS);
    if took_ns > before_ns { took_ns.min(most) } else { before_ns - (before_ns - took_ns) / FALLS_BY }
}

/// Flushes CUPTI, if possible when no call of the driver's is under way ([`held_calls`]). With `must` it
/// waits at most 40 ms for such a moment, and then flushes anyway. Without, it may leave the flush out; after
/// three in a row that were left out, one waits as with `must`.
///
/// Without `must`, our buffers that come back during the flush are converted after it, so that calls are held
/// only briefly. Another client of CUPTI gets its records during the flush in both cases.
pub fn flush(session: &Session, root: &Root, flag: u32, must: bool) {
    held_calls::flush_with(session, must, || {
        POSTPONES.store(!must, Ordering::SeqCst);
        let begun_ns = clock::monotonic_ns();
        root.flush(flag);
        let ended_ns = clock::monotonic_ns();
        // SYNC: SeqCst: a thread that has just put a buffer on the list sees `false` and processes the list
        // itself, or the `catch_up` below sees the buffer.
        POSTPONES.store(false, Ordering::SeqCst);
        ENDED_NS.store(ended_ns, Ordering::Relaxed);
        let before_ns = EXPECTED_NS.load(Ordering::Relaxed);
        EXPECTED_NS.store(expected(before_ns, ended_ns.saturating_sub(begun_ns)), Ordering::Relaxed);
    });
    // The reader keeps CUPTI mapped: records point to names of kernels in its memory.
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
        for (has_come, age, since_ms, expected_ns, wanted) in [
            // At each turn of 50 ms as long as one takes a quarter of a millisecond.
            (false, 1, 50, 250_000, true),
            (false, 1, 50, 251_000, false),
            (false, 9, 999, ms(5), false),
            (false, 9, 1_000, ms(5), true),
            // Not where buffers come back by themselves,
            (true, 1, 50, 0, false),
            // unless another one has been open for long.
            (true, 2, 100, 500_000, true),
            (true, 2, 99, 500_000, false),
        ] {
            let due = is_due(has_come, age, ms(since_ms), expected_ns);
            assert_eq!(due, wanted, "{has_come} {age} {since_ms} ms, {expected_ns} ns");
        }
    }

    #[test]
    fn stalled_flush_at_most_doubles_the_wait_for_the_next_one() {
        for before_ns in [0, 100_000, 700_000, 9_800_000] {
            assert_eq!(expected(before_ns, 5_000_000_000), before_ns * 2 + MORE_NS);
        }
        let grown = (0..20).fold(0, |before_ns, _| expected(before_ns, 30_000_000));
        assert_eq!((grown, expected(grown, 10_000_000)), (30_000_000, 25_000_000));
    }

    /// Steady, and by turns with flushes that find nothing. One in ten that stands still may take more.
    #[test]
    fn flushes_are_a_two_hundredth_of_the_time_in_the_long_run() {
        let stalls = [1, 1, 1, 1, 1, 1, 1, 1, 1, 40];
        for (took_ms, parts) in [(&[30][..], 199), (&[30, 0], 199), (&[30, 0, 0], 199), (&stalls, 60)] {
            let (mut expected_ns, mut flushed_ns, mut all_ns) = (0, 0, 0);
            for took_ms in took_ms.iter().cycle().take(6_000) {
                let took_ns = took_ms * 1_000_000;
                let wait_ns = (expected_ns * PARTS).max(50_000_000);
                (flushed_ns, all_ns) = (flushed_ns + took_ns, all_ns + wait_ns + took_ns);
                expected_ns = expected(expected_ns, took_ns);
            }
            assert!(flushed_ns * parts < all_ns, "{took_ms:?}: {flushed_ns} of {all_ns} ns");
        }
    }
}
