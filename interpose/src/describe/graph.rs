//! Describes calls that capture, build, launch or destroy graphs.

use core::ffi::{c_int, c_void};

use cupti_sys::driver::CUDA_MEM_ALLOC_NODE_PARAMS_v1 as Allocation;
use gputrace_producer::session;
use gputrace_wire::call::{Detail, operation};
use gputrace_wire::cell::{flag, kind};

use super::{memory, written};
use crate::hook::captures;
use crate::hook::description::{Context, Description, On};
use crate::symbols::driver::{Handle, Status};
use crate::table::tables;

fn description(operation: u8, graph: u32, source: u32) -> Description {
    Description {
        kind: kind::GRAPH,
        flags: 0,
        stream: On::Nothing,
        detail: Detail::Graph { graph, source, operation },
    }
}

pub fn launch(cx: &Context, exec: Handle, stream: Handle) -> Description {
    let graph = cx.tables.graph(cx.session, exec, 1, 0);
    Description {
        kind: kind::GRAPH_LAUNCH,
        flags: flag::ASYNC,
        stream: On::Stream(stream),
        detail: Detail::GraphLaunch { graph },
    }
}

pub fn capture_begun(cx: &Context) -> Description {
    if cx.succeeded() {
        captures::begins();
    }
    description(operation::CAPTURE_BEGIN, 0, 0)
}

/// The end of an invalidated capture fails and still ends it. After any other failure the capture goes on.
pub fn capture_ended(cx: &Context, out: *const Handle) -> Description {
    const ERROR_STREAM_CAPTURE_INVALIDATED: Status = 901;
    if cx.succeeded() || cx.status == ERROR_STREAM_CAPTURE_INVALIDATED {
        captures::ends();
    }
    // SAFETY: the call's own out pointer.
    let graph = unsafe { written(cx, out) }.filter(|graph| !graph.is_null());
    let graph = graph.map_or(0, |graph| cx.tables.graph_made(cx.session, graph, 0, 0));
    description(operation::CAPTURE_END, graph, 0)
}

/// `form` is 0 for a graph, 1 for an executable one.
pub fn made(cx: &Context, operation: u8, form: u64, out: *const Handle, source: Handle) -> Description {
    let source = if source.is_null() { 0 } else { cx.tables.graph(cx.session, source, 0, 0) };
    // SAFETY: the call's own out pointer.
    let graph = unsafe { written(cx, out) };
    let graph = graph.map_or(0, |graph| cx.tables.graph_made(cx.session, graph, form, source));
    description(operation, graph, source)
}

pub fn updated(cx: &Context, exec: Handle, source: Handle) -> Description {
    let source = cx.tables.graph(cx.session, source, 0, 0);
    description(operation::UPDATE, cx.tables.graph(cx.session, exec, 1, 0), source)
}

/// `child` is the graph that the node holds a copy of, or null.
pub fn node_added(cx: &Context, graph: Handle, child: Handle) -> Description {
    if !cx.succeeded() {
        return description(operation::ADD_NODE, 0, 0);
    }
    let child = if child.is_null() { 0 } else { cx.tables.graph(cx.session, child, 0, 0) };
    description(operation::ADD_NODE, cx.tables.graph(cx.session, graph, 0, 0), child)
}

/// A node that allocates memory when the graph is launched.
pub fn allocation_added(cx: &Context, graph: Handle, what: *const Allocation) -> Description {
    // SAFETY: the call's own argument, into which the driver has written the address.
    match unsafe { written(cx, what) } {
        Some(node) => memory::in_graph(node.bytesize as u64, node.dptr),
        None => node_added(cx, graph, core::ptr::null_mut()),
    }
}

/// A node whose kind is given by its parameters.
pub fn any_node_added(cx: &Context, graph: Handle, parameters: *const c_void) -> Description {
    // SAFETY: the driver has just read these parameters and written into them, if it succeeded.
    let node = if cx.succeeded() { unsafe { node_in(parameters.cast()) } } else { AddedNode::Other };
    match node {
        AddedNode::Allocation { bytes, address } => memory::in_graph(bytes, address),
        AddedNode::Graph(child) => node_added(cx, graph, child),
        AddedNode::Other => node_added(cx, graph, core::ptr::null_mut()),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AddedNode {
    Graph(Handle),
    Allocation { bytes: u64, address: u64 },
    Other,
}

/// A node's parameters begin with the node's kind; what a kind has of its own is at byte 16.
///
/// # Safety
///
/// The pointer is null or points to a `CUgraphNodeParams`.
unsafe fn node_in(parameters: *const u8) -> AddedNode {
    const KIND_GRAPH: c_int = 4;
    const KIND_ALLOCATION: c_int = 10;
    const AT_OWN: usize = 16;
    if parameters.is_null() {
        return AddedNode::Other;
    }
    // SAFETY: the caller's `CUgraphNodeParams` has 256 bytes.
    unsafe {
        let own = parameters.add(AT_OWN);
        match parameters.cast::<c_int>().read_unaligned() {
            KIND_GRAPH => AddedNode::Graph(own.cast::<Handle>().read_unaligned()),
            KIND_ALLOCATION => {
                let made = own.cast::<Allocation>().read_unaligned();
                AddedNode::Allocation { bytes: made.bytesize as u64, address: made.dptr }
            }
            _ => AddedNode::Other,
        }
    }
}

/// Called before the original: once that returns, the handle may be reused.
pub fn forget(graph: Handle) -> u32 {
    session::current().and_then(tables::of).map_or(0, |tables| tables.forget_graph(graph))
}

/// `graph` is the result of `forget`.
pub fn destroyed(_: &Context, graph: u32) -> Description {
    description(operation::DESTROY, graph, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cupti_sys::driver::CUgraphNodeParams;

    #[test]
    fn nodes_are_where_the_parameters_have_them() {
        // SAFETY: plain data, for which zero is valid.
        let mut parameters: CUgraphNodeParams = unsafe { core::mem::zeroed() };
        let bytes = (&raw mut parameters).cast::<u8>();
        // SAFETY: the bytes are such parameters.
        assert_eq!(unsafe { node_in(bytes) }, AddedNode::Other);
        // SAFETY: both are inside the structure.
        unsafe {
            bytes.cast::<c_int>().write(4);
            bytes.add(16).cast::<usize>().write(0x1230);
        }
        // SAFETY: as above.
        assert_eq!(unsafe { node_in(bytes) }, AddedNode::Graph(0x1230 as Handle));
        // SAFETY: plain data, for which zero is valid.
        let mut made: Allocation = unsafe { core::mem::zeroed() };
        (made.bytesize, made.dptr) = (4 << 20, 0x7000);
        // SAFETY: both are inside the structure.
        unsafe {
            bytes.cast::<c_int>().write(10);
            bytes.add(16).cast::<Allocation>().write(made);
        }
        // SAFETY: as above.
        assert_eq!(unsafe { node_in(bytes) }, AddedNode::Allocation { bytes: 4 << 20, address: 0x7000 });
        // SAFETY: null is allowed.
        assert_eq!(unsafe { node_in(core::ptr::null()) }, AddedNode::Other);
    }
}
