//! The graph nodes that a call made.

use gputrace_producer::thread::Slot;
use gputrace_wire::call::{Call, Detail, operation};
use gputrace_wire::graph::NodesMade;

use crate::hook::description::Context;
use crate::table::cuda_slot::CudaSlot;

/// Writes the nodes that the call made: a captured call, or one that adds a node. Nodes made otherwise
/// (clones, by instantiation) are known by their originals.
#[cold]
#[inline(never)]
pub fn write(cx: Context, slot: &Slot, call: Call) {
    let (node, count) = (CudaSlot::of(slot).first_node.take(), CudaSlot::of(slot).node_count.take());
    let child = match call.detail {
        Detail::Graph { source, operation: operation::ADD_NODE, .. } => source,
        Detail::Graph { .. } => return,
        // The executable's nodes are those of the graph it was made from.
        Detail::GraphLaunch { graph } => graph,
        _ => 0,
    };
    if !cx.succeeded() {
        return;
    }
    let stack = if call.stack != 0 { call.stack } else { cx.tables.stack(cx.session, slot) };
    let made = NodesMade { stack, ticks: call.start_ticks, node, count, child };
    slot.emit(cx.session, &[made.to_cell()]);
}
