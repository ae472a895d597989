//! Hides our own driver calls from the guest: it gets no callback for them, and their records of kind
//! DRIVER are removed from its records.
//!
//! If a guest has that kind on, each of our calls stores its thread and times here, and a record with the
//! same thread and times is ours. This costs such a program two readings of CUPTI's clock for each call;
//! we make one call a kernel or a context.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use cupti_sys::cupti::CUpti_ActivityKind;

use crate::cupti::kinds::{self, Requester};
use crate::cupti::root;
use gputrace_producer::system;

const DRIVER: u32 = CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_DRIVER.0;
/// Number of remembered calls. Records are delivered many times a second.
const CALLS: usize = 1024;

struct Call {
    /// The two ids that CUPTI may use for a thread: its id, and half of its `pthread_t`.
    thread: AtomicU64,
    begun_ns: AtomicU64,
    /// The maximum while the call is under way.
    ended_ns: AtomicU64,
}

static CALL: [Call; CALLS] =
    [const { Call { thread: AtomicU64::new(0), begun_ns: AtomicU64::new(0), ended_ns: AtomicU64::new(0) } };
        CALLS];
static COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static IS_UNDER_WAY: Cell<bool> = const { Cell::new(false) };
}

/// Whether the driver call under way on this thread is ours.
pub fn is_under_way() -> bool {
    IS_UNDER_WAY.get()
}

/// Runs a driver call of ours.
pub fn hide(call: &mut dyn FnMut()) {
    let remembered = if kinds::is_requested(Requester::Guest, DRIVER) { remember() } else { None };
    let was_under_way = IS_UNDER_WAY.replace(true);
    call();
    IS_UNDER_WAY.set(was_under_way);
    if let (Some(call), Some(root)) = (remembered, root::current()) {
        call.ended_ns.store(root.now_ns(), Ordering::Release);
    }
}

#[cold]
fn remember() -> Option<&'static Call> {
    let call = CALL.get(COUNT.fetch_add(1, Ordering::AcqRel) % CALLS)?;
    let begun_ns = root::current()?.now_ns();
    // SAFETY: pthread_self has no preconditions.
    let (tid, pthread) = (system::gettid().cast_unsigned(), unsafe { libc::pthread_self() } as u32);
    // No record matches the slot while its fields change.
    call.ended_ns.store(0, Ordering::Release);
    call.thread.store(u64::from(tid) << 32 | u64::from(pthread), Ordering::Release);
    call.begun_ns.store(begun_ns, Ordering::Release);
    call.ended_ns.store(u64::MAX, Ordering::Release);
    Some(call)
}

/// Whether a call of that thread with these times was ours.
fn made(thread: u32, start_ns: u64, end_ns: u64) -> bool {
    let count = COUNT.load(Ordering::Acquire).min(CALLS);
    CALL.iter().take(count).any(|call| {
        let threads = call.thread.load(Ordering::Acquire);
        (threads as u32 == thread || (threads >> 32) as u32 == thread)
            && call.begun_ns.load(Ordering::Acquire) <= start_ns
            && end_ns <= call.ended_ns.load(Ordering::Acquire)
    })
}

/// Whether the record is of a driver call that we made.
pub fn is_of_one(record: &[u8]) -> bool {
    let Some(kind) = record.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes)) else { return false };
    if kind != DRIVER || COUNT.load(Ordering::Acquire) == 0 {
        return false;
    }
    let long = |at: usize| Some(u64::from_ne_bytes(record.get(at..at + 8)?.try_into().ok()?));
    // CUpti_ActivityAPI: start, end, then process and thread.
    let (Some(start_ns), Some(end_ns), Some(threads)) = (long(8), long(16), long(24)) else { return false };
    made((threads >> 32) as u32, start_ns, end_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, start_ns: u64, end_ns: u64, thread: u32) -> Vec<u8> {
        let mut record = [kind.to_ne_bytes(), 307u32.to_ne_bytes()].concat();
        record.extend([start_ns, end_ns, u64::from(thread) << 32 | 4242].map(u64::to_ne_bytes).concat());
        record
    }

    #[test]
    fn record_is_ours_by_thread_and_time() {
        assert!(!is_of_one(&record(DRIVER, 100, 200, 7)), "none was made");
        CALL[0].thread.store(7 << 32 | 9, Ordering::Release);
        CALL[0].begun_ns.store(90, Ordering::Release);
        CALL[0].ended_ns.store(210, Ordering::Release);
        COUNT.store(1, Ordering::Release);
        assert!(is_of_one(&record(DRIVER, 100, 200, 7)) && is_of_one(&record(DRIVER, 90, 210, 9)));
        assert!(!is_of_one(&record(DRIVER, 100, 200, 8)), "another thread's");
        assert!(!is_of_one(&record(DRIVER, 80, 200, 7)) && !is_of_one(&record(DRIVER, 100, 220, 7)));
        assert!(!is_of_one(&record(5, 100, 200, 7)), "another kind");
        assert!(!is_of_one(&record(DRIVER, 100, 200, 7)[..20]), "cut short");
    }
}
