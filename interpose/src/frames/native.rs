//! Whether the program's native frames are recorded, and what their reader needs of the process: the
//! loader's look-up function, the interpreter, and notice of a library that closes.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use gputrace_callstack::native::{bounds, surroundings};
use gputrace_producer::stderr::KeepErrno;

use crate::process::{loaded, settings};
use crate::symbols::libc_symbols;

type Dlclose = unsafe extern "C-unwind" fn(*mut c_void) -> c_int;

/// Number of unloaded objects at the last check.
static UNLOADED: AtomicU64 = AtomicU64::new(0);
static NEXT_DLCLOSE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Called at a session's start, before its tables are made: reads whether native frames are requested.
pub fn prepare() {
    surroundings::ask_for(false);
    if settings::asks_for_stacks(b"native", false) {
        request();
    }
}

/// Requests native frames, for the rest of the session: what is known of code addresses must be kept right
/// also while they are switched off.
pub fn request() {
    if !surroundings::is_asked_for() {
        // Available from glibc 2.35 on. Before that, the kernel is asked for the mappings.
        let found = libc_symbols::in_libc(c"_dl_find_object");
        // SAFETY: null or libc's function of that name; libc is never unloaded.
        unsafe { surroundings::set_find_object(found) };
        bounds::look_at_first();
        UNLOADED.store(loaded::counts().unloaded, Ordering::Relaxed);
        surroundings::library_closes();
        surroundings::ask_for(true);
    }
}

/// Registers an interpreter whose frames are recorded: `symbol` is an address in it, and `evaluation` is
/// its function that runs frames, or null if that is not known.
pub fn interpreter_is_at(symbol: *mut c_void, evaluation: *mut c_void) {
    surroundings::interpreter_is_at(symbol as u64, evaluation as u64);
}

/// Discards what is known of code addresses if a library was unloaded since the last check: another may be
/// mapped there. The service thread calls this too, because a `dlclose` may bypass ours (RTLD_DEEPBIND, a
/// pointer inside libc).
pub fn forget_unloaded() {
    if !surroundings::is_asked_for() {
        return;
    }
    let unloaded = loaded::counts().unloaded;
    if UNLOADED.swap(unloaded, Ordering::Relaxed) != unloaded {
        surroundings::library_closes();
    }
}

/// Like libc's `dlclose`; also discards what is known of the library.
///
/// # Safety
/// The same as for libc's `dlclose`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn dlclose(handle: *mut c_void) -> c_int {
    let mut next = NEXT_DLCLOSE.load(Ordering::Relaxed);
    if next.is_null() {
        let _errno = KeepErrno::new();
        next = libc_symbols::next(c"dlclose");
        if next.is_null() || next == dlclose as *mut c_void {
            next = libc_symbols::in_libc(c"dlclose");
        }
        NEXT_DLCLOSE.store(next, Ordering::Relaxed);
    }
    if next.is_null() {
        return -1;
    }
    // SAFETY: the next definition of libc's function.
    let next = unsafe { core::mem::transmute::<*mut c_void, Dlclose>(next) };
    // SAFETY: the caller's handle.
    let status = unsafe { next(handle) };
    forget_unloaded();
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without that function every new code address reads `/proc/self/maps`.
    #[test]
    fn loaders_answer_without_a_lock_is_found_where_there_is_one() {
        // SAFETY: a C string of libc's own.
        let version = unsafe { core::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
        let minor = version.to_str().unwrap().split('.').nth(1).unwrap();
        let minor: u32 = minor.parse().unwrap();
        assert_eq!(minor >= 35, !libc_symbols::in_libc(c"_dl_find_object").is_null());
    }
}
