//! What a lower layer calls in a higher one, which it does not import.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// Functions that a higher layer sets, by a reference to its table of them. Until then they are a default.
/// Nothing here waits, and a forked child keeps what its parent had set.
pub struct Link<T: 'static>(AtomicPtr<T>);

impl<T: Sync> Link<T> {
    pub const fn new(default: &'static T) -> Link<T> {
        Link(AtomicPtr::new(ptr::from_ref(default).cast_mut()))
    }

    pub fn set(&self, functions: &'static T) {
        self.0.store(ptr::from_ref(functions).cast_mut(), Ordering::Release);
    }

    #[inline]
    pub fn get(&self) -> &'static T {
        // SAFETY: `new` and `set` store only shared references that live as long as the process.
        unsafe { &*self.0.load(Ordering::Acquire) }
    }
}
