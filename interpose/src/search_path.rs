//! Whether an exec can succeed: one that cannot leaves the program running, and its session too.
//!
//! Looks at files as the C library does, without allocating: a forked child may exec, and so may
//! a signal handler that interrupted malloc.

use core::ffi::{CStr, c_char};

use gputrace_producer::system;

use crate::environment;

/// Little, since the stack may be a signal handler's. A longer path counts as one that may be there.
const PATH_BYTES: usize = 1024;
/// Where it looks when there is no PATH.
const DEFAULT_PATH: &CStr = c"/bin:/usr/bin";

/// Whether there is a file at the path that we may execute.
///
/// # Safety
/// `path` is a C string or null.
pub unsafe fn is_executable(path: *const c_char) -> bool {
    if path.is_null() {
        return false;
    }
    // SAFETY: the caller's C string; zero is a valid stat, and both calls only look.
    unsafe {
        let mut about: libc::stat = core::mem::zeroed();
        system::stat(path, &mut about) == 0
            && about.st_mode & libc::S_IFMT == libc::S_IFREG
            && system::access(path, libc::X_OK) == 0
    }
}

/// Whether an exec by that name finds a file: at the path if it is one, else in PATH's folders.
///
/// # Safety
/// `name` is a C string or null.
pub unsafe fn finds(name: *const c_char) -> bool {
    if name.is_null() {
        return false;
    }
    // SAFETY: the caller's C string.
    let text = unsafe { CStr::from_ptr(name) }.to_bytes();
    if text.contains(&b'/') {
        // SAFETY: as above.
        return unsafe { is_executable(name) };
    }
    let path = environment::value(c"PATH").unwrap_or(DEFAULT_PATH);
    !text.is_empty() && path.to_bytes().split(|byte| *byte == b':').any(|folder| is_in(folder, text))
}

/// Whether the folder, the current one if it is empty, has such a file.
fn is_in(folder: &[u8], name: &[u8]) -> bool {
    let mut room = [0u8; PATH_BYTES];
    let slash: &[u8] = if folder.is_empty() { b"" } else { b"/" };
    let mut length = 0;
    for part in [folder, slash, name] {
        // The last byte stays 0.
        let Some(to) =
            room.get_mut(..PATH_BYTES - 1).and_then(|room| room.get_mut(length..length + part.len()))
        else {
            return true;
        };
        to.copy_from_slice(part);
        length += part.len();
    }
    // SAFETY: a C string: its end is the zero after what was copied.
    unsafe { is_executable(room.as_ptr().cast()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_where_an_exec_finds_them() {
        // SAFETY: static C strings.
        unsafe {
            assert!(finds(c"sh".as_ptr()) && finds(c"/bin/sh".as_ptr()));
            assert!(!finds(c"no-such-program".as_ptr()) && !finds(c"".as_ptr()));
            assert!(!finds(c"/etc/passwd".as_ptr()), "not executable");
            assert!(!is_executable(c"/bin".as_ptr()), "a folder");
            assert!(!finds(core::ptr::null()) && !is_executable(core::ptr::null()));
        }
        assert!(is_in(b"/bin", b"sh") && !is_in(b"/etc", b"passwd"));
        assert!(is_in(&[b'x'; PATH_BYTES], b"sh"), "nobody knows");
    }
}
