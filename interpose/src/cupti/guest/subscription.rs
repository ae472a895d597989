//! The guest's subscription: its callback and its user data.
//!
//! There is one at a time, as in CUPTI. A handle is the address of the subscription. Subscriptions (24 bytes
//! each) are never freed, so a callback under way on another thread stays valid.

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, Ordering};

use cupti_sys::cupti::{CUpti_CallbackDomain, CUpti_CallbackFunc, CUpti_CallbackId, CUpti_SubscriberHandle};

struct Subscription {
    callback: CUpti_CallbackFunc,
    user_data: *mut c_void,
}

static CURRENT: AtomicPtr<Subscription> = AtomicPtr::new(core::ptr::null_mut());

/// Subscribes; `None` if a subscription exists.
pub fn begin(callback: CUpti_CallbackFunc, user_data: *mut c_void) -> Option<CUpti_SubscriberHandle> {
    let new = Box::into_raw(Box::new(Subscription { callback, user_data }));
    // SYNC: pairs with the Acquire load in `call`.
    match CURRENT.compare_exchange(core::ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(new.cast()),
        Err(_) => {
            // SAFETY: made above and not shared yet.
            drop(unsafe { Box::from_raw(new) });
            None
        }
    }
}

/// Ends the subscription if the handle is the current one's.
pub fn end(handle: CUpti_SubscriberHandle) -> bool {
    !handle.is_null()
        && CURRENT
            .compare_exchange(handle.cast(), core::ptr::null_mut(), Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
}

/// Ends the current subscription, whatever its handle is.
pub fn clear() {
    CURRENT.store(core::ptr::null_mut(), Ordering::Release);
}

/// Whether the handle is the current subscription's.
pub fn is(handle: CUpti_SubscriberHandle) -> bool {
    !handle.is_null() && CURRENT.load(Ordering::Acquire) == handle.cast()
}

pub fn is_there() -> bool {
    !CURRENT.load(Ordering::Acquire).is_null()
}

/// Calls the guest's callback with what CUPTI passed.
pub fn call(domain: CUpti_CallbackDomain, id: CUpti_CallbackId, data: *const c_void) {
    // SAFETY: null, or a subscription that is never freed once it was published.
    let Some(subscription) = (unsafe { CURRENT.load(Ordering::Acquire).as_ref() }) else { return };
    if let Some(callback) = subscription.callback {
        // SAFETY: the guest's own function and data, and CUPTI's own arguments.
        unsafe { callback(subscription.user_data, domain, id, data) };
    }
}
