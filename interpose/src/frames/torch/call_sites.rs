//! Where PyTorch calls a function that we export, with the function of PyTorch's that each call goes on to. A
//! look-up is made once per call site. Nothing here locks or allocates.

use core::ffi::c_void;
use core::mem::offset_of;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

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

/// Call sites that all go on to one function, in a cache line that a naked function reads by these offsets.
#[repr(C, align(64))]
pub struct Direct {
    /// Whether calls go the long way instead.
    is_off: AtomicU64,
    original: AtomicPtr<c_void>,
    callers: [AtomicPtr<c_void>; 6],
}

const _: () = {
    assert!(offset_of!(Direct, is_off) == 0 && offset_of!(Direct, original) == 8);
    assert!(offset_of!(Direct, callers) == 16 && size_of::<Direct>() == 64);
};

impl Direct {
    pub const fn new() -> Direct {
        Direct {
            is_off: AtomicU64::new(0),
            original: AtomicPtr::new(null_mut()),
            callers: [const { AtomicPtr::new(null_mut()) }; 6],
        }
    }

    pub fn is_off(&self, order: Ordering) -> bool {
        self.is_off.load(order) != 0
    }

    pub fn set_off(&self, is_off: bool, order: Ordering) {
        self.is_off.store(is_off.into(), order);
    }

    /// Keeps a call site, if it goes on to the same function as the first one and there is room.
    pub fn keep(&self, caller: *const c_void, original: *mut c_void) {
        let (free, exchange) = (null_mut(), (Ordering::AcqRel, Ordering::Acquire));
        let claims = |place: &AtomicPtr<c_void>, wanted| {
            let claimed = place.compare_exchange(free, wanted, exchange.0, exchange.1);
            claimed.map_or_else(|found| found == wanted, |_| true)
        };
        // The function is stored before any call site that leads to it.
        if claims(&self.original, original) {
            let _ = self.callers.iter().any(|place| claims(place, caller.cast_mut()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn direct_call_sites_are_those_of_the_first_function() {
        let direct = Direct::new();
        let at = |address: usize| core::ptr::without_provenance_mut::<c_void>(address);
        for (caller, original) in
            [(1, 100), (2, 200), (1, 100), (3, 100), (4, 100), (5, 100), (6, 100), (7, 100), (8, 100)]
        {
            direct.keep(at(caller), at(original));
        }
        assert_eq!(direct.original.into_inner(), at(100));
        let callers = direct.callers.map(|caller| caller.into_inner().addr());
        assert_eq!(
            callers,
            [1, 3, 4, 5, 6, 7],
            "not of the other function, and no more than there is room for"
        );
    }
}
