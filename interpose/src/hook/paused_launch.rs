//! A launch that comes while the session is paused, outside of captures: it is counted, and passed on. One
//! that fails is recorded; one during which the session goes on is counted, and marked.
//!
//! All launches share these functions, which [`around_launch`](super::around_launch) calls.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::Ordering;

use gputrace_producer::clock::Clock;
use gputrace_producer::hook_state::Recording;
use gputrace_producer::{clock, fork, session, thread};

use crate::hook::launch::{self, LaunchCall};
use crate::hook::launch_frame::{Frame, NOT_DONE};
use crate::hook::pause::At;
use crate::hook::steps::Hook;
use crate::hook::{captures, under_way};
use crate::symbols::driver::{SUCCESS, Status};
use crate::symbols::entry::Entry;
use crate::table::cuda_slot::CudaSlot;
use crate::table::kept_launch::KeptLaunch;

/// Called before the launch: the function to call. Null, and nothing is changed, if it needs other steps.
// In one section with the rest of what launches run through.
#[unsafe(link_section = ".text.hot.hooks")]
pub extern "C" fn begin(_: Frame, entry: &'static Entry) -> *mut c_void {
    let original = entry.original.load(Ordering::Relaxed);
    if original.is_null() || session::current().is_none() || captures::are_any() {
        return ptr::null_mut();
    }
    thread::with(|slot| {
        let Some(inside) = slot.enter() else { return ptr::null_mut() };
        let state = fork::of_process().hook_state();
        // Where there is no counter, other steps measure.
        if !state.passes_over_launches() || slot.is_next_sampled() && !clock::has_counter() {
            return ptr::null_mut();
        }
        core::mem::forget(inside);
        let is_sampled = slot.samples_cost();
        let first_ticks = clock::counter_if(is_sampled);
        slot.expect_paused_launch();
        // The driver's call sets it, if CUPTI reports calls.
        CudaSlot::of(slot).correlation.set(0);
        if state.counts_under_way() && !under_way::launch_begins_on_own(slot, fork::generation()) {
            return begin_in_turn(original, first_ticks);
        }
        if is_sampled {
            KeptLaunch::of(slot).own_ticks.set(clock::counter().wrapping_sub(first_ticks));
        }
        original
    })
}

/// The rest of [`begin`] for a launch that may have to wait.
#[cold]
#[inline(never)]
extern "C" fn begin_in_turn(original: *mut c_void, first_ticks: u64) -> *mut c_void {
    thread::with(|slot| {
        under_way::launch_begins(slot, fork::generation());
        if slot.is_sampled() {
            KeptLaunch::of(slot).own_ticks.set(clock::counter().wrapping_sub(first_ticks));
        }
    });
    original
}

/// Called after the launch. Not 0 if it is to be recorded or marked ([`record`]); the thread stays inside of
/// the hook then.
#[unsafe(link_section = ".text.hot.hooks")]
pub extern "C" fn end(_: Frame, status: Status) -> Status {
    thread::with(|slot| {
        let is_sampled = slot.is_sampled();
        let first_ticks = clock::counter_if(is_sampled);
        under_way::launch_ended(slot);
        if status != SUCCESS || !fork::of_process().hook_state().passes_over_launches() {
            KeptLaunch::of(slot).status.set(status);
            return NOT_DONE;
        }
        if !slot.count_paused_launch() {
            return end_without_ring();
        }
        if is_sampled {
            return end_sampled(clock::counter().wrapping_sub(first_ticks));
        }
        drop(slot.inside_again());
        SUCCESS
    })
}

#[cold]
#[inline(never)]
extern "C" fn end_without_ring() -> Status {
    thread::with(|slot| {
        if let Some(session) = session::current() {
            slot.count_paused_launch_without_ring(session);
        }
        drop(slot.inside_again());
    });
    SUCCESS
}

#[cold]
#[inline(never)]
extern "C" fn end_sampled(ticks: u64) -> Status {
    thread::with(|slot| {
        slot.add_cost(KeptLaunch::of(slot).own_ticks.get().wrapping_add(ticks));
        drop(slot.inside_again());
    });
    SUCCESS
}

/// Records a launch that failed; one during which the session has gone on is marked, because CUPTI may
/// deliver a record of it. It has no duration, and its start is when it returned. Returns its status.
#[inline(always)]
pub fn record(entry: &'static Entry, launch: impl LaunchCall) -> Status {
    thread::with(|slot| {
        let _inside = slot.inside_again();
        let status = KeptLaunch::of(slot).status.get();
        let Some(session) = session::current() else { return status };
        let state = session.hook_state().with_recording(Recording::Off);
        let clock = Clock::of_process();
        let hook = Hook { session, slot, entry, state, clock, is_sampled: false, first_ticks: 0 };
        let (start_ticks, correlation) = (clock.now(), CudaSlot::of(slot).correlation.get());
        let at = At { start_ticks, duration_ticks: 0, correlation, state, recording: Recording::Off };
        launch::finish(hook, at, status, launch)
    })
}
