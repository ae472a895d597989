//! Results and structures that C programs point to.

use crate::result::{CuptiResult, INVALID_PARAMETER};

/// Where a result goes: a C pointer, possibly null.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct OutPtr<T>(pub *mut T);

impl<T: Copy> OutPtr<T> {
    /// Stores the result; null is an invalid parameter.
    pub fn set(self, value: T) -> CuptiResult {
        if self.0.is_null() {
            return Err(INVALID_PARAMETER);
        }
        // SAFETY: by CUPTI's contract a pointer that is not null points to writable memory for a `T`.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// What is there before the call.
    pub fn get(self) -> CuptiResult<T> {
        if self.0.is_null() {
            return Err(INVALID_PARAMETER);
        }
        // SAFETY: as above; arguments that are read before they are written are initialised by contract.
        Ok(unsafe { self.0.read_unaligned() })
    }
}
