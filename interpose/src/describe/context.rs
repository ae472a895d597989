//! Initialisation, contexts and streams.

use core::ffi::{c_int, c_uint};

use gputrace_producer::{service, session};
use gputrace_wire::call::operation;

use super::{sync, written};
use crate::hook::description::{Context, Description};
use crate::symbols::driver::{Device, Handle};
use crate::table::{streams, tables};

/// A `cuInit` during a session. The first one found no session, and the start that it caused may still run:
/// `wait` waits for it.
pub fn initialised(cx: &Context, flags: c_uint, wait: fn()) -> Description {
    wait();
    sync::other(cx, operation::INITIALISE, flags.into())
}

/// What the service thread does.
#[derive(Clone, Copy)]
pub struct Service {
    pub turn: service::Turn,
    pub between: service::Between,
}

/// A context exists, so the driver has threads of its own, and a thread of ours makes no single-threaded
/// program multi-threaded. That thread calls `run`.
pub fn created(cx: &Context, out: *const Handle, device: Device, run: Service) -> Description {
    // SAFETY: the call's own out pointer.
    if let Some(context) = unsafe { written(cx, out) } {
        cx.tables.context(cx.session, context, device);
        streams::forget_current_context();
        service::set_between(run.between);
        service::start(cx.session, run.turn);
    }
    sync::other(cx, operation::CREATE, device as u64)
}

pub fn forget(context: Handle) {
    if let Some(session) = session::current()
        && let Some(tables) = tables::of(session)
    {
        tables.forget_context(context);
    }
}

pub fn destroyed(cx: &Context, context: Handle) -> Description {
    streams::forget_current_context();
    sync::other(cx, operation::DESTROY, context as u64)
}

pub fn released(cx: &Context, device: Device) -> Description {
    streams::forget_current_context();
    sync::other(cx, operation::DESTROY, device as u64)
}

pub fn switched(cx: &Context, context: Handle) -> Description {
    streams::forget_current_context();
    sync::other(cx, operation::SET_CURRENT, context as u64)
}

pub fn stream_created(cx: &Context, out: *const Handle, flags: c_uint, priority: c_int) -> Description {
    // SAFETY: the call's own out pointer.
    let stream = unsafe { written(cx, out) };
    if let Some(stream) = stream {
        cx.tables.stream_created(cx.session, stream, flags, priority);
    }
    sync::other(cx, operation::CREATE, stream.map_or(0, |stream| stream as u64))
}

/// Called before the original: once that returns, the handle may be reused.
pub fn forget_stream(stream: Handle) {
    if let Some(session) = session::current()
        && let Some(tables) = tables::of(session)
    {
        tables.forget_stream(stream);
    }
}
