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
