//! Reads the environment without the C library's `getenv`, which the program may have wrapped.
//!
//! Reads the C library's array in place and never changes it.

use core::ffi::{CStr, c_char};

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Every `NAME=value` entry.
pub fn entries() -> impl Iterator<Item = *const c_char> {
    // SAFETY: the C library's array; null before it is set up and after `clearenv`.
    let mut next = unsafe { environ };
    core::iter::from_fn(move || {
        if next.is_null() {
            return None;
        }
        // SAFETY: the array ends with a null, and nothing after it is read. Another thread's `setenv` races
        // with this as it does with any getenv.
        let entry = unsafe { *next };
        next = next.wrapping_add(1);
        (!entry.is_null()).then_some(entry)
    })
}

/// The variable's value, empty or not; `None` if it is unset. The value is valid until the program changes
/// the variable. Our own threads do not call this. Each call is on a thread of the program: at load, inside
/// its cuInit, or inside a call of a tool's interface.
pub fn value(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: a C string of the environment's.
    find(name).map(|value| unsafe { CStr::from_ptr(value) })
}

/// The address of the variable's value.
pub fn find(name: &CStr) -> Option<*const c_char> {
    let name = name.to_bytes();
    entries().find_map(|entry| {
        // SAFETY: a C string of the environment. Its bytes are read up to the first difference, and an entry
        // shorter than the name differs at its NUL.
        let is_it = name.iter().enumerate().all(|(at, byte)| unsafe { *entry.add(at) } as u8 == *byte);
        // SAFETY: the name's bytes were there, so there is a byte behind them.
        let is_named = is_it && unsafe { *entry.add(name.len()) } as u8 == b'=';
        is_named.then(|| entry.wrapping_add(name.len() + 1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_c_library() {
        for name in [c"PATH", c"HOME", c"PAT", c"PATHS", c"NO_SUCH_VARIABLE"] {
            // SAFETY: a C string, read at once; no test here changes the environment.
            let expected = unsafe {
                let value = libc::getenv(name.as_ptr());
                (!value.is_null()).then(|| CStr::from_ptr(value))
            };
            assert_eq!(value(name), expected);
        }
        assert_eq!(entries().count(), std::env::vars_os().count());
    }
}
