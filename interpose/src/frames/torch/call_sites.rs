//! Where PyTorch calls a function that we export, with the function of PyTorch's that each call goes on to. A
//! look-up is made once per call site. Nothing here locks or allocates.

use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

/// There are a few in PyTorch's libraries. Sites beyond this limit are looked up at each call.
const CALL_SITES_MAX: usize = 16;

struct CallSite {
    /// The call's return address; null for none.
    caller: AtomicPtr<c_void>,
    original: AtomicPtr<c_void>,
}

pub struct CallSites([CallSite; CALL_SITES_MAX]);

impl CallSites {
    pub const fn new() -> CallSites {
        CallSites(
            [const { CallSite { caller: AtomicPtr::new(null_mut()), original: AtomicPtr::new(null_mut()) } };
                CALL_SITES_MAX],
        )
    }

    /// The function that the caller goes on to, if it is known.
    pub fn known(&self, caller: *const c_void) -> Option<*const c_void> {
        for site in &self.0 {
            match site.caller.load(Ordering::Acquire) {
                known if known.cast_const() == caller => {
                    let found = site.original.load(Ordering::Acquire);
                    // If it is null, another thread is just storing this call site.
                    return (!found.is_null()).then_some(found.cast_const());
                }
                known if known.is_null() => return None,
                _ => {}
            }
        }
        None
    }

    pub fn keep(&self, caller: *const c_void, original: *mut c_void) {
        for site in &self.0 {
            let claimed = site.caller.compare_exchange(
                null_mut(),
                caller.cast_mut(),
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            match claimed {
                Ok(_) => return site.original.store(original, Ordering::Release),
                Err(known) if known.cast_const() == caller => return,
                Err(_) => {}
            }
        }
    }
}
