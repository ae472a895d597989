//! What becomes of a call while the session is paused: it is counted by kind, and marked in the thread's ring
//! where a device record of it may come, so that the reader of the trace leaves the record out. The same mark
//! stands beside calls that are recorded while device times are off.
//!
//! Both functions take the description by value: a hook whose description has an address keeps it in memory.

use gputrace_producer::clock;
use gputrace_producer::hook_state::{HookState, Recording, Timing};
use gputrace_producer::session::Session;
use gputrace_producer::thread::Slot;
use gputrace_wire::call::{Call, Detail, Launch, operation};
use gputrace_wire::cell::{flag, kind};
use gputrace_wire::counter::Counter;

use crate::hook::description::{Description, On};

/// When a call was made, and CUPTI's correlation id for it; 0 for none.
#[derive(Clone, Copy)]
pub struct At {
    pub start_ticks: u64,
    pub duration_ticks: u64,
    pub correlation: u32,
    /// What hooks did when the call began, and what this one did with it.
    pub state: HookState,
    pub recording: Recording,
}

/// Counts a call that succeeded while the session was paused. False for a call that is recorded in any case:
/// what it did matters after the pause.
#[cold]
#[inline(never)]
pub fn passes_over(session: &'static Session, slot: &Slot, description: Description, at: At) -> bool {
    let (counter, count) = match (description.kind, description.detail) {
        (kind::LAUNCH, _) => (Counter::PausedLaunches, 1),
        (kind::GRAPH_LAUNCH, _) => (Counter::PausedGraphLaunches, 1),
        (kind::COPY, Detail::Copy(copy)) => (Counter::PausedCopies, copy.count.max(1)),
        (kind::COPY, _) => (Counter::PausedCopies, 1),
        (kind::FILL, _) => (Counter::PausedFills, 1),
        (kind::WAIT, _) => (Counter::PausedWaits, 1),
        // Programs poll these, and nothing that comes later depends on them.
        (kind::MEMORY, Detail::MemoryState(state))
            if matches!(state.operation, operation::QUERY | operation::RESERVED) =>
        {
            return true;
        }
        _ => return false,
    };
    session.count(counter, count.into());
    // CUPTI's kinds were on during a part of the call, or this one is never off.
    let states = [at.recording, session.recording()];
    let may_have_record =
        is_never_off(description.kind) || states.iter().any(|state| *state != Recording::Off);
    if may_have_record {
        mark(session, slot, &description, &at);
    }
    true
}

/// Whether a call that succeeded and is recorded has no device time, because device times were off at its
/// begin or its end. If a device record of it may come, the call is marked.
#[cold]
#[inline(never)]
pub fn is_untimed(session: &'static Session, slot: &Slot, description: Description, at: At) -> bool {
    if !matches!(description.kind, kind::LAUNCH | kind::GRAPH_LAUNCH | kind::COPY | kind::FILL) {
        return false;
    }
    let states = [at.state, session.hook_state()];
    let is_transfer = matches!(description.kind, kind::COPY | kind::FILL);
    if is_transfer && states.iter().all(|state| state.times_transfers()) {
        return false;
    }
    if is_never_off(description.kind) || states.iter().any(|state| state.timing() != Timing::Off) {
        mark(session, slot, &description, &at);
    }
    true
}

/// Whether CUPTI's records of such calls go on while those of kernels are off.
fn is_never_off(kind: u16) -> bool {
    matches!(kind, kind::GRAPH_LAUNCH | kind::COPY | kind::FILL)
}

/// Writes an entry by which the reader of the trace leaves out the call's device records.
pub fn mark(session: &'static Session, slot: &Slot, description: &Description, at: &At) {
    if at.correlation == 0 {
        return;
    }
    let call = Call {
        kind: description.kind,
        flags: description.flags | flag::PAUSED,
        start_ticks: at.start_ticks,
        duration_ticks: at.duration_ticks,
        correlation: at.correlation,
        detail: description.detail,
        ..Call::default()
    };
    slot.note_latest(at.correlation);
    slot.emit(session, &[call.to_cell()]);
}

/// The same for a launch that was only counted.
#[cold]
#[inline(never)]
pub fn mark_counted(session: &'static Session, slot: &Slot, function: u32, correlation: u32) {
    let detail = Detail::Launch(Launch { function, ..Launch::default() });
    let description = Description { kind: kind::LAUNCH, flags: flag::ASYNC, stream: On::Nothing, detail };
    let at = At {
        start_ticks: clock::now(),
        duration_ticks: 0,
        correlation,
        state: session.hook_state(),
        recording: Recording::On,
    };
    mark(session, slot, &description, &at);
}
