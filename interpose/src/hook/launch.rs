//! The steps of a launch's hook.
//!
//! Most launches are of one of three kinds: everything about them is recorded, they are only counted, or the
//! session is paused ([`paused_launch`](super::paused_launch)). Their steps run through few lines of code:
//! between two launches a program runs through more than a core's caches hold. Any other launch takes the
//! steps of [`steps`]. Most rare code is inlined too: calling it takes arguments in memory, and more
//! instructions of each launch.

use core::hint::cold_path;

use gputrace_producer::hook_state::{Recording, Timing};
use gputrace_producer::session;
use gputrace_producer::{clock, thread};
use gputrace_wire::call::{Call, Detail};
use gputrace_wire::cell::{flag, kind};

use crate::hook::captures;
use crate::hook::description::{Context, Description};
use crate::hook::pause::{self, At};
use crate::hook::steps::{self, DriverCall, Hook, WithoutSession};
use crate::symbols::driver::{Handle, SUCCESS, Status};
use crate::symbols::entry::Entry;
use crate::table::cuda_slot::CudaSlot;
use crate::table::pairs::Launched;
use crate::table::tables::{self, Tables};

/// A call that launches a kernel.
pub trait LaunchCall: DriverCall {
    /// The kernel and the stream.
    fn launched(self) -> (Handle, Handle);
    fn describe(self, context: &Context) -> Description;
}

/// Runs the steps around a launch, whatever becomes of it.
#[inline(always)]
pub fn around(entry: &'static Entry, without_session: WithoutSession, launch: impl LaunchCall) -> Status {
    let Some(session) = session::current() else { return steps::idle(entry, without_session, launch) };
    thread::with(|slot| {
        let Some(_inside) = slot.enter() else { return steps::nested(session, launch) };
        let hook = Hook::begin(session, slot, entry);
        if !captures::are_any()
            && slot.is_caught_up()
            && let Some(tables) = tables::of(session)
        {
            if hook.state.is_plain() {
                return plain(hook, tables, launch);
            }
            if hook.state.only_counts_launches() {
                cold_path();
                return counted(hook, tables, launch);
            }
        }
        cold_path();
        let (at, status) = steps::call(hook, launch);
        finish(hook, at, status, launch)
    })
}

#[inline(always)]
fn launched(hook: Hook, launch: impl LaunchCall) -> Launched {
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
        let _ = context.tables.meet(hook.session, hook.slot, launched(hook, launch), function);
    }
    status
}

/// The hook's own time until now, less that of the call that was made between the two readings.
#[inline(always)]
fn own_ticks(hook: Hook, start_ticks: u64, end_ticks: u64) -> u64 {
    start_ticks.wrapping_sub(hook.first_ticks) + clock::now().wrapping_sub(end_ticks)
}

/// The steps around a launch of which all is recorded, outside of captures and windows.
#[inline(always)]
fn plain(hook: Hook, tables: &'static Tables, launch: impl LaunchCall) -> Status {
    let Hook { session, slot, entry, state, .. } = hook;
    let bucket = tables.bucket_of(slot, launched(hook, launch));
    bucket.expect();
    tables::expect_entry(slot);
    let start_ticks = clock::now();
    let status = launch.call();
    let duration_ticks = clock::now().wrapping_sub(start_ticks);
    let vendor = CudaSlot::of(slot);
    let correlation = vendor.correlation.get();
    let at = At { start_ticks, duration_ticks, correlation, state, recording: Recording::On };
    if status == SUCCESS
        && session.hook_state() == state
        && vendor.node_count.get() == 0
        && let Some(pair) = bucket.find()
    {
        let (function, stream) = pair.definitions();
        let description = launch.describe(&Context { session, tables, status, launched: Some(function) });
        let (stack, works) = tables.stack_and_works(session, slot);
        let call = Call {
            kind: kind::LAUNCH,
            flags: flag::ASYNC | if entry.per_thread { flag::PER_THREAD_STREAM } else { 0 },
            api: tables.api(session, entry),
            start_ticks,
            duration_ticks,
            correlation,
            stack,
            stream,
            detail: description.detail,
            ..Call::default()
        };
        steps::write(session, slot, works, call);
        steps::measure(hook, at, SUCCESS, true);
        return SUCCESS;
    }
    cold_path();
    finish(hook, at, status, launch)
}

/// The steps around a launch that is only counted. It reads no clock, unless its own cost is measured.
#[inline(always)]
fn counted(hook: Hook, tables: &'static Tables, launch: impl LaunchCall) -> Status {
    let Hook { session, slot, state, is_sampled, .. } = hook;
    slot.expect_count();
    let bucket = tables.bucket_of(slot, launched(hook, launch));
    bucket.expect_to_add();
    let start_ticks = clock::now_if(is_sampled);
    let status = launch.call();
    let end_ticks = clock::now_if(is_sampled);
    if status != SUCCESS {
        cold_path();
        // It is recorded like any other that failed, but has no duration, and its start is when it returned.
        let hook = Hook { is_sampled: false, ..hook };
        let start_ticks = clock::now();
        let at = At { start_ticks, duration_ticks: 0, correlation: 0, state, recording: Recording::On };
        return finish(hook, at, status, launch);
    }
    let function = match bucket.find() {
        Some(pair) => pair.add(),
        None => tables.count_first(session, slot, launched(hook, launch)),
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
