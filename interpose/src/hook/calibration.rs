//! How long launch calls take inside and outside of windows of device times: the difference is what CUPTI's
//! record costs the program. And what the hooks of those inside cost, which record everything. Only calls
//! whose hook measures its own cost come here.

use gputrace_producer::hook_state::{HookState, Timing};
use gputrace_producer::session::Session;
use gputrace_producer::thread::Slot;

use crate::symbols::driver::{SUCCESS, Status};
use crate::symbols::entry::Entry;

/// 44 µs of a 3 GHz counter. A launch that takes longer waited for a full queue or was preempted.
const TICKS_MOST: u64 = 1 << 17;

#[cold]
#[inline(never)]
pub fn add(
    session: &Session,
    slot: &Slot,
    entry: &Entry,
    before: HookState,
    status: Status,
    ticks: u64,
    hook_ticks: u64,
) {
    let after = session.hook_state();
    let is_launch = entry.base.starts_with("cuLaunchKernel");
    let is_outside = before.timing() == Timing::Off && after.timing() == Timing::Off;
    let is_inside = before.window() != 0 && !before.is_untimed_at_either(after);
    if is_launch && status == SUCCESS && ticks < TICKS_MOST && (is_inside || is_outside) {
        slot.add_launch(is_inside, ticks, hook_ticks);
    }
}
