//! Our `dlsym` and `dlvsym`.
//!
//! A handle from `dlopen` is simple: call the real function, and replace the result if it is in the table.
//! The pseudo-handles RTLD_DEFAULT and RTLD_NEXT mean "in the scope of the caller", and glibc takes the
//! return address for the caller. So those look-ups leave by a tail jump, with the program's return address
//! on the stack, and we never see the result. For the few names in the table that is not enough, because
//! the result could be our own export although there is no CUDA. Those are decided before the jump.

use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use gputrace_producer::thread;

use crate::api;
use crate::cupti::guest::exports;
use crate::cupti::library;
use crate::frames::torch;
use crate::symbols::entry::Entry;
use crate::symbols::libc_symbols::{self, Dlsym};
use crate::symbols::loader::link_map_of;
use crate::symbols::{failed_look_up, originals};

/// Either the real function to jump to with the caller's own frame, or null and the result.
#[repr(C)]
pub struct Decision {
    jump: *const c_void,
    answer: *mut c_void,
}

type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// The next `dlsym` after ours, for the program's look-ups: another preloaded library's, or libc's.
fn next_dlsym() -> Option<Dlsym> {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    // SAFETY: `once` returns the address of a dlsym or null; null is `None` in this type.
    unsafe { core::mem::transmute::<*mut c_void, Option<Dlsym>>(once(&NEXT, c"dlsym", dlsym as *mut c_void)) }
}

/// The next `dlvsym` after ours.
fn next_dlvsym() -> Option<Dlvsym> {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    // SAFETY: as above.
    unsafe {
        core::mem::transmute::<*mut c_void, Option<Dlvsym>>(once(&NEXT, c"dlvsym", dlvsym as *mut c_void))
    }
}

fn once(slot: &AtomicPtr<c_void>, name: &CStr, own: *mut c_void) -> *mut c_void {
    let known = slot.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    let next = libc_symbols::next(name);
    let found = if next.is_null() || next == own { libc_symbols::in_libc(name) } else { next };
    slot.store(found, Ordering::Relaxed);
    found
}

/// Called at load: later, finding libc's functions could wait for a lock.
pub fn prepare() {
    failed_look_up::libc_dlerror();
    next_dlsym();
    next_dlvsym();
}

/// # Safety
/// The same as for libc's `dlsym`.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // rdi: handle, rsi: name. Pseudo-handles are 0 (RTLD_DEFAULT) and -1 (RTLD_NEXT).
    naked_asm!(
        "lea rax, [rdi + 1]",
        // The caller's address is passed as a third argument, which dlsym itself does not have.
        "mov rdx, [rsp]",
        "cmp rax, 1",
        "ja {with_handle}",
        // Save the arguments across the call; three pushes also align the stack.
        "push rdi",
        "push rsi",
        "push rdx",
        "call {decide}",
        "mov rcx, rdx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "mov rax, rcx",
        "ret",
        with_handle = sym with_handle,
        decide = sym decide,
    )
}

/// # Safety
/// The same as for libc's `dlvsym`.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    naked_asm!(
        "lea rax, [rdi + 1]",
        "mov rcx, [rsp]",
        "cmp rax, 1",
        "ja {with_handle}",
        "push rdi",
        "push rsi",
        "push rdx",
        "call {decide}",
        "mov rcx, rdx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "mov rax, rcx",
        "ret",
        with_handle = sym with_handle_and_version,
        decide = sym decide_with_version,
    )
}

/// Whether a name may be the driver's or CUPTI's. Two bytes exclude nearly all names that a program looks
/// up. No function is called for those: the program may define `strlen` and be looking up the real one.
fn may_be_ours(name: *const c_char) -> bool {
    // SAFETY: the program's C string; the second byte is read only if the first is not its end.
    !name.is_null() && unsafe { *name == b'c' as c_char && *name.add(1) == b'u' as c_char }
}

/// Whether a name may be PyTorch's: `_ZN5torch…`, `_ZN3c10…`.
fn may_be_torchs(name: *const c_char) -> bool {
    // SAFETY: the program's C string; byte 5 exists if byte 4 is not its end.
    !name.is_null()
        && unsafe {
            *name == b'_' as c_char
                && *name.add(1) == b'Z' as c_char
                && *name.add(2) == b'N' as c_char
                && (*name.add(3) == b'5' as c_char || *name.add(3) == b'3' as c_char)
        }
}

/// The table's entry for a looked-up name.
fn entry_of(name: *const c_char) -> Option<&'static Entry> {
    if !may_be_ours(name) {
        return None;
    }
    // SAFETY: the program's C string.
    api::by_symbol(unsafe { CStr::from_ptr(name) }.to_bytes())
}

unsafe extern "C" fn with_handle(
    handle: *mut c_void,
    name: *const c_char,
    caller: *const c_void,
) -> *mut c_void {
    let Some(dlsym) = next_dlsym() else { return core::ptr::null_mut() };
    // SAFETY: the caller's arguments.
    let found = unsafe { dlsym(handle, name) };
    if found.is_null() { found } else { hooked(handle, name, core::ptr::null(), found, caller) }
}

unsafe extern "C" fn with_handle_and_version(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    caller: *const c_void,
) -> *mut c_void {
    let Some(dlvsym) = next_dlvsym() else { return core::ptr::null_mut() };
    // SAFETY: the caller's arguments.
    let found = unsafe { dlvsym(handle, name, version) };
    if found.is_null() { found } else { hooked(handle, name, version, found, caller) }
}

/// The program's result for a look-up in a handle, given what was found.
fn hooked(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    found: *mut c_void,
    caller: *const c_void,
) -> *mut c_void {
    failed_look_up::forget();
    if !may_be_ours(name) && !may_be_torchs(name) {
        return found;
    }
    let Some(entry) = entry_of(name) else {
        let Some(own) = other_name(name) else {
            return exports::replace(name, found);
        };
        // The handle's scope contains us, as below.
        if own == found && !is_other_behind(caller, name, found) {
            failed_look_up::note(handle, name, version);
            return core::ptr::null_mut();
        }
        return exports::replace(name, found);
    };
    // The look-up is on our own behalf (CUPTI makes some while it loads), not the program's.
    if thread::with(|slot| slot.is_inside()) {
        return found;
    }
    if found != (entry.hook)() {
        // An unrelated library may use the same name. A library that hooks look-ups as we do returns a
        // wrapper of the driver's function.
        let is_drivers = originals::is_in_driver(found) || wraps_the_driver(handle, name);
        return if is_drivers && !is_behind_us(caller, name) {
            originals::replace(entry, found)
        } else {
            found
        };
    }
    // The handle's scope contains us (dlopen(NULL)) and the result is our own export. It counts only if
    // another definition exists behind it.
    if !entry.original.load(Ordering::Relaxed).is_null() {
        return found;
    }
    if !originals::behind(entry.symbol).is_null() {
        return found;
    }
    failed_look_up::note(handle, name, version);
    core::ptr::null_mut()
}

/// Whether the result came from another library's `dlsym` and libc's own would return the driver's.
#[cold]
fn wraps_the_driver(handle: *mut c_void, name: *const c_char) -> bool {
    let (Some(dlsym), Some(next)) = (libc_symbols::dlsym(), next_dlsym()) else { return false };
    if core::ptr::fn_addr_eq(dlsym, next) {
        return false;
    }
    let _error = failed_look_up::KeepError::new();
    // SAFETY: the caller's arguments, with which a dlsym has been called already.
    let found = unsafe { dlsym(handle, name) };
    !found.is_null() && originals::is_in_driver(found)
}

/// Whether the caller is an interposer that our hook calls: it defines the name itself and comes after us.
/// With our hook as its result, the two would call each other without end.
fn is_behind_us(caller: *const c_void, name: *const c_char) -> bool {
    let Some(dlsym) = libc_symbols::dlsym() else { return false };
    let _error = failed_look_up::KeepError::new();
    // SAFETY: a pseudo-handle, asked from our own frame: the next definition after ours.
    let next = unsafe { dlsym(libc::RTLD_NEXT, name) };
    !next.is_null() && link_map_of(next).is_some_and(|map| link_map_of(caller) == Some(map))
}

unsafe extern "C" fn decide(handle: *mut c_void, name: *const c_char, caller: *const c_void) -> Decision {
    let jump = next_dlsym().map_or(core::ptr::null(), |real| real as *const c_void);
    decide_for(handle, name, core::ptr::null(), caller, jump)
}

unsafe extern "C" fn decide_with_version(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    caller: *const c_void,
) -> Decision {
    // A library that hooks dlsym before us looks up the next one by its version. Ours has no version, so that
    // look-up would skip ours and find libc's.
    if handle == libc::RTLD_NEXT
        && let Some(ours) = own_look_up(name)
        && is_before_us(caller)
    {
        failed_look_up::forget();
        return Decision { jump: core::ptr::null(), answer: ours };
    }
    // The driver's symbols have no versions, so a versioned look-up never finds ours.
    let jump = next_dlvsym().map_or(core::ptr::null(), |real| real as *const c_void);
    decide_for(handle, name, version, caller, jump)
}

/// Our own function of that name, if it is one of the two in this file.
fn own_look_up(name: *const c_char) -> Option<*mut c_void> {
    if name.is_null() {
        return None;
    }
    // SAFETY: the program's C string.
    match unsafe { libc_symbols::bytes(name) } {
        b"dlsym" => Some(dlsym as *mut c_void),
        b"dlvsym" => Some(dlvsym as *mut c_void),
        _ => None,
    }
}

/// Our export of that name, if it is a CUPTI or PyTorch name.
fn other_name(name: *const c_char) -> Option<*mut c_void> {
    let of_which: fn(&CStr) -> Option<*mut c_void> = match (may_be_ours(name), may_be_torchs(name)) {
        (true, _) => exports::own,
        (_, true) => torch::own,
        _ => return None,
    };
    // SAFETY: the program's C string.
    of_which(unsafe { CStr::from_ptr(name) })
}

/// Whether the caller's scope has CUPTI's or PyTorch's own function behind our export.
#[cold]
fn is_other_behind(caller: *const c_void, name: *const c_char, own: *mut c_void) -> bool {
    let Some(dlsym) = libc_symbols::dlsym() else { return true };
    let _error = failed_look_up::KeepError::new();
    // SAFETY: a pseudo-handle, asked from our own frame: the next definition after ours.
    let global = unsafe { dlsym(libc::RTLD_NEXT, name) };
    if !global.is_null() || !originals::in_own_scope_of(caller, name, own).is_null() {
        return true;
    }
    // A library may have found CUPTI's through another library that loaded it.
    !may_be_torchs(name) && !is_before_us(caller) && library::is_mapped("libcupti.so")
}

/// A look-up by pseudo-handle that may find our export although there is no CUPTI, or no PyTorch.
#[cold]
fn decide_for_other(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    caller: *const c_void,
    own: *mut c_void,
) -> Option<Decision> {
    let dlsym = libc_symbols::dlsym()?;
    let finds_ours = if handle == libc::RTLD_NEXT {
        is_before_us(caller)
    } else {
        let _error = failed_look_up::KeepError::new();
        // SAFETY: a pseudo-handle, asked from our own frame, whose scope is the global one.
        unsafe { dlsym(libc::RTLD_DEFAULT, name) == own }
    };
    if !finds_ours || is_other_behind(caller, name, own) {
        return None;
    }
    failed_look_up::note(link_map_of(caller).unwrap_or(core::ptr::null_mut()), name, version);
    Some(Decision { jump: core::ptr::null(), answer: core::ptr::null_mut() })
}

fn decide_for(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    caller: *const c_void,
    jump: *const c_void,
) -> Decision {
    let leave = Decision { jump, answer: core::ptr::null_mut() };
    let (Some(entry), Some(dlsym)) = (entry_of(name), libc_symbols::dlsym()) else {
        let own = other_name(name);
        return own.and_then(|own| decide_for_other(handle, name, version, caller, own)).unwrap_or(leave);
    };
    // SAFETY: a pseudo-handle, asked from our own frame: the next definition after ours.
    let global = unsafe { dlsym(libc::RTLD_NEXT, name) };
    if handle == libc::RTLD_NEXT {
        // Interposers use RTLD_NEXT to get past themselves. If one got our hook instead of the driver's
        // function, the two might call each other without end, so it gets the plain result. If that would be
        // our own export with nothing behind it, it gets none.
        let local = in_scope_of(caller, name, entry);
        if global.is_null() && local.is_null() && is_before_us(caller) {
            failed_look_up::note(link_map_of(caller).unwrap_or(core::ptr::null_mut()), name, version);
            return Decision { jump: core::ptr::null(), answer: core::ptr::null_mut() };
        }
        return leave;
    }
    // A library before us may define the name. The program gets that definition, as it would without us.
    // SAFETY: a pseudo-handle, asked from our own frame, whose scope is the global one.
    let first = unsafe { dlsym(libc::RTLD_DEFAULT, name) };
    if !first.is_null() && first != (entry.hook)() {
        return leave;
    }
    let found = if global.is_null() { in_scope_of(caller, name, entry) } else { global };
    let answer = if found.is_null() {
        failed_look_up::note(link_map_of(caller).unwrap_or(core::ptr::null_mut()), name, version);
        found
    } else {
        failed_look_up::forget();
        originals::replace(entry, found)
    };
    Decision { jump: core::ptr::null(), answer }
}

/// The definition that the calling library finds although the global scope has none: a plugin loaded
/// RTLD_LOCAL may depend on libcuda although the program does not.
fn in_scope_of(caller: *const c_void, name: *const c_char, entry: &'static Entry) -> *mut c_void {
    let found = originals::in_own_scope_of(caller, name, (entry.hook)());
    // The caller may itself be a dependency of a plugin that also depends on libcuda.
    if found.is_null() && !is_before_us(caller) { originals::find_in_driver(entry.symbol) } else { found }
}

/// Whether the caller's library comes before us in the global scope, as the program itself does.
fn is_before_us(caller: *const c_void) -> bool {
    let Some(mut map) = link_map_of(caller) else { return true };
    let own = link_map_of(dlsym as *const c_void);
    // SAFETY: link maps are linked in load order by their fourth word (`l_next`); the list ends with null,
    // and libraries in use are not unloaded under their caller.
    unsafe {
        while !map.is_null() {
            if Some(map) == own {
                return true;
            }
            map = map.cast::<*mut c_void>().add(3).read();
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_look_ups_are_found() {
        assert!(next_dlsym().is_some() && next_dlvsym().is_some());
    }
}
