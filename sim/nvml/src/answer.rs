//! Writes answers through the caller's pointers.

use std::ffi::c_char;

use crate::abi::{Code, INSUFFICIENT_SIZE, INVALID_ARGUMENT, SUCCESS};

/// # Safety
/// `out` is null or can be written to.
pub unsafe fn put<T>(out: *mut T, value: T) -> Result<(), Code> {
    if out.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: the caller guarantees it.
    unsafe { out.write(value) };
    Ok(())
}

/// # Safety
/// `out` is null or has `length` bytes.
pub unsafe fn put_text(out: *mut c_char, length: u32, text: &str) -> Result<(), Code> {
    if text.len() >= length as usize {
        return Err(INSUFFICIENT_SIZE);
    }
    for (at, byte) in text.bytes().chain([0]).enumerate() {
        // SAFETY: `at` is at most the text's length, which is less than `length`.
        unsafe { put(out.wrapping_add(at), byte as c_char)? };
    }
    Ok(())
}

/// # Safety
/// `count` is null or names the length of `list`, which is null or has that many entries.
pub unsafe fn put_list<T: Copy>(list: *mut T, count: *mut u32, entries: &[T]) -> Result<(), Code> {
    if count.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: `count` is not null.
    let length = unsafe { count.read() } as usize;
    // SAFETY: as above.
    unsafe { count.write(entries.len() as u32) };
    if length < entries.len() {
        return Err(INSUFFICIENT_SIZE);
    }
    for (at, entry) in entries.iter().enumerate() {
        // SAFETY: `at` is less than the list's length.
        unsafe { put(list.wrapping_add(at), *entry)? };
    }
    Ok(())
}

pub fn code(result: Result<(), Code>) -> Code {
    result.err().unwrap_or(SUCCESS)
}
