//! The CUDA-specific fields of a thread's slot.

use core::cell::Cell;

use gputrace_producer::thread::Slot;

#[derive(Debug)]
pub struct CudaSlot {
    /// The correlation id that CUPTI gave to the call under way; 0 if it gave none.
    pub correlation: Cell<u32>,
    /// Where the thread counts its launches under way, as `under_way` writes it.
    pub launch_count: Cell<u32>,
    /// Which count has the paused launch under way, likewise; 0 for none.
    pub counted_in: Cell<u32>,
    /// The graph nodes made by the call under way: how many, and the first one.
    pub node_count: Cell<u32>,
    pub first_node: Cell<u64>,
    /// The thread's current context, as `streams` writes it; 0 if it is not known.
    pub context: Cell<u64>,
    /// The part of a default stream's key that says so and which context's it is, likewise.
    pub default_streams: Cell<u64>,
}

impl CudaSlot {
    #[inline(always)]
    pub fn of(slot: &Slot) -> &CudaSlot {
        // SAFETY: cells of numbers, for which zero is valid; only this function uses the area.
        unsafe { slot.vendor.content() }
    }
}
