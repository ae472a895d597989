//! The steps every hook takes, and what it learns on the way.
//!
//! 1. No session: call the original, nothing else.
//! 2. Already inside on this thread: call the original, count.
//! 3. Guard; note the start.
//! 4. Call the original *exactly once*; note the end.
//! 5. Describe the call (first sights, which may make system calls, keep errno), write one event, return the original's result untouched.

use core::sync::atomic::{AtomicU32, Ordering};

use gputrace_callstack::active_span::{self, Works};
use gputrace_producer::session::Session;
use gputrace_producer::stderr::KeepErrno;
use gputrace_producer::thread::Slot;
use gputrace_producer::{clock, session, thread};
use gputrace_wire::call::{Call, Detail};
use gputrace_wire::cell::flag;
use gputrace_wire::counter::Counter;

use crate::api::Entry;
use crate::cuda_slot::CudaSlot;
use crate::describe::graph;
use crate::driver::{self, Handle, SUCCESS, Status};
use crate::tables::{self, Tables};
use crate::{python, start};

/// CUDA_ERROR_NOT_READY: what was asked about is not done yet.
const NOT_READY: Status = 600;
/// CUDA_ERROR_DEINITIALIZED.
const DEINITIALIZED: Status = 4;

/// What a description may use: the session, its tables, and how the call ended.
#[derive(Clone, Copy)]
pub struct Context {
    pub session: &'static Session,
    pub tables: &'static Tables,
    pub status: Status,
}

impl Context {
    pub fn succeeded(&self) -> bool {
        self.status == SUCCESS
    }
}

/// What a call did, said by `describe`.
#[derive(Clone, Copy)]
pub struct Did {
    pub kind: u16,
    pub flags: u8,
    pub stream: On,
    pub detail: Detail,
}

/// The stream a call works on.
#[derive(Clone, Copy)]
pub enum On {
    /// It works on none.
    Nothing,
    /// It works on this stream, and what it asks for may be captured instead of executed.
    Stream(Handle),
}

/// How many stream captures are under way in the process. While there are none, no launch asks
/// whether its stream is capturing. Too high a count costs a look-up a launch, nothing else.
pub static CAPTURES: AtomicU32 = AtomicU32::new(0);

/// Takes the steps around a call.
#[inline(always)]
pub fn around(
    entry: &'static Entry,
    original: impl FnOnce() -> Status,
    describe: impl FnOnce(&Context) -> Did,
) -> Status {
    let Some(session) = session::current() else {
        // The session may be published while the call is under way, which then is in no record.
        let was_starting = session::is_starting();
        return start::without_session(entry, was_starting, original());
    };
    thread::with(|slot| {
        let Some(_inside) = slot.enter() else {
            session.count(Counter::Nested, 1);
            return original();
        };
        let sampled = slot.samples_cost().then(clock::now);
        if let Some(tables) = tables::of(session) {
            tables.expect(entry, slot);
        }
        let vendor = CudaSlot::of(slot);
        vendor.correlation.set(0);
        let start_ticks = clock::now();
        let status = original();
        let end_ticks = clock::now();
        let correlation = vendor.correlation.take();
        // Asked again: they may have been made in the meantime.
        if let Some(tables) = tables::of(session) {
            let context = Context { session, tables, status };
            let did = describe(&context);
            let mut flags = did.flags | if entry.per_thread { flag::PER_THREAD_STREAM } else { 0 };
            let mut stream = 0;
            // A call that failed may have been given no stream at all.
            if let On::Stream(handle) = did.stream
                && status == SUCCESS
            {
                if CAPTURES.load(Ordering::Relaxed) > 0 && is_capturing(handle, entry.per_thread) {
                    flags |= flag::CAPTURED;
                }
                stream = tables.stream(session, slot, handle, entry.per_thread);
            }
            let (stack, works) = if python::is_told_with_stack(did.kind) || has_failed(status) {
                tables.stack_and_works(session, slot)
            } else {
                (0, Works::of_this_thread(session))
            };
            let call = Call {
                kind: did.kind,
                flags,
                api: tables.api(session, entry),
                start_ticks,
                duration_ticks: end_ticks.wrapping_sub(start_ticks),
                correlation: if flags & flag::CAPTURED == 0 { correlation } else { 0 },
                stack,
                context: 0,
                stream,
                status: status.clamp(0, 0xffff) as u16,
                detail: did.detail,
            };
            if !(works.may_be() || active_span::is_in_ring(slot)) || says_for_whom(session, slot, works) {
                slot.emit(session, &[call.to_cell()]);
            }
            if vendor.nodes.get().1 != 0 {
                graph::tell_nodes(&context, slot, &call);
            }
        } else {
            // There was no memory for the tables, and the session is being given up.
            session.count(Counter::BeforeSession, 1);
        }
        if let Some(first_ticks) = sampled {
            // All but the original: from the first reading to its start, and from its end to now.
            let own = start_ticks.wrapping_sub(first_ticks) + clock::now().wrapping_sub(end_ticks);
            slot.add_cost(own);
        }
        status
    })
}

/// Around a call that is told only where it fails: programs ask it over and over, or it takes no time. While it succeeds
/// this costs one reading of the clock.
#[inline(always)]
pub fn around_failure(
    entry: &'static Entry,
    original: impl FnOnce() -> Status,
    describe: impl FnOnce(&Context) -> Did,
) -> Status {
    let start_ticks = clock::now();
    let status = original();
    if status != SUCCESS && status != NOT_READY {
        failed(entry, start_ticks, status, describe);
    }
    status
}

#[cold]
#[inline(never)]
fn failed(entry: &'static Entry, start_ticks: u64, status: Status, describe: impl FnOnce(&Context) -> Did) {
    let end_ticks = clock::now();
    let Some(session) = session::current() else { return };
    thread::with(|slot| {
        let Some(_inside) = slot.enter() else {
            return session.count(Counter::Nested, 1);
        };
        let Some(tables) = tables::of(session) else { return session.count(Counter::BeforeSession, 1) };
        let did = describe(&Context { session, tables, status });
        let stack = if has_failed(status) { tables.stack(session, slot) } else { 0 };
        let call = Call {
            kind: did.kind,
            flags: did.flags | if entry.per_thread { flag::PER_THREAD_STREAM } else { 0 },
            api: tables.api(session, entry),
            start_ticks,
            duration_ticks: end_ticks.wrapping_sub(start_ticks),
            stack,
            status: status.clamp(0, 0xffff) as u16,
            detail: did.detail,
            ..Call::default()
        };
        if says_for_whom(session, slot, Works::of_this_thread(session)) {
            slot.emit(session, &[call.to_cell()]);
        }
    });
}

/// Whether a call failed that somebody should find. Calls at the process's end are told that the driver
/// is gone, and then an interpreter may be going, too.
#[inline(always)]
fn has_failed(status: Status) -> bool {
    status != SUCCESS && status != DEINITIALIZED
}

/// Says for whom the thread works, where it works for somebody or did so far. False if that does not fit, and the call's
/// event must not follow. It does not see the event, which can stay in registers.
#[cold]
#[inline(never)]
fn says_for_whom(session: &'static Session, slot: &Slot, works: Works) -> bool {
    active_span::write(session, slot, &works.caller(session), 1)
}

/// Whether what was just asked of the stream went into a capture. The legacy default stream
/// cannot be captured, and asking about it during somebody's capture is an error of its own.
#[cold]
fn is_capturing(stream: Handle, per_thread: bool) -> bool {
    let _errno = KeepErrno::new();
    let mut status = 0;
    let asked = match (stream as usize, per_thread) {
        (0, false) | (1, _) => return false,
        (_, true) => driver::stream_is_capturing_per_thread(stream, &mut status),
        (_, false) => driver::stream_is_capturing(stream, &mut status),
    };
    // 1 is CU_STREAM_CAPTURE_STATUS_ACTIVE.
    asked == Some(SUCCESS) && status == 1
}
