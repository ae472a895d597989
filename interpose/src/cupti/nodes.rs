//! CUPTI's numbers of graph nodes, passed to the hook that is under way on the thread.
//!
//! Measured on driver 580 with CUPTI 13.0 and 12.8: a node's number is its graph's number times 2^32 plus
//! an index that counts the graph's nodes in order of creation. The records of a launch name nodes by such
//! numbers. The callback runs inside the call that makes the node, captured (`cuLaunchKernel`) or explicit
//! (`cuGraphAddKernelNode`), and on its thread. A callback may call CUPTI but not CUDA.

use cupti_sys::cupti::{CUpti_GraphData, CUpti_ResourceData, CUptiResult};
use gputrace_producer::stderr::KeepErrno;
use gputrace_producer::thread;

use super::root;
use crate::symbols::driver::Handle;
use crate::table::cuda_slot::CudaSlot;

/// CUPTI reports a new node.
pub fn at_creation(data: &CUpti_ResourceData) {
    thread::with(|slot| {
        // Outside a hook the number would stay in the slot, and the next hook would take a wrong one.
        if slot.is_inside()
            && let Some(node) = node_of(data)
        {
            let vendor = CudaSlot::of(slot);
            let (first, count) = with((vendor.first_node.get(), vendor.node_count.get()), node);
            vendor.first_node.set(first);
            vendor.node_count.set(count);
        }
    });
}

fn node_of(data: &CUpti_ResourceData) -> Option<u64> {
    let ask = root::in_callback()?.api.get_graph_node_id?;
    let graph = data.resourceDescriptor.cast::<CUpti_GraphData>();
    if graph.is_null() {
        return None;
    }
    let mut node = 0;
    // SAFETY: for this callback the descriptor is a CUpti_GraphData that lives across it. Only the node is
    // read, which has the same offset in every version. The out pointer is ours.
    let result = unsafe { ask((&raw const (*graph).node).read(), &mut node) };
    (result == CUptiResult::CUPTI_SUCCESS).then_some(node)
}

/// Adds a node to those of the call: the first node, and how many follow it. A call that adds a graph as a
/// node also clones that graph, in any order. The clone is the younger graph, and younger graphs have
/// higher numbers.
fn with((first, count): (u64, u32), node: u64) -> (u64, u32) {
    if count == 0 || node >> 32 < first >> 32 {
        (node, 1)
    } else if node == first.wrapping_add(count.into()) {
        (first, count.saturating_add(1))
    } else {
        (first, count)
    }
}

/// The number of a graph or an executable graph in device records; 0 if it is not known.
pub fn graph_number(graph: Handle, is_executable: bool) -> u32 {
    let _errno = KeepErrno::new();
    let Some(api) = root::of_tracer().map(|root| &root.api) else { return 0 };
    let mut number = 0;
    // SAFETY: the handle is the program's; the driver has just made or accepted it, and CUPTI refuses a
    // handle that is no graph. The out pointer is ours.
    let result = unsafe {
        match (is_executable, api.get_graph_id, api.get_graph_exec_id) {
            (false, Some(ask), _) => ask(graph.cast(), &mut number),
            (true, _, Some(ask)) => ask(graph.cast(), &mut number),
            _ => return 0,
        }
    };
    if result == CUptiResult::CUPTI_SUCCESS { number } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_a_call_are_those_of_the_older_graph() {
        let made = |nodes: &[u64]| nodes.iter().fold((0, 0), |known, node| with(known, *node));
        assert_eq!(made(&[5 << 32]), (5 << 32, 1));
        assert_eq!(made(&[5 << 32 | 3, 5 << 32 | 4]), (5 << 32 | 3, 2));
        // A child of two nodes, cloned as graph 6: before or after its node in graph 5.
        assert_eq!(made(&[6 << 32, 6 << 32 | 1, 5 << 32 | 7]), (5 << 32 | 7, 1));
        assert_eq!(made(&[5 << 32 | 7, 6 << 32, 6 << 32 | 1]), (5 << 32 | 7, 1));
    }
}
