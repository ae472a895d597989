//! The few steps of a launch of which all is recorded: its thread has a ring, no stream is being captured,
//! no window is open, and what hooks do is as at earlier launches of the thread. Whether its kernel and
//! stream are known is seen after the call only. Where the clock is not the processor's counter, no launch
//! is plain.
//!
//! Each kind of launch has these functions for itself, which [`around_launch`](super::around_launch) calls.

use core::ffi::c_void;
use core::hint::cold_path;
use core::sync::atomic::{Ordering, compiler_fence};

use gputrace_callstack::active_span::{self, Works};
use gputrace_callstack::stacks;
use gputrace_producer::clock;
use gputrace_producer::fork::{self, StateOfProcess};
use gputrace_producer::session::{self, Session};
use gputrace_producer::thread::{self, Slot};
use gputrace_wire::call::{Call, Detail};
use gputrace_wire::cell::{flag, kind};

use crate::hook::launch::{LaunchCall, begin_inside, pair_of};
use crate::hook::launch_frame::{Frame, NOT_DONE};
use crate::hook::steps;
use crate::symbols::driver::{SUCCESS, Status};
use crate::symbols::entry::Entry;
use crate::table::cuda_slot::CudaSlot;
use crate::table::kept_launch::KeptLaunch;
use crate::table::launched;
use crate::table::pairs::{self, Bucket};
use crate::table::tables;

/// What is kept while the driver's function runs.
#[derive(Clone, Copy)]
struct Kept {
    /// The thread's.
    slot: *const Slot,
    bucket: Bucket<'static>,
    state: StateOfProcess,
    /// If the hook's own time is measured.
    first_ticks: u64,
}

/// Called before the launch: the function to call. Null, and nothing is changed, if the launch is not plain.
///
/// # Safety
/// The frame is that of a hook of such a launch.
#[inline(always)]
pub unsafe fn begin<Launch: LaunchCall>(frame: Frame, entry: &'static Entry) -> *mut c_void {
    begin_inside(entry, |slot| {
        // A signal handler may fork, and its child start a session. Launches of the handler are nested from
        // here on, so that all that is read until the call is of one session.
        let state = fork::of_process().state();
        let pairs = match pairs::of_process() {
            Some(pairs) if slot.is_ready_for_launches(state) => pairs,
            _ => {
                cold_path();
                return false;
            }
        };
        let mut first_ticks = 0;
        if slot.samples_cost() {
            cold_path();
            first_ticks = clock::counter();
        }
        // CUPTI's callback sets it during the driver's call, if there is one.
        CudaSlot::of(slot).correlation.set(0);
        // SAFETY: the caller's frame.
        let launched = pair_of(unsafe { Launch::of(frame) });
        let bucket = launched::bucket_of(pairs, slot, launched);
        bucket.expect();
        stacks::expect(slot);
        frame.keep(Kept { slot, bucket, state, first_ticks });
        let start_ticks = clock::counter();
        // SAFETY: the thread is inside the guard, and ready for launches in a state of a session, so that it
        // has caught up with it.
        unsafe { slot.launch_begins(start_ticks) };
        // SYNC: as in `held_calls::begins`: the launch is noted before the state is read once more.
        compiler_fence(Ordering::SeqCst);
        if fork::of_process().state() != state {
            cold_path();
            slot.call_ends();
            return false;
        }
        frame.set_start(start_ticks);
        true
    })
}

/// Called after the launch. Not 0 if it turned out not to be plain: it failed, made graph nodes or took
/// seconds, or what hooks do has changed meanwhile, or the pair of its kernel and stream has no definition in
/// the session yet. The thread stays inside of the hook then, and
/// [`launch::not_plain`](super::launch::not_plain) records it.
///
/// # Safety
/// As for [`begin`], which has returned a function.
#[inline(always)]
pub unsafe fn end<Launch: LaunchCall>(frame: Frame, status: Status, entry: &'static Entry) -> Status {
    let end_ticks = clock::counter();
    // SAFETY: `begin` has kept it.
    let kept = unsafe { frame.kept::<Kept>() };
    // SAFETY: the slot of this thread, which lives as long as the thread does.
    let slot = unsafe { &*kept.slot };
    let state = fork::of_process().state();
    let duration_ticks = end_ticks.wrapping_sub(frame.start());
    // Not 0 if it failed, made graph nodes, or took 2^32 ticks, which an entry holds in coarser units.
    let unlike = status as u32 | CudaSlot::of(slot).node_count.get() | (duration_ticks >> 32) as u32;
    if unlike != 0 || !slot.is_ready_for_launches(state) {
        return end_not_plain(frame, status, duration_ticks);
    }
    // SAFETY: this thread has become ready for launches in that state after it had caught up, and it is the
    // process's state.
    unsafe { slot.launch_ends() };
    let Some(pair) = kept.bucket.find() else { return end_not_plain(frame, status, duration_ticks) };
    let (function, stream) = pair.definitions();
    let Some((stack, works)) = stack_and_works(frame, state, slot) else {
        return end_not_plain(frame, status, duration_ticks);
    };
    if !active_span::precedes(slot, works) || write_active_span(frame, slot, works) {
        // All else is read as it is written: little has to be kept until then.
        let cell = || {
            // SAFETY: the caller's frame.
            let launch = unsafe { Launch::of(frame) }.sizes().taken_launch(function);
            Call {
                kind: kind::LAUNCH,
                flags: flag::ASYNC | if Launch::PER_THREAD { flag::PER_THREAD_STREAM } else { 0 },
                // It is of this session: the thread is ready for launches.
                api: entry.latest_api(),
                start_ticks: frame.start(),
                duration_ticks: (duration_ticks as u32).into(),
                correlation: CudaSlot::of(slot).correlation.get(),
                stack,
                stream,
                detail: Detail::Launch(launch),
                ..Call::default()
            }
            .to_cell()
        };
        // SAFETY: as for `launch_ends`.
        unsafe { slot.emit_one_once_caught_up(cell) };
    }
    let last_half = slot.half_counter_if_sampled();
    if last_half != 0 {
        return end_sampled(frame, duration_ticks, last_half);
    }
    drop(slot.inside_again());
    SUCCESS
}

/// The calling thread's stack, and what is needed to find its active span. `None` if it is not the expected
/// one, and once it was found, the thread had not caught up any more: a signal handler has forked, or has
/// pushed a range.
#[inline(always)]
fn stack_and_works(frame: Frame, state: StateOfProcess, slot: &Slot) -> Option<(u32, Works)> {
    let Some(asked) = stacks::asked(state.hook_state()) else { return Some(Works::of_no_stack()) };
    cold_path();
    stacks::expected(state.generation(), slot, asked).or_else(|| {
        let found = unexpected_stack(frame, slot);
        slot.is_caught_up().then_some(found)
    })
}

// Few launches need the session and the tables. These functions look them up for themselves.

/// The calling thread's stack, where it is not the expected one. What is asked for is read anew: passed, it
/// would keep this from ending by a jump, and native walks would have a frame of ours more to pass.
#[cold]
#[inline(never)]
fn unexpected_stack(frame: Frame, slot: &Slot) -> (u32, Works) {
    if let (Some(session), Some(tables)) = (session_of(frame), tables::of_process())
        && let Some(asked) = stacks::asked(session.hook_state())
    {
        return tables.unexpected_stack(session, slot, asked);
    }
    (0, Works::NOT)
}

/// Writes an entry of the active span, if that changed; false if the launch's entry must not follow.
#[cold]
#[inline(never)]
fn write_active_span(frame: Frame, slot: &Slot, works: Works) -> bool {
    session_of(frame).is_some_and(|session| steps::write_active_span(session, slot, works))
}

/// The session in which the launch of that frame began; `None` if its call returned in a forked child, which
/// may have started another one.
fn session_of(frame: Frame) -> Option<&'static Session> {
    // SAFETY: `begin` has kept it.
    let generation = unsafe { frame.kept::<Kept>() }.state.generation();
    session::published().filter(|session| session.generation == generation)
}

/// Keeps what is known of a launch that turned out not to be plain.
#[cold]
#[inline(never)]
fn end_not_plain(frame: Frame, status: Status, duration_ticks: u64) -> Status {
    thread::with(|slot| {
        // SAFETY: `begin` has kept it.
        let kept = unsafe { frame.kept::<Kept>() };
        slot.call_ends();
        let call = KeptLaunch::of(slot);
        call.session.set(session_of(frame));
        call.start_ticks.set(frame.start());
        call.duration_ticks.set(duration_ticks);
        call.own_ticks.set(kept.first_ticks);
        call.state.set(kept.state.hook_state().to_word());
        call.status.set(status);
    });
    NOT_DONE
}

#[cold]
#[inline(never)]
fn end_sampled(frame: Frame, duration_ticks: u64, last_half: u32) -> Status {
    thread::with(|slot| {
        // SAFETY: `begin` has kept it.
        let first_ticks = unsafe { frame.kept::<Kept>() }.first_ticks;
        let end_ticks = frame.start().wrapping_add(duration_ticks);
        // No sample if the last reading is before the call's end, or too long ago to complete its half.
        let last_ticks = clock::when_half_was(last_half, clock::counter());
        if let Some(after_ticks) = last_ticks.and_then(|last_ticks| last_ticks.checked_sub(end_ticks)) {
            slot.add_cost(frame.start().wrapping_sub(first_ticks) + after_ticks);
        }
        drop(slot.inside_again());
    });
    SUCCESS
}
