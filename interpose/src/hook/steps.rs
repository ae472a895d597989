//! The steps of every hook, and what the hook records.
//!
//! 1. No session: call the original, nothing else.
//! 2. Already inside on this thread: call the original, and count the nested call.
//! 3. Guard; note the start.
//! 4. Call the original *exactly once*; note the end.
//! 5. Describe the call, write one event, return the original's result unchanged. The first description
//!    of a handle may make system calls; it keeps errno.
//!
//! A launch that is only counted reads no clock and writes no event, unless it fails ([`counted`]).

use gputrace_callstack::active_span::{self, Works};
use gputrace_producer::hook_state::{HookState, Recording, Timing};
use gputrace_producer::session::Session;
use gputrace_producer::thread::Slot;
use gputrace_producer::{clock, session, thread};
use gputrace_wire::call::{Call, Detail, operation};
use gputrace_wire::cell::{flag, kind};
use gputrace_wire::counter::Counter;

use crate::hook::description::{Context, Description, On};
use crate::hook::pause::At;
use crate::hook::{calibration, capture, captures, nodes, pause, saving};
use crate::symbols::driver::{Handle, SUCCESS, Status};
use crate::symbols::entry::Entry;
use crate::table::cuda_slot::CudaSlot;
use crate::table::launch_counts::Launched;
use crate::table::tables::{self, Tables};

/// CUDA_ERROR_NOT_READY: the queried work is not finished.
const NOT_READY: Status = 600;
/// CUDA_ERROR_DEINITIALIZED.
const DEINITIALIZED: Status = 4;

/// Handles a call that began while there was no session, and returns the call's status. The second
/// argument says whether another thread was starting a session when the call began.
pub type WithoutSession = fn(&'static Entry, bool, Status) -> Status;

/// A call of the driver's own function, with the program's arguments. A trait, because a closure cannot be
/// marked as inlined: each place that calls it would otherwise take the arguments from memory. A copy,
/// because what a function that is not inlined gets has an address, and the rest would stay in memory too.
pub trait DriverCall: Copy {
    /// Called exactly once.
    fn call(self) -> Status;
}

/// Runs the steps around a call. `launch` gives the kernel and the stream of a launch. What is rare is in
/// functions of its own, so that a launch runs through few lines of code: between two launches a program
/// runs through more than a core's caches hold.
#[inline(always)]
pub fn around(
    entry: &'static Entry,
    without_session: WithoutSession,
    original: impl DriverCall,
    launch: impl FnOnce() -> Option<(Handle, Handle)>,
    describe: impl FnOnce(&Context) -> Description,
) -> Status {
    let Some(session) = session::current() else { return idle(entry, without_session, original) };
    thread::with(|slot| {
        let Some(_inside) = slot.enter() else { return nested(session, original) };
        let mut is_sampled = slot.samples_cost();
        let first_ticks = clock::now_if(is_sampled);
        let state = session.hook_state();
        let launched = launch();
        let vendor = CudaSlot::of(slot);
        vendor.correlation.set(0);
        let (status, at) = if let Some((function, stream)) = launched
            && state.only_counts_launches()
            && !captures::are_any()
            && let Some(tables) = tables::of(session)
            && slot.expect_count()
        {
            let launched = Launched { function, stream, per_thread: entry.per_thread };
            let around = Around { session, tables, slot, entry, state, is_sampled, first_ticks };
            let status = counted(around, launched, original);
            if status == SUCCESS {
                return status;
            }
            // It is recorded like any other that failed, but has no duration, and its start is when it
            // returned. `counted` has added its cost, of which recording it is no part.
            is_sampled = false;
            let start_ticks = clock::now();
            (status, At { start_ticks, duration_ticks: 0, correlation: 0, state, recording: Recording::On })
        } else {
            let (recording, ends_range) = if state.counts_launches() {
                capture::of_call(session, entry)
            } else {
                (state.recording(), false)
            };
            if let Some(tables) = tables::of(session) {
                if let Some((function, _)) = launched {
                    tables.expect_function(function);
                }
                tables.expect(slot, state);
            }
            let start_ticks = clock::now();
            let status = original.call();
            let duration_ticks = clock::now().wrapping_sub(start_ticks);
            if ends_range {
                capture::last_launch_returned();
            }
            let correlation = vendor.correlation.take();
            (status, At { start_ticks, duration_ticks, correlation, state, recording })
        };
        // Loaded again: another thread may have made the tables since the first load.
        let Some(tables) = tables::of(session) else { return without_tables(session, status) };
        let context = Context { session, tables, status };
        let is_recorded = record(&context, entry, slot, at, describe(&context));
        let last_ticks = clock::now_if(is_sampled);
        if is_sampled {
            // The hook's own time: from the first clock reading to the last, less that of the call.
            let own = last_ticks.wrapping_sub(first_ticks).wrapping_sub(at.duration_ticks);
            add_cost(session, slot, entry, own, is_recorded.then_some((state, at.duration_ticks)), status);
        }
        status
    })
}

/// What a call that is only counted needs to know of its hook.
#[derive(Clone, Copy)]
struct Around<'s> {
    session: &'static Session,
    tables: &'static Tables,
    slot: &'s Slot,
    entry: &'static Entry,
    state: HookState,
    is_sampled: bool,
    first_ticks: u64,
}

/// The steps around a launch that is only counted. It reads no clock, unless its own cost is measured, so
/// that one that fails has no duration.
#[inline(always)]
fn counted(around: Around, launched: Launched, original: impl DriverCall) -> Status {
    let Around { session, tables, slot, entry, state, is_sampled, first_ticks } = around;
    let bucket = tables.bucket_of(slot, launched);
    let start_ticks = clock::now_if(is_sampled);
    let status = original.call();
    let end_ticks = clock::now_if(is_sampled);
    if status == SUCCESS {
        let function = match bucket.find() {
            Some(count) => count.add(),
            None => tables.count_first(session, slot, launched),
        };
        slot.count_launch();
        // CUPTI may deliver a record of it, which the mark has left out.
        if state.timing() != Timing::Off || session.hook_state() != state {
            pause::mark_counted(session, slot, function, CudaSlot::of(slot).correlation.get());
        }
    }
    if is_sampled {
        let own = start_ticks.wrapping_sub(first_ticks) + clock::now().wrapping_sub(end_ticks);
        let duration_ticks = end_ticks.wrapping_sub(start_ticks);
        add_cost(session, slot, entry, own, Some((state, duration_ticks)), status);
    }
    status
}

#[cold]
#[inline(never)]
fn idle(entry: &'static Entry, without_session: WithoutSession, original: impl DriverCall) -> Status {
    // A session may be published while the call is under way. The call is then not recorded.
    let was_starting = session::is_starting();
    without_session(entry, was_starting, original.call())
}

#[cold]
#[inline(never)]
fn nested(session: &'static Session, original: impl DriverCall) -> Status {
    session.count(Counter::Nested, 1);
    original.call()
}

/// There was no memory for the tables; the session is about to be abandoned.
#[cold]
#[inline(never)]
fn without_tables(session: &'static Session, status: Status) -> Status {
    session.count(Counter::BeforeSession, 1);
    status
}

#[cold]
#[inline(never)]
fn add_cost(
    session: &'static Session,
    slot: &Slot,
    entry: &'static Entry,
    own_ticks: u64,
    recorded: Option<(HookState, u64)>,
    status: Status,
) {
    slot.add_cost(own_ticks);
    if let Some((state, duration_ticks)) = recorded {
        calibration::add(session, slot, entry, state, status, duration_ticks, own_ticks);
    }
}

/// Writes the call's event, or counts the call; false if the session is paused and passed over it.
#[inline(always)]
fn record(context: &Context, entry: &'static Entry, slot: &Slot, at: At, description: Description) -> bool {
    let Context { session, tables, status } = *context;
    let mut flags = description.flags | if entry.per_thread { flag::PER_THREAD_STREAM } else { 0 };
    let mut stream = 0;
    // The stream argument of a failed call may be invalid.
    if let On::Stream(handle) = description.stream
        && status == SUCCESS
    {
        if captures::takes(handle, entry.per_thread) {
            flags |= flag::CAPTURED;
        }
        if at.recording == Recording::On || flags & flag::CAPTURED != 0 {
            stream = tables.stream(session, slot, handle, entry.per_thread);
        }
    }
    if at.recording != Recording::On && status == SUCCESS && flags & flag::CAPTURED == 0 {
        if pause::passes_over(session, slot, description, at) {
            return false;
        }
        // A call that is recorded whether or not the session is paused.
        if let On::Stream(handle) = description.stream {
            stream = tables.stream(session, slot, handle, entry.per_thread);
        }
    }
    if description.kind == kind::LAUNCH && at.state.records_less() {
        flags |= saving::flags(session, status, flags, at);
    }
    let takes_stack = flags & flag::UNSTACKED == 0
        && (is_recorded_with_stack(description.kind) || is_load(&description) || has_failed(status));
    let (stack, works) =
        if takes_stack { tables.stack_and_works(session, slot) } else { (0, Works::of_this_thread(session)) };
    let mut is_timed = flags & flag::CAPTURED == 0;
    let mut window = if is_timed { at.state.window() } else { 0 };
    if at.state.is_untimed_at_either(session.hook_state()) && is_timed && status == SUCCESS {
        window = 0;
        if pause::is_untimed(session, slot, description, at) {
            flags |= flag::UNTIMED;
            is_timed = false;
        }
    }
    let call = Call {
        kind: description.kind,
        flags,
        api: tables.api(session, entry),
        start_ticks: at.start_ticks,
        duration_ticks: at.duration_ticks,
        correlation: if is_timed { at.correlation } else { 0 },
        stack,
        stream,
        window,
        status: status.clamp(0, 0xffff) as u16,
        detail: description.detail,
    };
    if window != 0 && at.correlation != 0 && description.kind == kind::LAUNCH {
        slot.count_window_launch(at.correlation);
    }
    if !(works.may_be() || active_span::is_in_ring(slot)) || write_active_span(session, slot, works) {
        slot.emit(session, &[call.to_cell()]);
    }
    if CudaSlot::of(slot).nodes.get().1 != 0 {
        nodes::write(*context, slot, call);
    }
    true
}

/// Runs around a call that is recorded only if it fails, because programs poll it or it takes no time.
/// A call that succeeds costs one reading of the clock.
#[inline(always)]
pub fn around_failure(
    entry: &'static Entry,
    _: WithoutSession,
    original: impl DriverCall,
    _: impl FnOnce() -> Option<(Handle, Handle)>,
    describe: impl FnOnce(&Context) -> Description,
) -> Status {
    let start_ticks = clock::now();
    let status = original.call();
    if status != SUCCESS && status != NOT_READY {
        failed(entry, start_ticks, status, describe);
    }
    status
}

#[cold]
#[inline(never)]
fn failed(
    entry: &'static Entry,
    start_ticks: u64,
    status: Status,
    describe: impl FnOnce(&Context) -> Description,
) {
    let end_ticks = clock::now();
    let Some(session) = session::current() else { return };
    thread::with(|slot| {
        let Some(_inside) = slot.enter() else {
            return session.count(Counter::Nested, 1);
        };
        let Some(tables) = tables::of(session) else { return session.count(Counter::BeforeSession, 1) };
        let description = describe(&Context { session, tables, status });
        let stack = if has_failed(status) { tables.stack(session, slot) } else { 0 };
        let call = Call {
            kind: description.kind,
            flags: description.flags | if entry.per_thread { flag::PER_THREAD_STREAM } else { 0 },
            api: tables.api(session, entry),
            start_ticks,
            duration_ticks: end_ticks.wrapping_sub(start_ticks),
            stack,
            status: status.clamp(0, 0xffff) as u16,
            detail: description.detail,
            ..Call::default()
        };
        if write_active_span(session, slot, Works::of_this_thread(session)) {
            slot.emit(session, &[call.to_cell()]);
        }
    });
}

/// Whether calls of this kind are recorded with their stack: those that put work on a device, wait for it,
/// or take memory.
#[inline(always)]
fn is_recorded_with_stack(call: u16) -> bool {
    const KINDS: u32 = 1 << kind::LAUNCH
        | 1 << kind::GRAPH_LAUNCH
        | 1 << kind::COPY
        | 1 << kind::FILL
        | 1 << kind::ALLOC
        | 1 << kind::WAIT
        | 1 << kind::GRAPH;
    1u32.checked_shl(call.into()).is_some_and(|bit| KINDS & bit != 0)
}

/// Whether the call loaded code. Unloading has no stack: a process does it while its interpreter shuts down.
#[inline(always)]
fn is_load(description: &Description) -> bool {
    matches!(description.detail, Detail::Module { operation: operation::LOAD, .. })
}

/// Whether the call failed in a way that users should see. At process exit, calls return DEINITIALIZED;
/// this is expected, and an interpreter may be shutting down too.
#[inline(always)]
fn has_failed(status: Status) -> bool {
    status != SUCCESS && status != DEINITIALIZED
}

/// Writes a CALLER entry if the active span changed. Returns false if the ring is full; the event must
/// not follow then. The event is not an argument, so that it can stay in registers.
#[cold]
#[inline(never)]
fn write_active_span(session: &'static Session, slot: &Slot, works: Works) -> bool {
    active_span::write(session, slot, &works.caller(session), 1)
}
