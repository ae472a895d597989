//! How the simulated driver calls CUPTI back: in the driver functions that CUPTI enabled, and for each new
//! node of a graph.

use crate::interface::{CallEvent, CallSink, NodeEvent, NodeSink};
use crate::status;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Functions with numbers from here on cannot be enabled.
const NUMBERS: usize = 1024;

static ENABLED: [AtomicU64; NUMBERS / 64] = [const { AtomicU64::new(0) }; NUMBERS / 64];
static SINK: AtomicUsize = AtomicUsize::new(0);
static NODE_SINK: AtomicUsize = AtomicUsize::new(0);

/// Sets the callback for new nodes. It runs inside of the call that makes a node, on the same thread.
pub fn subscribe_nodes(sink: Option<NodeSink>) {
    NODE_SINK.store(sink.map_or(0, |sink| sink as usize), Ordering::Release);
}

/// Whether a callback for new nodes is set.
pub fn wants_nodes() -> bool {
    NODE_SINK.load(Ordering::Relaxed) != 0
}

/// Calls the callback for new nodes.
pub fn deliver_node(event: &NodeEvent) {
    let sink = NODE_SINK.load(Ordering::Acquire);
    if sink != 0 {
        // SAFETY: the value was stored by `subscribe_nodes` from a `NodeSink`.
        let sink: NodeSink = unsafe { std::mem::transmute::<usize, NodeSink>(sink) };
        sink(event);
    }
}

fn update_status() {
    let any = ENABLED.iter().any(|word| word.load(Ordering::Relaxed) != 0);
    status::set(status::CALLBACKS, any && SINK.load(Ordering::Relaxed) != 0);
}

/// Sets who is called.
pub fn subscribe(sink: Option<CallSink>) {
    SINK.store(sink.map_or(0, |sink| sink as usize), Ordering::Release);
    update_status();
}

/// Enables or disables one function, or all with `u32::MAX`.
pub fn enable(number: u32, on: bool) {
    if number == u32::MAX {
        let bits = if on { u64::MAX } else { 0 };
        ENABLED.iter().for_each(|word| word.store(bits, Ordering::Relaxed));
    } else if let Some(word) = ENABLED.get(number as usize / 64) {
        let bit = 1 << (number % 64);
        if on {
            word.fetch_or(bit, Ordering::Relaxed)
        } else {
            word.fetch_and(!bit, Ordering::Relaxed)
        };
    }
    update_status();
}

/// Whether a function is enabled.
pub fn enabled(number: u32) -> bool {
    ENABLED
        .get(number as usize / 64)
        .is_some_and(|word| word.load(Ordering::Relaxed) & 1 << (number % 64) != 0)
}

/// Calls the subscriber's callback for driver functions. Whether the function is enabled is the caller's to
/// ask.
pub fn deliver(event: &CallEvent) {
    let sink = SINK.load(Ordering::Acquire);
    if sink != 0 {
        // SAFETY: the value was stored by `subscribe` from a `CallSink`.
        let sink: CallSink = unsafe { std::mem::transmute::<usize, CallSink>(sink) };
        sink(event);
    }
}
