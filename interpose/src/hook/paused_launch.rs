//! A launch that comes while the session is paused, outside of captures: it is counted, and passed on. One
//! that fails is recorded; one during which the session goes on is counted, and marked.
//!
//! All launches share these functions, which [`around_launch`](super::around_launch) calls.

use core::ffi::c_void;
use core::hint::cold_path;

use gputrace_producer::clock::Clock;
use gputrace_producer::hook_state::Recording;
use gputrace_producer::{clock, fork, session, thread};

use crate::hook::launch::{self, LaunchCall};
use crate::hook::launch_frame::{Frame, NOT_DONE};
use crate::hook::pause::At;
use crate::hook::steps::Hook;
use crate::hook::under_way;
use crate::symbols::driver::{SUCCESS, Status};
use crate::symbols::entry::Entry;
use crate::table::cuda_slot::CudaSlot;
use crate::table::kept_launch::KeptLaunch;

// Both functions lie together, in one page.
core::arch::global_asm!(
    ".pushsection .text.hot.hooks.paused, \"ax\", @progbits",
    ".subsection 1",
    ".p2align 10",
    ".popsection",
);

/// Called before the launch: the function to call. Null, and nothing is changed, if it needs other steps.
#[unsafe(link_section = ".text.hot.hooks.paused")]
pub extern "C" fn begin(_: Frame, entry: &'static Entry) -> *mut c_void {
    launch::begin_inside(entry, |slot| {
        let state = fork::of_process().state();
        let is_paused = state.generation() != 0 && state.hook_state().passes_over_launches();
        // Where there is no counter, other steps measure.
        if !is_paused || slot.is_next_sampled() && !clock::has_counter() {
            cold_path();
            return false;
        }
        let mut first_ticks = 0;
        if slot.samples_cost() {
            cold_path();
            first_ticks = clock::counter();
        }
        slot.expect_paused_launch();
        // CUPTI's callback sets it during the driver's call, if there is one.
        CudaSlot::of(slot).correlation.set(0);
        let counts = state.hook_state().counts_under_way();
        if counts && !under_way::launch_begins_on_own(slot, state.generation()) {
            cold_path();
            begin_in_turn(first_ticks);
            return true;
        }
        let last_ticks = slot.counter_if_sampled();
        if last_ticks != 0 {
            cold_path();
            KeptLaunch::of(slot).own_ticks.set(last_ticks.wrapping_sub(first_ticks));
        }
        true
    })
}

/// The rest of [`begin`] for a launch that may have to wait.
#[cold]
#[inline(never)]
extern "C" fn begin_in_turn(first_ticks: u64) {
    thread::with(|slot| {
        under_way::launch_begins(slot, fork::generation());
        if slot.is_sampled() {
            KeptLaunch::of(slot).own_ticks.set(clock::counter().wrapping_sub(first_ticks));
        }
    });
}

/// Called after the launch. Not 0 if it is to be recorded or marked, or calls are held now ([`record`]); the
/// thread stays inside of the hook then.
#[unsafe(link_section = ".text.hot.hooks.paused")]
pub extern "C" fn end(_: Frame, status: Status) -> Status {
    thread::with(|slot| {
        let first_ticks = slot.counter_if_sampled();
        under_way::launch_ended(slot);
        if status != SUCCESS || !fork::of_process().hook_state().passes_over_launches() {
            cold_path();
            KeptLaunch::of(slot).status.set(status);
            return NOT_DONE;
        }
        if !slot.count_paused_launch() {
            return end_without_ring();
        }
        if first_ticks != 0 {
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
