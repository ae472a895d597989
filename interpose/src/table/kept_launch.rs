//! What one function keeps of a launch for the next one: the steps of a launch are several functions, so that
//! rare ones are not among those that every launch runs through.

use core::cell::Cell;

use gputrace_producer::session::Session;
use gputrace_producer::thread::Slot;

use crate::symbols::driver::Status;

/// In the slot of the launching thread, which stays inside of its hook meanwhile.
#[derive(Debug)]
pub struct KeptLaunch {
    pub session: Cell<Option<&'static Session>>,
    pub start_ticks: Cell<u64>,
    pub duration_ticks: Cell<u64>,
    /// If the hook's own time is measured: of a launch that was to be plain, the first reading of the
    /// clock; of a paused one, the time before its call.
    pub own_ticks: Cell<u64>,
    /// The word of the [`HookState`](gputrace_producer::hook_state::HookState) as the call began.
    pub state: Cell<u32>,
    pub status: Cell<Status>,
}

impl KeptLaunch {
    #[inline(always)]
    pub fn of(slot: &Slot) -> &KeptLaunch {
        // SAFETY: cells of numbers and of an optional reference, for which zero is valid; only this function
        // uses the area.
        unsafe { slot.kept.content() }
    }
}
