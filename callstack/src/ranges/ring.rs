//! Writes a thread's open ranges to its ring: an entry at each push and pop, and all of them after an entry
//! was dropped.

use gputrace_producer::clock;
use gputrace_producer::session::Session;
use gputrace_producer::thread::{self, Slot};

use super::open::{Open, Range};
use crate::active_span::{self, Works};
use crate::stack_slot::{CALLBACKS, StackSlot};

/// The thread's open ranges; `None` if there is no memory for them.
#[inline(always)]
pub fn open_ranges(slot: &Slot) -> Option<&'static Open> {
    match StackSlot::of(slot).open.get() {
        None => take_open_ranges(slot),
        open => open,
    }
}

#[cold]
#[inline(never)]
fn take_open_ranges(slot: &Slot) -> Option<&'static Open> {
    let open = Open::take();
    StackSlot::of(slot).open.set(open);
    slot.set_callbacks(&CALLBACKS);
    thread::watch_end(slot);
    open
}

/// Writes the begin of the range at that position.
#[inline(always)]
pub fn write_push(session: &'static Session, slot: &Slot, open: &Open, position: u32) {
    if slot.is_caught_up()
        && let Some(entry) = open.next_to_say(position, |label| label.definition(session))
    {
        let works = Works::of_this_thread(session);
        let is_written = if active_span::precedes(slot, works) {
            active_span::emit_under(session, slot, &works.caller(session), entry.cells())
        } else {
            slot.emit(session, entry.cells())
        };
        if is_written {
            return open.push_said(position);
        }
        return slot.must_catch_up();
    }
    slot.must_catch_up();
    slot.begin_or_count(session);
}

/// Writes the end of a range, which the ring's list may or may not contain.
#[inline(always)]
pub fn write_pop(session: &'static Session, slot: &Slot, open: &Open, range: &Range, was_said: bool) {
    let end_ticks = clock::now();
    if was_said && slot.is_caught_up() {
        let pop = open.popped(range, end_ticks, |label| label.definition(session));
        let is_written = slot.emit(session, &[pop.to_cell()]);
        open.pop_said(range, is_written);
        if !is_written {
            slot.must_catch_up();
        }
    } else {
        // The ring is a new one, or its list lacks an entry: the list is written again, then the range's
        // begin and end together.
        if was_said {
            open.pop_said(range, false);
            slot.must_catch_up();
        }
        let end = range.ended(end_ticks, 0, |label| label.definition(session));
        slot.emit(session, &[end.to_cell()]);
    }
}
