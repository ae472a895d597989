//! Removes from the environment what was preloaded for this exec alone, before the program runs.
//!
//! `gputrace run` puts a program's shared AddressSanitizer first: `LD_PRELOAD=libasan.so.8::<ours>`. The
//! empty element, which the loader skips, ends the part that children must not inherit. This runs at load
//! and calls no function: a sanitizer's wrappers may not work yet.

use core::ffi::c_char;

use crate::process::{environment, settings};

/// Removes the front part of `LD_PRELOAD` that `run` added. A value without an empty element after the first
/// one is the user's and stays. So does every value outside of `run`.
pub fn forget() {
    if settings::get(settings::SESSION).is_some()
        && let Some(value) = environment::find(c"LD_PRELOAD")
    {
        // SAFETY: a C string in the memory that the kernel filled for the process, which is writable; at load
        // no other thread uses it.
        unsafe { cut_front(value.cast_mut()) };
    }
}

/// # Safety
/// A C string.
unsafe fn begins_with(text: *const c_char, beginning: &[u8]) -> bool {
    // SAFETY: a byte is read only if all before it were equal, and none of those is the NUL.
    beginning.iter().enumerate().all(|(at, byte)| unsafe { *text.add(at) } == byte.cast_signed())
}

/// Moves the text after `NAME::` to the front, if the first element is an AddressSanitizer.
///
/// # Safety
/// A writable C string that no other thread uses meanwhile.
unsafe fn cut_front(value: *mut c_char) {
    // SAFETY: the caller's C string. No byte after its NUL is touched. The accesses are volatile: otherwise
    // the compiler might turn the loops into calls of memmove.
    unsafe {
        if !begins_with(value, b"libasan.so") && !begins_with(value, b"libclang_rt.asan") {
            return;
        }
        let mut from = value;
        while *from != 0 && *from != b':' as c_char {
            from = from.add(1);
        }
        if *from == 0 || *from.add(1) != b':' as c_char {
            return;
        }
        from = from.add(2);
        let mut to = value;
        loop {
            let byte = from.read_volatile();
            to.write_volatile(byte);
            if byte == 0 {
                break;
            }
            (from, to) = (from.add(1), to.add(1));
        }
        // /proc/PID/environ shows this memory, so no part of a path may remain.
        while to != from {
            to = to.add(1);
            to.write_volatile(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::{CStr, CString};

    fn cut(value: &str) -> String {
        let text = CString::new(value).unwrap().into_raw();
        // SAFETY: the test's own writable C string, taken back once.
        unsafe {
            cut_front(text);
            let rest = CStr::from_ptr(text).to_str().unwrap().to_owned();
            // The text may be shorter now: the buffer is freed with its original length.
            drop(Vec::from_raw_parts(text.cast::<u8>(), 0, value.len() + 1));
            rest
        }
    }

    #[test]
    fn elements_before_the_empty_one_are_removed() {
        assert_eq!(cut("libasan.so.8::/a/libgputrace.so:libm.so.6"), "/a/libgputrace.so:libm.so.6");
        assert_eq!(cut("libclang_rt.asan-x86_64.so::/a.so"), "/a.so");
    }

    #[test]
    fn other_values_stay() {
        for value in
            ["", "/a.so", "libasan.so.8", "libasan.so.8:/a.so::/b.so", "/a.so::/b.so", "libasan.so.8:", ":"]
        {
            assert_eq!(cut(value), value);
        }
    }
}
