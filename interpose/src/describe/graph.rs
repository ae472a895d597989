//! Captures, graphs and their launches.

use core::sync::atomic::Ordering;

use gputrace_producer::session;
use gputrace_wire::call::{Detail, operation};
use gputrace_wire::cell::{flag, kind};

use super::written;
use crate::driver::{Handle, Status};
use crate::hook::{CAPTURES, Context, Did, On};
use crate::tables;

fn did(operation: u8, graph: u32, source: u32) -> Did {
    Did {
        kind: kind::GRAPH,
        flags: 0,
        stream: On::Nothing,
        detail: Detail::Graph { graph, source, operation },
    }
}

pub fn launch(cx: &Context, exec: Handle, stream: Handle) -> Did {
    let graph = cx.tables.graph(cx.session, exec, 1, 0);
    Did {
        kind: kind::GRAPH_LAUNCH,
        flags: flag::ASYNC,
        stream: On::Stream(stream),
        detail: Detail::GraphLaunch { graph },
    }
}

pub fn capture_begun(cx: &Context) -> Did {
    if cx.succeeded() {
        CAPTURES.fetch_add(1, Ordering::Relaxed);
    }
    did(operation::CAPTURE_BEGIN, 0, 0)
}

/// The end of an invalidated capture fails and ends it; any other failed end leaves it going on.
pub fn capture_ended(cx: &Context, out: *const Handle) -> Did {
    const ERROR_STREAM_CAPTURE_INVALIDATED: Status = 901;
    let has_ended = cx.succeeded() || cx.status == ERROR_STREAM_CAPTURE_INVALIDATED;
    let _ = has_ended
        && CAPTURES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1)).is_ok();
    // SAFETY: the call's own out pointer.
    let graph = unsafe { written(cx, out) }.filter(|graph| !graph.is_null());
    let graph = graph.map_or(0, |graph| cx.tables.graph_made(cx.session, graph, 0, 0));
    did(operation::CAPTURE_END, graph, 0)
}

/// `form` is 0 for a graph, 1 for an executable one.
pub fn made(cx: &Context, operation: u8, form: u64, out: *const Handle, source: Handle) -> Did {
    let source = if source.is_null() { 0 } else { cx.tables.graph(cx.session, source, 0, 0) };
    // SAFETY: the call's own out pointer.
    let graph = unsafe { written(cx, out) };
    let graph = graph.map_or(0, |graph| cx.tables.graph_made(cx.session, graph, form, source));
    did(operation, graph, source)
}

pub fn updated(cx: &Context, exec: Handle, source: Handle) -> Did {
    let source = cx.tables.graph(cx.session, source, 0, 0);
    did(operation::UPDATE, cx.tables.graph(cx.session, exec, 1, 0), source)
}

/// Before the original: once it returns, the handle may be somebody else's.
pub fn forget(graph: Handle) {
    if let Some(session) = session::current()
        && let Some(tables) = tables::of(session)
    {
        tables.forget_graph(graph);
    }
}

pub fn destroyed(_: &Context, _graph: Handle) -> Did {
    did(operation::DESTROY, 0, 0)
}
