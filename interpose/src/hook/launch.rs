//! The steps of a launch's hook.
//!
//! Most launches are of one of two kinds: everything about them is recorded ([`plain`]), or the session is
//! paused ([`paused_launch`](super::paused_launch)). Their steps run through few lines of code: between two
//! launches a program runs through more than a core's caches hold. All else is in functions that get the
//! launch's arguments as the driver's function does: any other call of them would take all arguments in
//! memory, for which each launch would pay. Launches that are only counted have short steps too, but are
//! among these; any other launch takes the steps of [`steps`].

use core::hint::cold_path;

use gputrace_producer::clock::Clock;
use gputrace_producer::hook_state::{HookState, Recording, Timing};
use gputrace_producer::session::{self, Session};
use gputrace_producer::thread::{self, Slot};
use gputrace_wire::call::{Call, Detail};
use gputrace_wire::cell::{flag, kind};

use crate::hook::captures;
use crate::hook::description::{Context, Description};
use crate::hook::pause::{self, At};
use crate::hook::steps::{self, DriverCall, Hook, WithoutSession};
use crate::symbols::driver::{Handle, SUCCESS, Status};
use crate::symbols::entry::Entry;
use crate::table::cuda_slot::CudaSlot;
use crate::table::kept_launch::KeptLaunch;
use crate::table::launched;
use crate::table::pairs::{self, Launched};
use crate::table::tables::{self, Tables};

/// A call that launches a kernel.
pub trait LaunchCall: DriverCall {
    /// The kernel and the stream.
    fn launched(self) -> (Handle, Handle);
    fn describe(self, context: &Context) -> Description;
    /// Calls the function that runs [`otherwise`] of this launch, with its arguments.
    fn otherwise(self) -> Status;
    /// The same for [`not_alike`].
    fn not_alike(self) -> Status;
}

/// Runs the steps around a launch that was not found to be paused.
#[inline(always)]
pub fn around(entry: &'static Entry, launch: impl LaunchCall) -> Status {
    if let Some(session) = session::published()
        && let Some(status) = thread::with(|slot| plain::<true>(session, slot, entry, launch))
    {
        return status;
    }
    cold_path();
    launch.otherwise()
}

/// Runs the steps around a launch that is not [`plain`], or is, but without the processor's counter.
#[inline(always)]
pub fn otherwise(entry: &'static Entry, without_session: WithoutSession, launch: impl LaunchCall) -> Status {
    let Some(session) = session::current() else { return steps::idle(entry, without_session, launch) };
    thread::with(|slot| {
        if let Some(status) = plain::<false>(session, slot, entry, launch) {
            return status;
        }
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

#[inline(always)]
fn pair_of(hook: Hook, launch: impl LaunchCall) -> Launched {
    let (function, stream) = launch.launched();
    Launched { function, stream, per_thread: hook.entry.per_thread }
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
    if status == SUCCESS && at.state.is_plain() {
        // The next launch of the pair finds it.
        let _ = context.tables.meet(hook.session, hook.slot, pair_of(hook, launch), function);
    }
    status
}

/// The hook's own time until now, less that of the call that was made between the two readings.
#[inline(always)]
fn own_ticks(hook: Hook, start_ticks: u64, end_ticks: u64) -> u64 {
    start_ticks.wrapping_sub(hook.first_ticks) + hook.clock.now().wrapping_sub(end_ticks)
}

/// The steps around a launch of which all is recorded, by a thread that has a ring, outside of captures and
/// windows, where the clock is the processor's counter or, if so asked, another one. `None` if it is another
/// launch: nothing was called or counted then, and the thread is not inside of the hook.
#[inline(always)]
fn plain<const HAS_COUNTER: bool>(
    session: &'static Session,
    slot: &Slot,
    entry: &'static Entry,
    launch: impl LaunchCall,
) -> Option<Status> {
    let inside = slot.enter()?;
    // From here on all is of one session: launches of a signal handler, which may fork and start another
    // session in the child, are nested.
    let generation = slot.caught_up_with()?;
    let (state, clock) = (session.hook_state(), Clock::of_process());
    if !state.is_plain() || clock.has_counter() != HAS_COUNTER || captures::are_any() {
        return None;
    }
    let (pairs, tables) = (pairs::of_process()?, tables::of(session)?);
    let first_ticks = clock.now_if(slot.samples_cost());
    let cuda = CudaSlot::of(slot);
    // The driver's call sets it, if CUPTI reports calls.
    cuda.correlation.set(0);
    let (function, stream) = launch.launched();
    let pair = Launched { function, stream, per_thread: entry.per_thread };
    let bucket = launched::bucket_of(pairs, generation, slot, pair);
    bucket.expect();
    tables::expect_entry(slot);
    let start_ticks = clock.now();
    let status = launch.call();
    let duration_ticks = clock.now().wrapping_sub(start_ticks);
    let correlation = cuda.correlation.get();
    if status == SUCCESS
        && session.hook_state() == state
        && cuda.node_count.get() == 0
        && let Some(pair) = bucket.find()
    {
        let (function, stream) = pair.definitions();
        let description = launch.describe(&Context { session, tables, status, launched: Some(function) });
        let (stack, works) = tables.stack_and_works_in(generation, session, slot);
        let call = Call {
            kind: kind::LAUNCH,
            flags: flag::ASYNC | if entry.per_thread { flag::PER_THREAD_STREAM } else { 0 },
            api: tables.api_in(generation, session, entry),
            start_ticks,
            duration_ticks,
            correlation,
            stack,
            stream,
            detail: description.detail,
            ..Call::default()
        };
        steps::write(session, slot, works, call);
        // Asked again: kept, the answer would be in memory during the call.
        let hook = Hook { session, slot, entry, state, clock, is_sampled: slot.is_sampled(), first_ticks };
        let at = At { start_ticks, duration_ticks, correlation, state, recording: Recording::On };
        steps::measure(hook, at, SUCCESS, true);
        drop(inside);
        return Some(SUCCESS);
    }
    cold_path();
    let kept = KeptLaunch::of(slot);
    kept.session.set(Some(session));
    kept.start_ticks.set(start_ticks);
    kept.duration_ticks.set(duration_ticks);
    kept.own_ticks.set(first_ticks);
    kept.state.set(state.to_word());
    kept.status.set(status);
    core::mem::forget(inside);
    Some(launch.not_alike())
}

/// Records a launch that was to be [`plain`] and is not: it failed, or made graph nodes, or what hooks do has
/// changed meanwhile, or its kernel and stream have no entry yet. Its thread is still inside of the hook.
#[inline(always)]
pub fn not_alike(entry: &'static Entry, launch: impl LaunchCall) -> Status {
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

/// The steps around a launch that is only counted. It reads no clock, unless its own cost is measured.
#[inline(always)]
fn counted(hook: Hook, tables: &'static Tables, launch: impl LaunchCall) -> Status {
    let Hook { session, slot, state, clock, is_sampled, .. } = hook;
    slot.expect_count();
    let bucket = tables.bucket_of(slot, pair_of(hook, launch));
    bucket.expect_to_add();
    let start_ticks = clock.now_if(is_sampled);
    let status = launch.call();
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
        None => tables.count_first(session, slot, pair_of(hook, launch)),
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
