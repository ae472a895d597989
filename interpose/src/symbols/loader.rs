//! Queries of the dynamic loader about mapped objects, made with libc's own functions.
//!
//! Our `dlsym` uses these queries. A wrapper of `dlopen` or `dladdr` (a sanitizer's, another preloaded
//! library's) may hold a lock while it calls `dlsym`, and would deadlock if it were called from there.
//! Nothing here loads a library: a real load must go through the program's wrappers, which need to see it.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::symbols::libc_symbols;

/// libc's function of that name, looked up once; null where there is none.
fn own(slot: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = slot.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    let found = libc_symbols::in_libc(name);
    slot.store(found, Ordering::Relaxed);
    found
}

macro_rules! own_function {
    ($slot:ident, $name:literal, fn($($argument:ty),*) -> $result:ty) => {{
        static $slot: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
        // SAFETY: libc's function of that name has this signature; null is `None` in this type.
        unsafe {
            core::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn($($argument),*) -> $result>>(
                own(&$slot, $name),
            )
        }
    }};
}

/// A handle of a library that is already mapped; null if it is not. Further `flags` may pin the library.
///
/// # Safety
/// `path` is a C string, or null for the program itself.
pub unsafe fn handle_of_mapped(path: *const c_char, flags: c_int) -> *mut c_void {
    let function = own_function!(DLOPEN, c"dlopen", fn(*const c_char, c_int) -> *mut c_void);
    // SAFETY: the caller guarantees the path; RTLD_NOLOAD loads nothing.
    function.map_or(core::ptr::null_mut(), |dlopen| unsafe {
        dlopen(path, libc::RTLD_NOLOAD | libc::RTLD_LAZY | flags)
    })
}

/// Closes a handle.
///
/// # Safety
/// The handle is from [`handle_of_mapped`] and is not used again.
pub unsafe fn close(handle: *mut c_void) {
    if let Some(dlclose) = own_function!(DLCLOSE, c"dlclose", fn(*mut c_void) -> c_int) {
        // SAFETY: the caller guarantees it.
        unsafe { dlclose(handle) };
    }
}

/// The library that contains an address, as the loader describes it.
pub fn describe(address: *const c_void) -> Option<libc::Dl_info> {
    let dladdr = own_function!(DLADDR, c"dladdr", fn(*const c_void, *mut libc::Dl_info) -> c_int)?;
    // SAFETY: zero is a valid Dl_info; any address may be asked about.
    unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        (dladdr(address, &mut info) != 0).then_some(info)
    }
}

/// The link map of the library that contains an address.
pub fn link_map_of(address: *const c_void) -> Option<*mut c_void> {
    type Extra = *mut *mut c_void;
    const RTLD_DL_LINKMAP: c_int = 2;
    let dladdr1 =
        own_function!(DLADDR1, c"dladdr1", fn(*const c_void, *mut libc::Dl_info, Extra, c_int) -> c_int)?;
    let mut map = core::ptr::null_mut();
    // SAFETY: as above; both out pointers are live.
    let known = unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        dladdr1(address, &mut info, &mut map, RTLD_DL_LINKMAP) != 0
    };
    (known && !map.is_null()).then_some(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_library_is_described_and_opened() {
        let address = libc::getpid as *const c_void;
        let info = describe(address).unwrap();
        assert!(!info.dli_fname.is_null() && link_map_of(address).is_some());
        // SAFETY: the loader's own C string; a C string that names no library.
        unsafe {
            let handle = handle_of_mapped(info.dli_fname, 0);
            assert!(!handle.is_null());
            close(handle);
            assert!(handle_of_mapped(c"/no/such/library.so".as_ptr(), 0).is_null());
        }
        assert!(describe(core::ptr::null()).is_none());
    }
}
