//! The steps of a hook, and what it records.
//!
//! 1. No session: call the original, then [`WithoutSession`], which starts a session after `cuInit`.
//! 2. Enter the guard. Already inside on this thread: call the original, and count the nested call.
//! 3. Note the start, call the original *exactly once*, note the end.
//! 4. Describe the call, write its event, return the original's result unchanged. The first description
//!    of a handle may make system calls; it keeps errno.
//!
//! Calls that are recorded only if they fail take [`around_failure`]. Most launches of kernels have shorter
//! steps; [`around_launch`](super::around_launch) says where.

use core::hint::cold_path;

use gputrace_callstack::active_span::{self, Works};
use gputrace_producer::clock::Clock;
use gputrace_producer::hook_state::{HookState, Recording};
use gputrace_producer::session::Session;
use gputrace_producer::thread::Slot;
use gputrace_producer::{clock, fork, session, thread};
use gputrace_wire::call::{Call, Detail, operation};
use gputrace_wire::cell::{flag, kind};
use gputrace_wire::counter::Counter;

use crate::hook::description::{Context, Description, On};
use crate::hook::pause::At;
use crate::hook::{calibration, capture, captures, held_calls, nodes, pause, saving, under_way};
use crate::symbols::driver::{SUCCESS, Status};
use crate::symbols::entry::Entry;
use crate::table::cuda_slot::CudaSlot;
use crate::table::tables;

/// CUDA_ERROR_NOT_READY: the queried work is not finished.
const NOT_READY: Status = 600;
/// CUDA_ERROR_DEINITIALIZED.
const DEINITIALIZED: Status = 4;

/// Handles a call that began while there was no session, and returns the call's status. The second
/// argument says whether another thread was starting a session when the call began.
pub type WithoutSession = fn(&'static Entry, bool, Status) -> Status;

/// A call of the driver's own function, with the program's arguments. A trait, because a closure cannot be
/// marked as inlined: each place that calls it would otherwise take the arguments from memory. `Copy`, so
/// that a function that is not inlined gets a copy: a reference would keep the caller's own arguments in
/// memory too.
pub trait DriverCall: Copy {
    /// Called exactly once.
    fn call(self) -> Status;
}

/// Runs the steps around a call that is no launch of a kernel.
#[inline(always)]
pub fn around(
    entry: &'static Entry,
    without_session: WithoutSession,
    original: impl DriverCall,
    describe: impl FnOnce(&Context) -> Description,
) -> Status {
    let Some(session) = session::current() else { return idle(entry, without_session, original) };
    thread::with(|slot| {
        let Some(_inside) = slot.enter() else { return nested(session, original) };
        let hook = Hook::begin(session, slot, entry);
        let (at, status) = call(hook, original);
        finish(hook, at, status, describe);
        status
    })
}

/// A hook that is under way.
#[derive(Clone, Copy)]
pub struct Hook<'s> {
    pub session: &'static Session,
    pub slot: &'s Slot,
    pub entry: &'static Entry,
    /// What hooks did when the call began.
    pub state: HookState,
    pub clock: Clock,
    /// Whether the hook's own time is measured, and then the first reading of the clock.
    pub is_sampled: bool,
    pub first_ticks: u64,
}

impl<'s> Hook<'s> {
    #[inline(always)]
    pub fn begin(session: &'static Session, slot: &'s Slot, entry: &'static Entry) -> Hook<'s> {
        let (clock, is_sampled) = (Clock::of_process(), slot.samples_cost());
        let first_ticks = clock.now_if(is_sampled);
        // CUPTI's callback sets it during the driver's call, if there is one.
        CudaSlot::of(slot).correlation.set(0);
        Hook { session, slot, entry, state: session.hook_state(), clock, is_sampled, first_ticks }
    }

    /// As [`add_cost`].
    #[inline(always)]
    pub fn cost(self, own_ticks: u64, recorded: Option<(HookState, u64)>, status: Status) {
        add_cost(self.session, self.slot, self.entry, own_ticks, recorded, status);
    }
}

/// Makes the call, and may wait before. Returns when it was made and its status.
#[inline(always)]
pub fn call(hook: Hook, original: impl DriverCall) -> (At, Status) {
    let Hook { session, slot, entry, state, clock, .. } = hook;
    match tables::of(session) {
        Some(tables) => tables.expect(slot),
        None => cold_path(),
    }
    let (call, mut start_ticks) = held_calls::begins(session, slot, entry, clock.now());
    let (mut recording, mut ends_range) = (state.recording(), false);
    if state.counts_launches() {
        cold_path();
        // It may switch CUPTI on, which must not happen during a flush. Flushes wait for a noted call.
        (recording, ends_range) = capture::of_call(session, entry);
        start_ticks = clock.now();
    }
    let mut counted = (None, None);
    if state.counts_under_way() {
        cold_path();
        counted = under_way::call_begins(slot, fork::generation(), entry);
        start_ticks = clock.now();
    }
    let status = original.call();
    let duration_ticks = clock.now().wrapping_sub(start_ticks);
    drop(counted);
    if ends_range {
        cold_path();
        capture::last_launch_returned();
    }
    drop(call);
    let correlation = CudaSlot::of(slot).correlation.get();
    (At { start_ticks, duration_ticks, correlation, state, recording }, status)
}

/// Records the call.
#[inline(always)]
pub fn finish(hook: Hook, at: At, status: Status, describe: impl FnOnce(&Context) -> Description) {
    if let Some(context) = context(hook, status) {
        record_described(hook, context, at, describe(&context));
    }
}

/// What the call's description may use. `None` if the call is not recorded.
#[inline(always)]
pub fn context(hook: Hook, status: Status) -> Option<Context> {
    // Loaded again: another thread may have made the tables since the call began.
    let Some(tables) = tables::of(hook.session) else {
        without_tables(hook.session);
        return None;
    };
    Some(Context { session: hook.session, tables, status })
}

#[inline(always)]
pub fn record_described(hook: Hook, context: Context, at: At, description: Description) {
    let is_recorded = record(&context, hook.entry, hook.slot, at, description);
    measure(hook, at, context.status, is_recorded);
}

/// The hook's own time, if it is measured: from the first reading of the clock to now, less that of the call.
#[inline(always)]
pub fn measure(hook: Hook, at: At, status: Status, is_recorded: bool) {
    let last_ticks = hook.clock.now_if(hook.is_sampled);
    if hook.is_sampled {
        cold_path();
        let own = last_ticks.wrapping_sub(hook.first_ticks).wrapping_sub(at.duration_ticks);
        hook.cost(own, is_recorded.then_some((at.state, at.duration_ticks)), status);
    }
}

#[cold]
#[inline(never)]
pub fn idle(entry: &'static Entry, without_session: WithoutSession, original: impl DriverCall) -> Status {
    // A session may be published while the call is under way. The call is then not recorded.
    let was_starting = session::is_starting();
    without_session(entry, was_starting, original.call())
}

#[cold]
#[inline(never)]
pub fn nested(session: &'static Session, original: impl DriverCall) -> Status {
    session.count(Counter::Nested, 1);
    original.call()
}

/// There was no memory for the tables; the session is about to be abandoned.
#[cold]
#[inline(never)]
fn without_tables(session: &'static Session) {
    session.count(Counter::BeforeSession, 1);
}

/// Adds a hook's own time; `recorded` is the state and the duration of a call that was recorded.
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
    let Context { session, tables, status, .. } = *context;
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
        } else {
            cold_path();
        }
    }
    if at.recording != Recording::On && status == SUCCESS && flags & flag::CAPTURED == 0 {
        cold_path();
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
    write(session, slot, works, || call);
    if CudaSlot::of(slot).node_count.get() != 0 {
        nodes::write(*context, slot, call);
    }
    true
}

/// Writes the call's event, with the active span before it if that has changed.
#[inline(always)]
pub fn write(session: &'static Session, slot: &Slot, works: Works, call: impl FnOnce() -> Call) {
    if !active_span::precedes(slot, works) || write_active_span(session, slot, works) {
        slot.emit_one(session, || call().to_cell());
    }
}

/// Runs around a call that is recorded only if it fails, because programs poll it or it takes no time.
/// A call that succeeds costs one reading of the clock.
#[inline(always)]
pub fn around_failure(
    entry: &'static Entry,
    _: WithoutSession,
    original: impl DriverCall,
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
pub fn write_active_span(session: &'static Session, slot: &Slot, works: Works) -> bool {
    active_span::write(session, slot, &works.caller(session), 1)
}
