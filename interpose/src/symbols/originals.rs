//! The driver's own functions: the targets of our hooks and of our own calls.
//!
//! An original becomes known when the program looks it up: the real resolver's result is kept. A direct
//! link makes no look-up. Its original is the next definition after ours in the global scope, or else the
//! one in a libcuda that is mapped already. libcuda is never loaded here.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use gputrace_producer::session;
use gputrace_wire::counter::Counter;

use crate::process::settings;
use crate::symbols::entry::Entry;
use crate::symbols::failed_look_up::KeepError;
use crate::symbols::{libc_symbols, loader};

/// The entry's original; null if there is no driver.
#[inline(always)]
pub fn of(entry: &'static Entry) -> *mut c_void {
    let known = entry.original.load(Ordering::Relaxed);
    if known.is_null() { find(entry) } else { known }
}

/// Looks up the entry's original, which is not known yet; null if there is none.
#[cold]
fn find(entry: &'static Entry) -> *mut c_void {
    let found = behind(entry.symbol);
    if !found.is_null() && found != (entry.hook)() {
        entry.original.store(found, Ordering::Relaxed);
    }
    entry.original.load(Ordering::Relaxed)
}

/// The definition that a program would get without us; null if none.
pub fn behind(symbol: &'static str) -> *mut c_void {
    let _error = KeepError::new();
    let Some(dlsym) = libc_symbols::dlsym() else { return core::ptr::null_mut() };
    let name: *const c_char = symbol.as_ptr().cast();
    // SAFETY: a pseudo-handle, asked from our own frame, and a name with its NUL.
    let next = unsafe { dlsym(libc::RTLD_NEXT, name) };
    if !next.is_null() { next } else { find_in_driver(symbol) }
}

/// The driver's function of that name (with its NUL); null if no libcuda is mapped.
pub fn find_in_driver(symbol: &'static str) -> *mut c_void {
    let _error = KeepError::new();
    let Some(dlsym) = libc_symbols::dlsym() else { return core::ptr::null_mut() };
    // SAFETY: a C string. The handle is not closed, which keeps libcuda mapped; it is never unloaded anyway.
    let driver = unsafe { loader::handle_of_mapped(c"libcuda.so.1".as_ptr(), 0) };
    if driver.is_null() {
        return core::ptr::null_mut();
    }
    // SAFETY: a handle from dlopen and a name with its NUL.
    unsafe { dlsym(driver, symbol.as_ptr().cast()) }
}

/// The definition in the calling library and its dependencies, unless it is our own.
pub fn in_own_scope_of(caller: *const c_void, name: *const c_char, own: *mut c_void) -> *mut c_void {
    let _error = KeepError::new();
    let (Some(dlsym), Some(map)) = (libc_symbols::dlsym(), loader::link_map_of(caller)) else {
        return core::ptr::null_mut();
    };
    // A library's link map is what dlopen returns for it. It is opened all the same: glibc makes the list of
    // dependencies that dlsym walks only when a library is opened by itself.
    // SAFETY: the second word of a link map is the library's path, empty for the program; the library is
    // mapped already, and what is opened is closed again.
    let found = unsafe {
        let path = map.cast::<*const c_char>().add(1).read();
        let handle = loader::handle_of_mapped(path, 0);
        if handle.is_null() {
            return core::ptr::null_mut();
        }
        let found = dlsym(handle, name);
        loader::close(handle);
        found
    };
    if found == own { core::ptr::null_mut() } else { found }
}

/// Keeps a resolver's result as the entry's original and returns our hook. If the result belongs to another
/// library than the original already known, the result is returned unchanged.
pub fn replace(entry: &'static Entry, found: *mut c_void) -> *mut c_void {
    let ours = (entry.hook)();
    if found == ours || settings::is_turned_off() {
        return found;
    }
    match entry.original.compare_exchange(core::ptr::null_mut(), found, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => ours,
        Err(known) if known == found || same_library(known, found) => ours,
        Err(_) => {
            if let Some(session) = session::current() {
                session.count(Counter::UnknownAbi, 1);
            }
            found
        }
    }
}

/// Whether two addresses belong to one mapped library.
fn same_library(one: *mut c_void, other: *mut c_void) -> bool {
    match (library_of(one), library_of(other)) {
        (Some(one), Some(other)) => one == other,
        _ => false,
    }
}

/// The start of the mapped library that contains an address.
pub fn library_of(address: *mut c_void) -> Option<*mut c_void> {
    loader::describe(address).map(|info| info.dli_fbase)
}

/// The library that Nsight Compute gives a program instead of libcuda. It forwards to the driver.
pub const OF_NSIGHT_COMPUTE: &str = "libcuda-injection.so";

/// Whether the address is in a driver, by its library's name: libcuda.so with any suffix, or a substitute.
pub fn is_in_driver(address: *mut c_void) -> bool {
    path_of(address).is_some_and(|path| {
        path.to_bytes()
            .rsplit(|byte| *byte == b'/')
            .next()
            .is_some_and(|file| file.starts_with(b"libcuda.so") || file == OF_NSIGHT_COMPUTE.as_bytes())
    })
}

/// This library's path. It is looked up at load: later another thread may hold the loader's lock.
pub fn own_path() -> Option<&'static CStr> {
    static KNOWN: AtomicPtr<c_char> = AtomicPtr::new(core::ptr::null_mut());
    let mut known = KNOWN.load(Ordering::Relaxed);
    if known.is_null() {
        known = path_of(own_path as *mut c_void)?.as_ptr().cast_mut();
        KNOWN.store(known, Ordering::Relaxed);
    }
    // SAFETY: the loader's C string, which lives as long as this library: it is never unloaded.
    Some(unsafe { CStr::from_ptr(known) })
}

/// The path of the mapped library that contains an address.
pub fn path_of(address: *mut c_void) -> Option<&'static CStr> {
    let name = loader::describe(address)?.dli_fname;
    // SAFETY: the loader's own C string, valid while the library is mapped.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })
}
