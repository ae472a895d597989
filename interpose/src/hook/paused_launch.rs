//! A launch that comes while the session is paused, outside of captures: it is counted, and passed on. One
//! that fails is recorded; one during which the session goes on is counted, and marked.
//!
//! Such a launch mostly waits for cache lines that hold code: between two launches a program runs through far
//! more code than a core's first cache holds. So its hook is a naked function ([`hook`]), which touches no
//! more of the stack than the call needs, with one function before the call and one after it that all
//! launches share. Neither calls anything on its usual way.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::Ordering;

use gputrace_producer::clock::Clock;
use gputrace_producer::hook_state::Recording;
use gputrace_producer::{clock, fork, session, thread};

use crate::hook::launch::{self, LaunchCall};
use crate::hook::pause::At;
use crate::hook::steps::Hook;
use crate::hook::{captures, under_way};
use crate::symbols::driver::{SUCCESS, Status};
use crate::symbols::entry::Entry;
use crate::table::cuda_slot::CudaSlot;
use crate::table::kept_launch::KeptLaunch;

/// The body of a launch's hook, for a function of so many arguments; none is wider than a register. It jumps
/// to `in_full`, and nothing is changed, unless the session is paused and [`begin`] gives a function. After
/// the call it jumps to `recorded` if [`end`] says so, which describes the call and so gets its arguments.
///
/// The registers that hold arguments are saved on the stack, above a word for the status, until the call has
/// returned. A call that does not return, as its thread ends in it, leaves the thread inside of the hook.
macro_rules! hook {
    ($entry_at:expr, $entries:path, $arguments:expr, $in_full:path, $recorded:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "mov eax, [rip + {page} + {state}]",
            "and eax, {mask}",
            "cmp eax, {passes_over}",
            "jne {in_full}",
            ".irp register, rdi, rsi, rdx, rcx, r8, r9, rax",
            "push \\register",
            ".cfi_adjust_cfa_offset 8",
            ".endr",
            "lea rdi, [rip + {entries} + {entry_at}]",
            "call {begin}",
            $crate::hook::paused_launch::restore!(),
            "test rax, rax",
            "jz 2f",
            // The arguments behind the sixth, the last one first: what is pushed moves the next one to where
            // the last one was.
            ".if {pushed}",
            "sub rsp, {odd}",
            ".cfi_adjust_cfa_offset {odd}",
            ".rept {pushed}",
            "push qword ptr [rsp + {last_at}]",
            ".cfi_adjust_cfa_offset 8",
            ".endr",
            ".endif",
            "call rax",
            ".if {pushed}",
            "add rsp, {odd} + 8 * {pushed}",
            ".cfi_adjust_cfa_offset -({odd} + 8 * {pushed})",
            ".endif",
            "mov [rsp], rax",
            "mov edi, eax",
            "call {end}",
            "test al, al",
            "mov rax, [rsp]",
            "jz 3f",
            "add rsp, 56",
            ".cfi_adjust_cfa_offset -56",
            "ret",
            ".cfi_adjust_cfa_offset 56",
            "2:",
            "add rsp, 56",
            ".cfi_adjust_cfa_offset -56",
            "jmp {in_full}",
            ".cfi_adjust_cfa_offset 56",
            "3:",
            $crate::hook::paused_launch::restore!(),
            "add rsp, 56",
            ".cfi_adjust_cfa_offset -56",
            "jmp {recorded}",
            ".cfi_endproc",
            page = sym gputrace_producer::fork::PAGE,
            state = const gputrace_producer::fork::HOOK_STATE_AT,
            mask = const gputrace_producer::hook_state::OF_LAUNCHES,
            passes_over = const gputrace_producer::hook_state::PASSES_OVER_LAUNCHES,
            entries = sym $entries,
            entry_at = const $entry_at,
            pushed = const $crate::hook::paused_launch::pushed($arguments),
            odd = const $crate::hook::paused_launch::odd($arguments),
            last_at = const $crate::hook::paused_launch::last_at($arguments),
            begin = sym $crate::hook::paused_launch::begin,
            end = sym $crate::hook::paused_launch::end,
            in_full = sym $in_full,
            recorded = sym $recorded,
        )
    };
}
pub(crate) use hook;

/// The registers that hold arguments, as [`hook`] has saved them.
macro_rules! restore {
    () => {
        "mov r9, [rsp + 8]
         mov r8, [rsp + 16]
         mov rcx, [rsp + 24]
         mov rdx, [rsp + 32]
         mov rsi, [rsp + 40]
         mov rdi, [rsp + 48]"
    };
}
pub(crate) use restore;

/// Of so many arguments, those that are not passed in registers.
pub const fn pushed(arguments: usize) -> usize {
    arguments.saturating_sub(6)
}

/// What is left free below them: the stack is aligned to 16 bytes at a call.
pub const fn odd(arguments: usize) -> usize {
    pushed(arguments) % 2 * 8
}

/// Where the last one is: above seven words of ours, the return address, and the arguments before it.
pub const fn last_at(arguments: usize) -> usize {
    odd(arguments) + 8 * (7 + pushed(arguments))
}

/// Called before the launch: the function to call. Null, and nothing is changed, if it needs other steps.
pub extern "C" fn begin(entry: &'static Entry) -> *mut c_void {
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

/// Called after the launch. False if it is to be recorded or marked ([`record`]); the thread stays inside of
/// the hook then.
pub extern "C" fn end(status: Status) -> bool {
    thread::with(|slot| {
        let is_sampled = slot.is_sampled();
        let first_ticks = clock::counter_if(is_sampled);
        under_way::launch_ended(slot);
        if status != SUCCESS || !fork::of_process().hook_state().passes_over_launches() {
            KeptLaunch::of(slot).status.set(status);
            return false;
        }
        if !slot.count_paused_launch() {
            return end_without_ring();
        }
        if is_sampled {
            return end_sampled(clock::counter().wrapping_sub(first_ticks));
        }
        drop(slot.inside_again());
        true
    })
}

#[cold]
#[inline(never)]
extern "C" fn end_without_ring() -> bool {
    thread::with(|slot| {
        if let Some(session) = session::current() {
            slot.count_paused_launch_without_ring(session);
        }
        drop(slot.inside_again());
    });
    true
}

#[cold]
#[inline(never)]
extern "C" fn end_sampled(ticks: u64) -> bool {
    thread::with(|slot| {
        slot.add_cost(KeptLaunch::of(slot).own_ticks.get().wrapping_add(ticks));
        drop(slot.inside_again());
    });
    true
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_behind_the_sixth_are_pushed_from_where_the_caller_left_them() {
        // cuLaunchKernelEx and cuLaunchKernel; 8 bytes of the latter's are not used.
        assert_eq!((pushed(4), odd(4)), (0, 0));
        assert_eq!((pushed(11), odd(11), last_at(11)), (5, 8, 8 + 56 + 8 + 4 * 8));
        assert_eq!((pushed(8), odd(8), last_at(8)), (2, 0, 56 + 8 + 8));
    }
}
