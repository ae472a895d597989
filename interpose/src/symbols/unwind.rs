//! The unwinder's functions, looked up when something unwinds and not before.
//!
//! The standard library refers to eleven functions of libgcc_s. Linked dynamically, they make libgcc_s a
//! required library: in an image that lacks it, no program would start with ours preloaded. Linked
//! statically, they would be a second unwinder that reads the private state of the one used by a C++
//! exception or a cancelled thread. So each is a few instructions that jump to the process's own libgcc_s.
//! That library is mapped whenever something unwinds through our frames; it is loaded if a static unwinder
//! does so.
//!
//! The symbols are hidden: the program's own references never bind to them.

#[cfg(not(test))]
use core::arch::global_asm;
use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::symbols::failed_look_up::KeepError;
use crate::symbols::libc_symbols;

/// Each function: its name, the slot of its address, and how to find it.
macro_rules! unwinder {
    ($($name:literal $slot:ident $find:ident;)*) => { $(
        static $slot: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

        unsafe extern "C" fn $find() -> *mut c_void {
            let name = const {
                match CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                }
            };
            let found = find(name);
            $slot.store(found, Ordering::Relaxed);
            found
        }

        // A jump, not a call: raising treats the caller's frame as the first one. Arguments are three words
        // at most; with the return address the pushes leave the stack aligned.
        #[cfg(not(test))]
        global_asm!(
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ":"),
            "mov rax, [rip + {slot}]",
            "test rax, rax",
            "jnz 2f",
            "push rdi",
            "push rsi",
            "push rdx",
            "call {find}",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "2: jmp rax",
            concat!(".size ", $name, ", . - ", $name),
            slot = sym $slot,
            find = sym $find,
        );
    )* };
}

unwinder! {
    "_Unwind_Backtrace" BACKTRACE find_backtrace;
    "_Unwind_GetDataRelBase" DATA_REL_BASE find_data_rel_base;
    "_Unwind_GetIP" IP find_ip;
    "_Unwind_GetIPInfo" IP_INFO find_ip_info;
    "_Unwind_GetLanguageSpecificData" DATA find_data;
    "_Unwind_GetRegionStart" REGION_START find_region_start;
    "_Unwind_GetTextRelBase" TEXT_REL_BASE find_text_rel_base;
    "_Unwind_RaiseException" RAISE find_raise;
    "_Unwind_Resume" RESUME find_resume;
    "_Unwind_SetGR" SET_REGISTER find_set_register;
    "_Unwind_SetIP" SET_IP find_set_ip;
}

/// The function in the mapped libgcc_s, or else in one that can be loaded.
#[cold]
fn find(name: &CStr) -> *mut c_void {
    let mapped = || libc_symbols::in_mapped(name, |file| file.starts_with(b"libgcc_s"));
    let mut found = mapped();
    if found.is_null() {
        let _error = KeepError::while_loading();
        // SAFETY: a C string. The handle is not closed: the addresses are kept for good.
        unsafe { libc::dlopen(c"libgcc_s.so.1".as_ptr(), libc::RTLD_NOW) };
        found = mapped();
    }
    if found.is_null() { absent as *mut c_void } else { found }
}

/// Replaces the functions if there is no libgcc_s: returns `_URC_FATAL_PHASE1_ERROR`. A panic then aborts, as
/// every panic in this library would, and a backtrace is empty.
unsafe extern "C" fn absent() -> c_int {
    3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_unwinder_is_found() {
        // The test program links to libgcc_s like every Rust program.
        // SAFETY: only looks the functions up.
        let found = unsafe { [find_ip(), find_raise(), find_resume(), find_backtrace()] };
        for address in found {
            assert!(!address.is_null() && address != absent as *mut c_void);
        }
        assert_eq!(find(c"_Unwind_of_nothing"), absent as *mut c_void);
    }
}
