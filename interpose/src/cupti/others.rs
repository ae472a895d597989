//! Other CUPTI users in the process: noticed when they subscribe, and given way to.
//!
//! CUPTI has one subscriber and one pair of buffer callbacks. A later client (torch.profiler,
//! Proton) must work as if we were not there, so its first call finds the place free.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use cupti_sys::cupti::CUptiResult;
use gputrace_producer::thread;

use super::{client, library};
use crate::resolve::failed_look_up::KeepError;
use crate::resolve::libc_symbols;

/// The real function in the libcupti that is mapped: it is not in the global scope, so
/// RTLD_NEXT would not find it.
fn real(slot: &AtomicPtr<c_void>, name: &'static str) -> *mut c_void {
    let known = slot.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    let _error = KeepError::new();
    let Some(dlsym) = libc_symbols::dlsym() else { return core::ptr::null_mut() };
    // SAFETY: a pseudo-handle, and a name with its NUL.
    let mut found = unsafe { dlsym(libc::RTLD_NEXT, name.as_ptr().cast::<c_char>()) };
    if found.is_null()
        && let Some(path) = library::mapped("libcupti.so")
        && let Ok(path) = std::ffi::CString::new(path.as_os_str().as_encoded_bytes())
    {
        // SAFETY: RTLD_NOLOAD only looks at what is mapped.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
        if !handle.is_null() {
            // SAFETY: a handle from dlopen and a name with its NUL.
            found = unsafe { dlsym(handle, name.as_ptr().cast::<c_char>()) };
        }
    }
    slot.store(found, Ordering::Relaxed);
    found
}

macro_rules! give_way_first {
    ($($name:ident($($arg:ident: $type:ty),*), $slot:ident;)*) => {
        /// What a look-up of a CUPTI function returns: ours for the ones by which a client
        /// announces itself, so that clients that load CUPTI at run time are noticed too.
        pub fn replace(name: *const c_char, found: *mut c_void) -> *mut c_void {
            // SAFETY: the caller's C string.
            let name = unsafe { CStr::from_ptr(name) };
            if !name.to_bytes().starts_with(b"cupti") {
                return found;
            }
            $(
                if name.to_bytes() == stringify!($name).as_bytes() && found != $name as *mut c_void {
                    let known = $slot.compare_exchange(core::ptr::null_mut(), found, Ordering::AcqRel, Ordering::Acquire);
                    // Another libcupti's function is left to its own caller.
                    return if known.is_ok() || known == Err(found) { $name as *mut c_void } else { found };
                }
            )*
            found
        }

        $(
        static $slot: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

        /// # Safety
        /// As CUPTI's function of that name.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> CUptiResult {
            // Our own calls go to the loaded library directly and never come by here.
            let inside = thread::with(|slot| slot.is_inside());
            if !inside {
                client::give_way(concat!("a caller of ", stringify!($name)));
            }
            let real = real(&$slot, concat!(stringify!($name), "\0"));
            if real.is_null() {
                return CUptiResult::CUPTI_ERROR_NOT_INITIALIZED;
            }
            // SAFETY: CUPTI's function of that name has this signature; the arguments are the caller's.
            unsafe {
                core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> CUptiResult>(real)($($arg),*)
            }
        }
    )*
    };
}

give_way_first! {
    cuptiSubscribe(subscriber: *mut c_void, callback: *mut c_void, data: *mut c_void), SUBSCRIBE;
    cuptiSubscribe_v2(subscriber: *mut c_void, callback: *mut c_void, data: *mut c_void, parameters: *mut c_void), SUBSCRIBE_V2;
    cuptiActivityRegisterCallbacks(request: *mut c_void, complete: *mut c_void), REGISTER;
}
