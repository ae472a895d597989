//! The active span: the span of another tracer that the calling thread's work belongs to, and the ring's
//! CALLER entries.

use gputrace_producer::clock;
use gputrace_producer::session::Session;
use gputrace_producer::thread::Slot;
use gputrace_wire::caller::{Caller, CallerEntry};
use gputrace_wire::cell::Cell;

use crate::python::callers;
use crate::python::runtime::{self, Runtime};
use crate::stack_slot::{CALLBACKS, StackSlot};
use crate::torch;

/// Whether the thread may have an active span, and which source to ask for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Works(u64);

impl Works {
    /// No active span, as far as was checked.
    pub const NOT: Works = Works(0);
    /// No stack, and no [`Works`]; the compiler does not know that they are 0. Where there may be another one
    /// it would otherwise jump to set each to 0, and back.
    #[inline(always)]
    pub fn of_no_stack() -> (u32, Works) {
        let zero: u64;
        // SAFETY: sets a register.
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        unsafe {
            core::arch::asm!("xor {zero:e}, {zero:e}", zero = out(reg) zero, options(pure, nomem, nostack));
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        {
            zero = 0;
        }
        (zero as u32, Works(zero))
    }

    /// All sources must be asked. Values other than this and [`Works::NOT`] are the address of the thread's
    /// Python state, which is at neither.
    pub(crate) const ASK: Works = Works(1);

    /// Whether the calling thread may have an active span, as far as Python knows.
    #[inline(always)]
    pub fn of_this_thread(session: &Session) -> Works {
        runtime::of_this_thread(session)
            .map_or(Works::NOT, |(runtime, state)| Works::of_state(runtime, state))
    }

    /// The same for the calling thread's Python state.
    #[inline(always)]
    pub(crate) fn of_state(runtime: &Runtime, state: u64) -> Works {
        Works::with_stack(0, runtime, state).1
    }

    /// The same, with a stack's id, which is only passed through. So a caller that returns both calls nothing
    /// on a thread without a context of Python's variables, and ends by a jump to `in_context` on any other.
    #[inline(always)]
    pub(crate) fn with_stack(stack: u32, runtime: &Runtime, state: u64) -> (u32, Works) {
        match callers::context_of_state(runtime, state) {
            0 => (stack, Works::NOT),
            context => Works::in_context(stack, runtime, state, context),
        }
    }

    /// The same on a thread that has such a context.
    #[inline(never)]
    fn in_context(stack: u32, runtime: &Runtime, state: u64, context: u64) -> (u32, Works) {
        let may_be = callers::may_be_span_in(runtime, context);
        (stack, if may_be { Works(state) } else { Works::NOT })
    }

    #[inline(always)]
    pub fn may_be(self) -> bool {
        self != Works::NOT
    }

    /// The thread's active span. `self` must have been computed in the same hooked call.
    #[inline(always)]
    pub fn caller(self, session: &Session) -> Caller {
        let python = match (self, runtime::current()) {
            (Works(state), Some(runtime)) if state > Works::ASK.0 => Some((runtime, state)),
            _ => runtime::of_this_thread(session),
        };
        let own =
            python.map_or(Caller::NOBODY, |(runtime, state)| callers::of_state(session, runtime, state));
        if !own.is_nobody() {
            return own;
        }
        // A thread of PyTorch's has the active span of the call that began its backward pass.
        torch::around(session.generation).map_or(Caller::NOBODY, |around| around.outside.caller)
    }
}

/// Whether [`write`] must come before the thread's next entry, as in [`emit_under`]: the thread may have an
/// active span, or the ring's last CALLER entry names one.
#[inline(always)]
pub fn precedes(slot: &Slot, works: Works) -> bool {
    works.may_be() || StackSlot::of(slot).has_span.get()
}

/// Writes a CALLER entry if the active span changed. Returns false if the CALLER entry and an entry of
/// `cells` cells do not fit together. The entry then counts as dropped and must not follow, since the
/// reader would assign it to another span.
#[inline(always)]
pub fn write(session: &'static Session, slot: &Slot, span: &Caller, cells: usize) -> bool {
    let is_unchanged = slot.is_caught_up() && StackSlot::of(slot).span.get() == *span;
    is_unchanged || write_changed(session, slot, span, cells)
}

#[cold]
#[inline(never)]
fn write_changed(session: &'static Session, slot: &Slot, span: &Caller, cells: usize) -> bool {
    if !slot.is_caught_up() && !slot.begin_or_count(session) {
        return false;
    }
    let state = StackSlot::of(slot);
    // The ring may be a new one, in which no span is named yet.
    if state.span.get() == *span {
        return true;
    }
    let entry = CallerEntry { caller: *span, ticks: clock::now() };
    let fits = slot.emit_ahead(session, &[entry.to_cell()], cells);
    if fits {
        slot.set_callbacks(&CALLBACKS);
        state.span.set(*span);
        state.has_span.set(!span.is_nobody());
    }
    fits
}

/// As [`Slot::emit`], for an entry that belongs to `span`.
#[inline(never)]
pub fn emit_under(session: &'static Session, slot: &Slot, span: &Caller, cells: &[Cell]) -> bool {
    write(session, slot, span, cells.len()) && slot.emit(session, cells)
}
