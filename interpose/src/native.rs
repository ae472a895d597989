//! Whether the program's native frames are told, and what their reader must know of the process: the loader's
//! answers, the interpreter, and that a library closes.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use gputrace_callstack::native::{bounds, surroundings};
use gputrace_producer::stderr::KeepErrno;

use crate::loaded;
use crate::resolve::libc_symbols;
use crate::settings;

type Dlclose = unsafe extern "C-unwind" fn(*mut c_void) -> c_int;

/// Objects that had been unloaded at the last look.
static UNLOADED: AtomicU64 = AtomicU64::new(0);
static NEXT_DLCLOSE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// At a session's start, before its tables are made: whether native frames are asked for.
pub fn prepare() {
    let asked = settings::get(settings::STACKS).is_some_and(|value| {
        value.to_bytes().split(|byte| *byte == b',').any(|source| source.trim_ascii() == b"native")
    });
    if asked {
        // From glibc 2.35; before it, the kernel is asked what is mapped.
        let found = libc_symbols::in_libc(c"_dl_find_object");
        // SAFETY: null or libc's function of that name; libc is never unloaded.
        unsafe { surroundings::set_find_object(found) };
        bounds::look_at_first();
    }
    surroundings::ask_for(asked);
}

/// An interpreter was found whose frames are told: `symbol` of it is at some address, and `evaluation` is its function
/// that runs frames; null if that is not known.
pub fn interpreter_is_at(symbol: *mut c_void, evaluation: *mut c_void) {
    surroundings::interpreter_is_at(symbol as u64, evaluation as u64);
}

/// Forgets what is known of libraries' places if one was unloaded since the last look: another may lie there.
/// The service thread looks too: a `dlclose` may go past ours (RTLD_DEEPBIND, a pointer of libc's own).
pub fn look_for_unloaded() {
    if !surroundings::is_asked_for() {
        return;
    }
    let unloaded = loaded::counts().unloaded;
    if UNLOADED.swap(unloaded, Ordering::Relaxed) != unloaded {
        surroundings::library_closes();
    }
}

/// As libc's: what is known of the library is forgotten.
///
/// # Safety
/// As libc's `dlclose`.
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
    look_for_unloaded();
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where it is not found every first sight of a place reads `/proc/self/maps`.
    #[test]
    fn the_loaders_answer_without_a_lock_is_found_where_there_is_one() {
        // SAFETY: a C string of libc's own.
        let version = unsafe { core::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
        let minor = version.to_str().unwrap().split('.').nth(1).unwrap();
        let minor: u32 = minor.parse().unwrap();
        assert_eq!(minor >= 35, !libc_symbols::in_libc(c"_dl_find_object").is_null());
    }
}
