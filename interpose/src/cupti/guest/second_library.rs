//! A client of another libcupti than the one in use. Triton, for example, brings its own for Proton, beside
//! PyTorch's.
//!
//! Only one libcupti at a time can use the driver, and one from 13.0 on never releases it, not even after
//! `cuptiFinalize` (measured on driver 580: 13.0 then 12.8, and 13.0 then 13.0, are refused with error 39;
//! 11.8, 12.8 and 12.9 release it). So a client that looks up its functions gets those of the library in
//! use, and becomes an ordinary guest, if that library is at least as new as its own: records only grow, at
//! their ends. Otherwise the tracer leaves CUPTI at the client's first call. A client linked to a static
//! libcupti is not seen, and the driver refuses it (but see `old_torch`).

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::path::Path;

use cupti_sys::cupti::*;

use crate::cupti::root::Root;
use crate::cupti::{client, library};

/// From this version on a libcupti keeps the driver for the life of the process.
const KEEPS_THE_DRIVER: u32 = 130_000;

/// Whether clients of the library at `path` get the functions of the one in use.
pub fn is_served_by(root: &Root, path: &Path) -> bool {
    type GetVersion = unsafe extern "C" fn(*mut u32) -> CUptiResult;
    let ours = root.version().0;
    // Before cuInit the query may crash, so the version is not known yet.
    if ours == 0 {
        return false;
    }
    let Some(ask) = library::find(path, c"cuptiGetVersion") else { return false };
    let mut theirs = 0;
    // SAFETY: CUPTI's function of that name, asked after cuInit; the out pointer outlives the call.
    let result = unsafe { core::mem::transmute::<*mut c_void, GetVersion>(ask)(&mut theirs) };
    result == CUptiResult::CUPTI_SUCCESS && serves(ours, theirs)
}

/// Whether a libcupti of version `ours` can serve clients of version `theirs`. If ours keeps the driver
/// anyway, the client can only have ours or none.
fn serves(ours: u32, theirs: u32) -> bool {
    let is_same_release = ours / 10_000 == theirs / 10_000;
    theirs <= ours || ours >= KEEPS_THE_DRIVER && is_same_release
}

/// Replacements of functions of a second library: the tracer leaves CUPTI, then that function runs.
macro_rules! replacements {
    ($($replace:ident $kept:ident $name:ident($($arg:ident: $type:ty),*);)*) => {$(
        static $kept: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

        /// Our replacement of that library's function.
        pub fn $replace(found: *mut c_void) -> *mut c_void {
            keep(&$kept, found, $name as *mut c_void)
        }

        unsafe extern "C" fn $name($($arg: $type),*) -> CUptiResult {
            type Real = unsafe extern "C" fn($($type),*) -> CUptiResult;
            client::give_way_to_another_library();
            // SAFETY: `keep` stored that library's function of this name before anybody could call this.
            unsafe { core::mem::transmute::<*mut c_void, Real>($kept.load(Ordering::Acquire))($($arg),*) }
        }
    )*};
}

replacements! {
    replace_subscribe SUBSCRIBE
        subscribe(handle: *mut CUpti_SubscriberHandle, callback: CUpti_CallbackFunc, user_data: *mut c_void);
    replace_subscribe_v2 SUBSCRIBE_V2
        subscribe_v2(handle: *mut CUpti_SubscriberHandle, callback: CUpti_CallbackFunc, user_data: *mut c_void, parameters: *mut c_void);
    replace_register REGISTER
        register(request: CUpti_BuffersCallbackRequestFunc, complete: CUpti_BuffersCallbackCompleteFunc);
}

/// Stores a second library's function and returns our replacement. A third library's is not stored.
fn keep(slot: &AtomicPtr<c_void>, found: *mut c_void, own: *mut c_void) -> *mut c_void {
    match slot.compare_exchange(core::ptr::null_mut(), found, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => own,
        Err(known) if known == found => own,
        Err(_) => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_serves_clients_of_versions_that_are_not_newer() {
        assert!(serves(130_001, 26), "13.0 for 12.8");
        assert!(serves(28, 26) && serves(28, 28), "12.9 for 12.8");
        assert!(!serves(26, 28), "12.8 releases the driver, so 12.9 can have it");
        assert!(serves(130_001, 130_200), "13.0 never releases the driver");
        assert!(!serves(28, 130_001) && !serves(130_001, 140_000), "another release's records");
    }
}
