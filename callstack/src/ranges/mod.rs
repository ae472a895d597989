//! Ranges: what the program reports that it is doing, thread by thread.
//!
//! ```text
//!   push, pop ─► the thread's open ranges ─┬─► RANGE_PUSH, RANGE_POP in the thread's ring
//!                (with or without session) └─► all of them again, once there is another ring
//!   start, end ─► the process's started ranges ─► RANGE_START, RANGE_END
//! ```
//!
//! The module knows no API: `interpose` forwards NVTX to it, and framework operators can use it.
//! Open ranges are kept whether or not a session runs, since a range that is pushed before the
//! session may still be open in it. Nothing here locks, allocates from the program's heap, or makes
//! a system call, once a thread has its page and a name is known.

mod label;
mod look;
pub(crate) mod open;
mod ring;
mod started;
mod threads;

use gputrace_producer::session::Session;
use gputrace_producer::{clock, session, thread};
use gputrace_wire::caller::Caller;
use gputrace_wire::cell::kind;
use gputrace_wire::counter::Counter;
use gputrace_wire::range::RangeBegin;

pub use label::{Label, NAME_MAX};
pub use look::Look;
pub use threads::{name_thread, say_threads};

/// Returned by a push or pop when there is no memory to keep ranges in.
pub const NOT_KEPT: i32 = -2;
/// Returned by a pop when no range of its domain is open on the thread.
pub const NONE_OPEN: i32 = -1;

/// Makes the tables; false if there is no memory for them. Reads a file, once.
pub fn prepare() -> bool {
    // The clock is chosen now; otherwise ranges from before the session would be stamped by another clock.
    clock::kind();
    label::prepare()
}

/// Opens a range on the calling thread, which may name a span. Returns how many ranges of its domain are
/// open around it.
pub fn push(domain: Label, label: Label, look: Look, caller: &Caller) -> i32 {
    thread::with(|slot| {
        let inside = slot.enter();
        let Some(open) = ring::open_ranges(slot) else { return NOT_KEPT };
        let pushed = open.push(domain, label, look, clock::now());
        if let Some(position) = pushed.position.filter(|_| !caller.is_nobody()) {
            open.name_caller(position, caller);
        }
        if let Some(session) = session::current() {
            match (pushed.position, inside) {
                (None, _) => session.count(Counter::RangesTooDeep, 1),
                (Some(position), Some(_inside)) => ring::write_push(session, slot, open, position),
                // A signal handler inside a hook: the range is written with the next entry, if it is still
                // open then.
                (Some(_), None) => slot.must_catch_up(),
            }
        }
        pushed.level
    })
}

/// Closes the latest range of the domain on the calling thread. Returns how many of the domain stay open.
pub fn pop(domain: Label) -> i32 {
    thread::with(|slot| {
        let inside = slot.enter();
        let Some(open) = ring::open_ranges(slot) else { return NOT_KEPT };
        let Some(popped) = open.pop(domain) else { return NONE_OPEN };
        if let (Some(range), Some(session)) = (popped.range, session::current()) {
            match inside {
                Some(_inside) => ring::write_pop(session, slot, open, &range, popped.was_said),
                None => {
                    // The range is lost, and counted like a call inside a hook.
                    session.count(Counter::Nested, 1);
                    if popped.was_said {
                        open.pop_said(&range, false);
                        slot.must_catch_up();
                    }
                }
            }
        }
        popped.level
    })
}

/// Starts a range that any thread may end. Returns its number, which is never 0.
pub fn start(label: Label, look: Look) -> u64 {
    let start_ticks = clock::now();
    let id = started::add(label, start_ticks);
    begin(kind::RANGE_START, label, look, start_ticks, id);
    id
}

/// Ends the range of that number. Does nothing if it is not open.
pub fn end(id: u64) {
    let Some(range) = started::take(id) else { return };
    with_session(|slot, session| {
        slot.emit(session, &[range.ended(clock::now(), id, |label| label.definition(session)).to_cell()]);
    });
}

/// Records a mark: a moment without duration.
pub fn mark(label: Label, look: Look) {
    begin(kind::MARK, label, look, clock::now(), 0);
}

fn begin(kind: u16, label: Label, look: Look, start_ticks: u64, id: u64) {
    with_session(|slot, session| {
        let begin = RangeBegin { id, ..look.begin(kind, label.definition(session), start_ticks) };
        slot.emit(session, &[begin.to_cell()]);
    });
}

/// Calls a function if a session records and the thread is in no hook; otherwise counts the event.
#[inline(always)]
fn with_session(act: impl FnOnce(&thread::Slot, &'static Session)) {
    let Some(session) = session::current() else { return };
    thread::with(|slot| match slot.enter() {
        Some(_inside) => act(slot, session),
        None => session.count(Counter::Nested, 1),
    });
}

/// Defines the name of one of the program's resources.
pub fn name_thing(session: &Session, of: u32, name: &[u8]) {
    if of != 0 {
        session.define(gputrace_wire::definition::kind::LABEL, &[of.into()], name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_count_by_domain_and_what_is_not_open_cannot_be_popped() {
        assert!(prepare());
        std::thread::spawn(|| {
            let domain = Label::domain(b"a library");
            let (name, its) = (Label::range(Label::NONE, b"step"), Label::range(domain, b"step"));
            assert_ne!(name, its);
            let look = Look::default();
            assert_eq!(pop(Label::NONE), NONE_OPEN);
            assert_eq!(push(Label::NONE, name, look, &Caller::NOBODY), 0);
            assert_eq!(push(domain, its, look, &Caller::NOBODY), 0);
            assert_eq!(push(Label::NONE, name, look, &Caller::NOBODY), 1);
            assert_eq!(push(domain, its, look, &Caller::NOBODY), 1);
            assert_eq!(pop(Label::NONE), 1);
            assert_eq!(push(Label::NONE, name, look, &Caller::NOBODY), 1);
            assert_eq!((pop(Label::NONE), pop(Label::NONE), pop(Label::NONE)), (1, 0, NONE_OPEN));
            assert_eq!((pop(domain), pop(domain), pop(domain)), (1, 0, NONE_OPEN));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn numbers_of_started_ranges_are_unique_and_end_once() {
        assert!(prepare());
        let label = Label::range(Label::NONE, b"crossing");
        let ids: Vec<u64> = (0..3000).map(|_| start(label, Look::default())).collect();
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), ids.len());
        assert!(!ids.contains(&0));
        for id in ids.iter().chain(&ids).chain(&[0, 1, u64::MAX]) {
            end(*id);
        }
        assert!(started::take(ids[0]).is_none());
    }
}
