//! What this library exports besides the driver's functions: its mark, and the table for the simulated CUPTI.

use gputrace_sim::interface::{Interface, VERSION};
use gputrace_sim::{activity, calls, clock, context, status, world};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Tools recognize the simulated driver by this symbol. The value is the package's version as a number.
#[unsafe(no_mangle)]
pub extern "C" fn gputrace_sim_version() -> u32 {
    let part = |text: &str| text.parse::<u32>().unwrap_or(0);
    part(env!("CARGO_PKG_VERSION_MAJOR")) * 10_000
        + part(env!("CARGO_PKG_VERSION_MINOR")) * 100
        + part(env!("CARGO_PKG_VERSION_PATCH"))
}

/// The table for `libcupti.so`; its name is `interface::SYMBOL`.
#[unsafe(no_mangle)]
pub extern "C" fn gputrace_sim_interface() -> *const Interface {
    &INTERFACE
}

static INTERFACE: Interface = Interface {
    version: VERSION,
    size: size_of::<Interface>() as u32,
    initialised,
    now_ns,
    time_of_day_offset_ns,
    subscribe_activity,
    subscribe_calls,
    subscribe_nodes,
    claim_tool_slot,
    release_tool_slot,
    enable_call,
    context_uid,
    context_device,
    stream_id,
    graph_id,
    executable_id,
    node_id,
    current_context,
};

extern "C" fn initialised() -> bool {
    status::read() & (status::INITIALISED | status::FORKED) == status::INITIALISED
}

extern "C" fn now_ns() -> u64 {
    clock::now_ns()
}

extern "C" fn time_of_day_offset_ns() -> u64 {
    clock::time_of_day_offset_ns()
}

extern "C" fn subscribe_activity(sink: Option<activity::Sink>, kinds: u64) {
    activity::subscribe(sink, kinds);
}

extern "C" fn subscribe_calls(sink: Option<gputrace_sim::interface::CallSink>) {
    calls::subscribe(sink);
}

extern "C" fn subscribe_nodes(sink: Option<gputrace_sim::interface::NodeSink>) {
    calls::subscribe_nodes(sink);
}

/// The tool that has the driver's one slot for tools; 0 for none.
static TOOL: AtomicUsize = AtomicUsize::new(0);

extern "C" fn claim_tool_slot(tool: usize) -> bool {
    let taken = TOOL.compare_exchange(0, tool, Ordering::AcqRel, Ordering::Acquire);
    taken.is_ok() || taken == Err(tool)
}

extern "C" fn release_tool_slot(tool: usize) {
    let _ = TOOL.compare_exchange(tool, 0, Ordering::AcqRel, Ordering::Acquire);
}

extern "C" fn enable_call(cbid: u32, on: bool) {
    calls::enable(cbid, on);
}

extern "C" fn context_uid(context: u64) -> u32 {
    world::with(|world| world.contexts.get(context).map_or(0, |held| held.uid))
}

extern "C" fn context_device(context: u64) -> i32 {
    world::with(|world| world.contexts.get(context).map_or(-1, |held| held.device as i32))
}

extern "C" fn stream_id(context: u64, stream: u64, per_thread: bool) -> u32 {
    world::with(|world| {
        let legacy = world.contexts.get(context).map_or(0, |held| held.legacy_stream);
        let stream = match stream {
            0 if per_thread => world.per_thread_stream(context).unwrap_or(0),
            gputrace_sim::stream::PER_THREAD => world.per_thread_stream(context).unwrap_or(0),
            0 | gputrace_sim::stream::LEGACY => legacy,
            other => other,
        };
        world.streams.get(stream).map_or(0, |held| held.id)
    })
}

extern "C" fn graph_id(graph: u64) -> u32 {
    world::with(|world| world.graphs.get(graph).map_or(0, |held| held.id))
}

extern "C" fn executable_id(executable: u64) -> u32 {
    world::with(|world| world.executables.get(executable).map_or(0, |held| held.id))
}

extern "C" fn node_id(node: u64) -> u64 {
    world::with(|world| {
        let Ok(held) = world.nodes.get(node) else { return 0 };
        let graph = world.graphs.get(held.graph).map_or(0, |graph| graph.id);
        gputrace_sim::graph::node_id(graph, held.number)
    })
}

extern "C" fn current_context() -> u64 {
    context::current().unwrap_or(0)
}
