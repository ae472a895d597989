//! A session after an exec that failed: the program is still there, and so is its session again.
//!
//! Nothing can be done after an exec that succeeds, so the session ends before every one that may
//! (see [`crate::search_path`] for those that may not). Whether it failed all the same (no format
//! that the kernel knows, arguments too long, a file that is being written) shows when the program
//! goes on: at the next hooked call of the thread that called exec, or of any other thread a while
//! later. That call begins a session anew. What other threads call in between is counted as lost.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use gputrace_producer::session::{self, Session};
use gputrace_producer::{clock, early_calls, service, stderr, thread};

use crate::{detour, finish, start};

/// How long an exec may take that will succeed; the kernel's part is milliseconds.
const WHILE_NS: u64 = 1_000_000_000;
/// How long the last session's service thread may take to end.
const HELD_MOST_NS: u64 = 10_000_000_000;
/// Each time costs a session's memory, which is never given back.
const TIMES_MOST: u32 = 16;

/// Who ended the session for an exec, process and thread; 0 while nobody did. The process alone while
/// a thread begins the next one.
static ENDED_BY: AtomicU64 = AtomicU64::new(0);
static ENDED_AT_NS: AtomicU64 = AtomicU64::new(0);
/// The end is under way: whoever calls meanwhile is counted, and nobody begins anything.
const NOT_YET: u64 = u64::MAX;
static TIMES: AtomicU32 = AtomicU32::new(0);

/// The calling thread ends the session, to become another program.
pub fn comes() {
    let us = finish::us();
    ENDED_AT_NS.store(NOT_YET, Ordering::Relaxed);
    // SYNC: pairs with the Acquire load in `begin_again`; the time comes before it.
    ENDED_BY.store(us, Ordering::Release);
}

/// The session has ended; what follows is the exec.
pub fn is_next() {
    ENDED_AT_NS.store(clock::monotonic_ns(), Ordering::Release);
}

/// The session that a call finds where there was none, if an exec failed.
#[inline(always)]
pub fn session() -> Option<&'static Session> {
    if ENDED_BY.load(Ordering::Relaxed) == 0 { None } else { begin_again() }
}

#[cold]
fn begin_again() -> Option<&'static Session> {
    let (by, us) = (ENDED_BY.load(Ordering::Acquire), finish::us());
    // A forked child has its parent's word.
    if by >> 32 != us >> 32 {
        return None;
    }
    // Another thread begins the next session, and who finds none counts its call.
    if by as u32 == 0 {
        return None;
    }
    let ended_at_ns = ENDED_AT_NS.load(Ordering::Acquire);
    let waited_ns = clock::monotonic_ns().saturating_sub(ended_at_ns);
    // A service thread that the vendor's library still holds would be taken for the next one.
    let is_held = !service::is_quiet();
    if is_held && waited_ns > HELD_MOST_NS {
        if ENDED_BY.compare_exchange(by, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            stderr::line(&[b"an exec failed, and CUPTI does not let go: nothing is recorded from here on"]);
        }
        return None;
    }
    if ended_at_ns == NOT_YET || is_held || (by != us && waited_ns < WHILE_NS) {
        early_calls::count();
        return None;
    }
    thread::with(|slot| {
        let _inside = slot.enter()?;
        let Some(claim) = session::claim_again() else {
            early_calls::count();
            return None;
        };
        // Nobody else writes it now: there is no session that an exec could end.
        let begins = us >> 32 << 32;
        ENDED_BY.store(begins, Ordering::Release);
        let had_service = service::has_stopped();
        if TIMES.fetch_add(1, Ordering::Relaxed) >= TIMES_MOST {
            session::turn_off();
            stderr::line(&[b"too many execs failed: nothing is recorded from here on"]);
        } else {
            detour::run(|| start::begin(claim));
        }
        // Another thread that execs by now has ended the new session, and its word stays.
        let _ = ENDED_BY.compare_exchange(begins, 0, Ordering::Release, Ordering::Relaxed);
        let session = session::current()?;
        session.notice(1, 0, b"an exec failed: the program goes on, in a session of its own");
        // Where there was no context yet, the first one starts it.
        if had_service {
            service::start(session, start::turn);
        }
        Some(session)
    })
}
