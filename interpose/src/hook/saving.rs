//! What is recorded of launches outside of windows of device times, where a budget allows no more than a
//! part: all but the stack, or only how many there were ([`Launches`]).
//!
//! The service thread writes the counts from time to time, and at the session's end ([`write_counts`]).

use core::sync::atomic::{AtomicU64, Ordering};

use gputrace_producer::clock;
use gputrace_producer::hook_state::{Launches, Recording, Timing};
use gputrace_producer::session::Session;
use gputrace_producer::thread::{self, Slot};
use gputrace_wire::call::Detail;
use gputrace_wire::cell::flag;
use gputrace_wire::counted::Counted;

use crate::hook::description::{Context, Description};
use crate::hook::pause::{self, At};
use crate::symbols::driver::SUCCESS;
use crate::table::tables;

/// What becomes of a launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It was counted, and is in no entry.
    Counted,
    /// To be recorded without its stack.
    Unstacked,
    /// To be recorded as others are.
    Whole,
}

/// What becomes of a launch of which less than all is to be recorded. One that failed, that was captured, or
/// that saw another state at its end than at its begin, is recorded as others are.
#[cold]
#[inline(never)]
pub fn launch(context: &Context, slot: &Slot, description: Description, stream: u32, at: At) -> Outcome {
    let Context { session, tables, status } = *context;
    let Detail::Launch(launch) = description.detail else { return Outcome::Whole };
    let is_captured = description.flags & flag::CAPTURED != 0;
    if status != SUCCESS || is_captured || at.recording != Recording::On || session.hook_state() != at.state {
        return Outcome::Whole;
    }
    if at.state.launches() != Launches::Counted || launch.function == 0 {
        return Outcome::Unstacked;
    }
    // A thread without a ring gets one by its first entry.
    if !slot.is_caught_up() || !tables.count_launch(launch.function, stream) {
        return Outcome::Unstacked;
    }
    slot.count_launch();
    if at.state.timing() != Timing::Off {
        pause::mark(session, slot, &description, &at);
    }
    Outcome::Counted
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
    let Some(tables) = tables::of(session).filter(|_| begin_ticks != 0) else { return };
    let end_ticks = clock::now();
    SINCE_TICKS.store(end_ticks, Ordering::Relaxed);
    thread::with(|slot| {
        tables.take_launches(|function, stream, launches| {
            let counted = Counted { function, begin_ticks, end_ticks, launches, stream };
            slot.emit(session, &[counted.to_cell()]);
        });
    });
}
