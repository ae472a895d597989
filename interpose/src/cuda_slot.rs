//! What the CUDA side keeps in a thread's slot.

use core::cell::Cell;

use gputrace_producer::thread::Slot;

#[derive(Debug)]
pub struct CudaSlot {
    /// The correlation id that CUPTI gave to the call under way; 0 if it gave none.
    pub correlation: Cell<u32>,
    /// The graph nodes that the call under way made: the first one, and how many follow each other.
    pub nodes: Cell<(u64, u32)>,
    /// The thread's current context, as `tables` writes it; 0 if that is not known.
    pub context: Cell<u64>,
}

impl CudaSlot {
    #[inline(always)]
    pub fn of(slot: &Slot) -> &CudaSlot {
        // SAFETY: cells of numbers, for which zero is valid; only this function uses the area.
        unsafe { slot.vendor.content() }
    }
}
