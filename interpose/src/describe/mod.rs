//! Descriptions of calls, by family.
//!
//! They run after the original, inside the guard, with the original's status in the context. They read the
//! caller's pointers only if the original has just read them or, on success, written them.

pub mod array;
pub mod context;
pub mod copy;
pub mod cubin;
pub mod fill;
pub mod graph;
pub mod launch;
pub mod memory;
pub mod module;
pub mod pool;
pub mod sync;

use crate::hook::description::Context;
use crate::symbols::driver::Status;

/// CUDA_ERROR_OUT_OF_MEMORY.
const OUT_OF_MEMORY: Status = 2;

/// Reads what the program gave the original by a pointer; `None` if the original may not have read it. A call
/// that lacks memory has read what it was asked for.
///
/// # Safety
/// `given` is null or the pointer to a `T` that was given to the call that the context describes.
pub unsafe fn given<T: Copy>(cx: &Context, given: *const T) -> Option<T> {
    if given.is_null() || !(cx.succeeded() || cx.status == OUT_OF_MEMORY) {
        return None;
    }
    // SAFETY: the driver has just read the same bytes. C promises no alignment.
    Some(unsafe { given.read_unaligned() })
}

/// Reads a value that the original wrote through an out pointer.
///
/// # Safety
/// `out` is null or an out pointer of the call that the context describes.
pub unsafe fn written<T: Copy>(cx: &Context, out: *const T) -> Option<T> {
    if !cx.succeeded() || out.is_null() {
        return None;
    }
    // SAFETY: the call succeeded, so the driver has written through the pointer.
    Some(unsafe { out.read_unaligned() })
}
