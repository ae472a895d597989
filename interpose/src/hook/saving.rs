//! What is recorded of launches outside of windows of device times, where a budget allows no more than a
//! part: either all but the stack, or only how many there were
//! ([`Launches`](gputrace_producer::hook_state::Launches)).
//!
//! The service thread writes the counts from time to time, and at the session's end ([`write_counts`]).

use core::sync::atomic::{AtomicU64, Ordering};

use gputrace_producer::clock;
use gputrace_producer::hook_state::Recording;
use gputrace_producer::session::Session;
use gputrace_producer::thread;
use gputrace_wire::cell::flag;
use gputrace_wire::counted::Counted;

use crate::hook::pause::At;
use crate::symbols::driver::{SUCCESS, Status};
use crate::table::tables;

/// `UNSTACKED` if the launch is to be recorded without its stack. 0, so with its stack, if it failed, was
/// captured, or saw the state of hooks change during the call. `flags` are those that it has already.
#[cold]
#[inline(never)]
pub fn flags(session: &Session, status: Status, flags: u8, at: At) -> u8 {
    let is_captured = flags & flag::CAPTURED != 0;
    if status != SUCCESS || is_captured || at.recording != Recording::On || session.hook_state() != at.state {
        return 0;
    }
    flag::UNSTACKED
}

/// When counts were last written, or began; 0 if the process never counted.
static SINCE_TICKS: AtomicU64 = AtomicU64::new(0);

/// Launches are counted from here on.
pub fn begin_counts(session: &'static Session) {
    write_counts(session);
    SINCE_TICKS.store(clock::now(), Ordering::Relaxed);
}

/// Writes the counts of launches since the last time.
pub fn write_counts(session: &'static Session) {
    let begin_ticks = SINCE_TICKS.load(Ordering::Relaxed);
    if begin_ticks == 0 {
        return;
    }
    let Some(tables) = tables::of(session) else { return };
    let end_ticks = clock::now();
    SINCE_TICKS.store(end_ticks, Ordering::Relaxed);
    thread::with(|slot| {
        tables.take_launches(|function, stream, launches| {
            let counted = Counted { function, begin_ticks, end_ticks, launches, stream };
            slot.emit(session, &[counted.to_cell()]);
        });
    });
}
