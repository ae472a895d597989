//! The steps of a launch's hook.
//!
//! Most launches are of one of two kinds: everything about them is recorded
//! ([`plain_launch`](super::plain_launch)), or the session is paused
//! ([`paused_launch`](super::paused_launch)). Here are the others, and those that turn out not to be of their
//! kind. Launches that are only counted have short steps too; any other one takes the steps of [`steps`].

use core::ffi::c_void;
use core::hint::cold_path;
use core::ptr;
use core::sync::atomic::Ordering;

use gputrace_producer::clock::Clock;
use gputrace_producer::hook_state::{HookState, Recording, Timing};
use gputrace_producer::session;
use gputrace_producer::thread::{self, Slot};
use gputrace_wire::call::Detail;

use crate::hook::captures;
use crate::hook::description::{Context, Description, Sizes};
use crate::hook::held_calls;
use crate::hook::launch_frame::Frame;
use crate::hook::pause::{self, At};
use crate::hook::steps::{self, DriverCall, Hook, WithoutSession};
use crate::symbols::driver::{Handle, SUCCESS, Status};
use crate::symbols::entry::Entry;
use crate::table::cuda_slot::CudaSlot;
use crate::table::kept_launch::KeptLaunch;
use crate::table::pairs::Launched;
use crate::table::tables::{self, Tables};

/// A call that launches a kernel.
pub trait LaunchCall: DriverCall {
    /// Whether the default stream means that of the thread.
    const PER_THREAD: bool;
    /// The kernel and the stream.
    fn launched(self) -> (Handle, Handle);
    fn sizes(self) -> Sizes;
    /// The launch whose arguments that frame has, without the driver's function.
    ///
    /// # Safety
    /// The frame is that of a hook of such a launch.
    unsafe fn of(frame: Frame) -> Self;

    fn describe(self, context: &Context) -> Description {
        let (function, stream) = self.launched();
        Description::of_launch(context, function, self.sizes(), stream)
    }
}

/// Runs the steps around a launch that is neither plain nor paused.
#[inline(always)]
pub fn otherwise(entry: &'static Entry, without_session: WithoutSession, launch: impl LaunchCall) -> Status {
    let Some(session) = session::current() else { return steps::idle(entry, without_session, launch) };
    thread::with(|slot| {
        let Some(_inside) = slot.enter() else { return steps::nested(session, launch) };
        let hook = Hook::begin(session, slot, entry);
        if hook.state.only_counts_launches()
            && !captures::are_any()
            && slot.is_caught_up()
            && let Some(tables) = tables::of(session)
        {
            return counted(hook, tables, launch);
        }
        let (at, status) = steps::call(hook, launch);
        finish(hook, at, status, launch)
    })
}

/// Enters the guard before a launch, unless any stream is being captured, and runs `begin`, the launch's
/// first steps. If that returns true, returns the driver's function, and the thread stays inside of the hook.
/// If it returns false, it must have changed nothing that another begin does not do again (the count of calls
/// until the next sample may be one ahead); then null is returned, and the thread is as it was.
#[inline(always)]
pub fn begin_inside(entry: &'static Entry, begin: impl FnOnce(&Slot) -> bool) -> *mut c_void {
    let original = entry.original.load(Ordering::Relaxed);
    if original.is_null() || captures::are_any() {
        cold_path();
        return ptr::null_mut();
    }
    let is_begun = thread::with_known(|slot| {
        let Some(inside) = slot.enter() else {
            cold_path();
            return false;
        };
        let is_begun = begin(slot);
        if is_begun {
            core::mem::forget(inside);
        }
        is_begun
    });
    match is_begun {
        Some(true) => original,
        _ => {
            cold_path();
            ptr::null_mut()
        }
    }
}

/// The pair of the launch's kernel and stream.
#[inline(always)]
pub fn pair_of<Launch: LaunchCall>(launch: Launch) -> Launched {
    let (function, stream) = launch.launched();
    Launched { function, stream, per_thread: Launch::PER_THREAD }
}

/// Records a launch that is not like the last ones.
#[inline(always)]
pub fn finish(hook: Hook, at: At, status: Status, launch: impl LaunchCall) -> Status {
    let Some(context) = steps::context(hook, status) else { return status };
    let description = launch.describe(&context);
    let function = match description.detail {
        Detail::Launch(launch) => launch.function,
        _ => 0,
    };
    steps::record_described(hook, context, at, description);
    if status == SUCCESS && at.state.is_plain() && hook.clock.has_counter() {
        // The next launch of the pair is a plain one.
        let _ = context.tables.meet(hook.session, hook.slot, pair_of(launch), function);
        context.tables.knows_launches(hook.session, hook.slot, at.state);
    }
    status
}

/// The hook's own time until now, less that of the call that was made between the two readings.
#[inline(always)]
fn own_ticks(hook: Hook, start_ticks: u64, end_ticks: u64) -> u64 {
    start_ticks.wrapping_sub(hook.first_ticks) + hook.clock.now().wrapping_sub(end_ticks)
}

/// Records a launch that was to be [plain](super::plain_launch) and is not. Its thread is still inside of the
/// hook.
#[inline(always)]
pub fn not_plain(entry: &'static Entry, launch: impl LaunchCall) -> Status {
    thread::with(|slot| {
        let _inside = slot.inside_again();
        let kept = KeptLaunch::of(slot);
        let status = kept.status.get();
        let Some(session) = kept.session.get() else { return status };
        let (state, clock) = (HookState::from_word(kept.state.get()), Clock::of_process());
        let (is_sampled, first_ticks) = (slot.is_sampled(), kept.own_ticks.get());
        let hook = Hook { session, slot, entry, state, clock, is_sampled, first_ticks };
        let (start_ticks, duration_ticks) = (kept.start_ticks.get(), kept.duration_ticks.get());
        let correlation = CudaSlot::of(slot).correlation.get();
        let at = At { start_ticks, duration_ticks, correlation, state, recording: Recording::On };
        finish(hook, at, status, launch)
    })
}

/// The steps around a launch that is only counted. The clock is read for the note that it is under way, and
/// otherwise only where the hook's own cost is measured.
#[inline(always)]
fn counted(hook: Hook, tables: &'static Tables, launch: impl LaunchCall) -> Status {
    let Hook { session, slot, entry, state, clock, is_sampled, .. } = hook;
    let (under_way, _) = held_calls::begins(session, slot, entry, clock.now());
    slot.expect_count();
    let bucket = tables.bucket_of(slot, pair_of(launch));
    bucket.expect_to_add();
    let start_ticks = clock.now_if(is_sampled);
    let status = launch.call();
    drop(under_way);
    let end_ticks = clock.now_if(is_sampled);
    if status != SUCCESS {
        cold_path();
        // It is recorded like any other that failed, but has no duration, and its start is when it returned.
        let hook = Hook { is_sampled: false, ..hook };
        let start_ticks = clock.now();
        let at = At { start_ticks, duration_ticks: 0, correlation: 0, state, recording: Recording::On };
        return finish(hook, at, status, launch);
    }
    let function = match bucket.find() {
        Some(pair) => pair.add(),
        None => tables.count_first(session, slot, pair_of(launch)),
    };
    slot.count_launch();
    // CUPTI may deliver a record of it. By the mark the reader of the trace leaves that record out.
    if state.timing() != Timing::Off || session.hook_state() != state {
        pause::mark_counted(session, slot, function, CudaSlot::of(slot).correlation.get());
    }
    if is_sampled {
        let recorded = Some((state, end_ticks.wrapping_sub(start_ticks)));
        hook.cost(own_ticks(hook, start_ticks, end_ticks), recorded, status);
    }
    status
}
