//! How many bytes the test at hand holds on the heap.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// By thread, and so by test: what a test allocates it gives back itself.
    static HELD: Cell<isize> = const { Cell::new(0) };
}

pub struct Counting;

pub fn held_bytes() -> isize {
    HELD.get()
}

/// `more` bytes are held than before. A thread that ends has nothing to count with.
fn note(more: usize, fewer: usize) {
    let _ = HELD.try_with(|held| held.set(held.get() + more as isize - fewer as isize));
}

// SAFETY: every call goes to the system's allocator; the count is thread-local and allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        note(0, layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size, layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.realloc(at, layout, size) }
    }
}
