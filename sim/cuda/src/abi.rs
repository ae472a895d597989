//! The types of arguments as C passes them.
//!
//! Only this file follows pointers from the program, apart from bytes to be
//! copied. Each type has the layout of the plain C argument.

use gputrace_sim::error::{Code, Result};
use std::ffi::{CStr, c_char};

/// Where a result goes: a C pointer to a `T`, possibly null.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T: Copy> Out<T> {
    /// Stores the result; null is an invalid value.
    pub fn set(self, value: T) -> Result {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: by the driver's contract a pointer that is not null points to writable memory for a `T`.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Stores the result if somebody wants it.
    pub fn set_if_wanted(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: as for `set`.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    /// An error now rather than after the work is done.
    pub fn required(self) -> Result {
        if self.0.is_null() { Err(Code::INVALID_VALUE) } else { Ok(()) }
    }

    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// What is there before the call.
    pub fn get(self) -> Result<T> {
        self.required()?;
        // SAFETY: as for `set`; arguments that are read before they are written are initialised by contract.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// Stores several results, as many as both sides have.
    pub fn set_list(self, values: &[T], capacity: usize) -> Result {
        self.required()?;
        for (at, value) in values.iter().take(capacity).enumerate() {
            // SAFETY: by the driver's contract the array has the capacity that the program stated.
            unsafe { self.0.add(at).write_unaligned(*value) };
        }
        Ok(())
    }
}

impl Out<c_char> {
    /// Stores a text cut to fit, with its end.
    pub fn set_text(self, text: &str, capacity: i32) -> Result {
        self.required()?;
        let capacity =
            usize::try_from(capacity).ok().filter(|&bytes| bytes > 0).ok_or(Code::INVALID_VALUE)?;
        let kept = text.len().min(capacity - 1);
        // SAFETY: by the driver's contract the buffer has `capacity` bytes, and `kept` + 1 is no more.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast(), self.0, kept);
            self.0.add(kept).write(0);
        }
        Ok(())
    }
}

/// A structure or list that a program hands over: a C pointer to const, possibly null.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct In<T>(pub *const T);

impl<T: Copy> In<T> {
    /// The structure; null is an invalid value.
    pub fn get(self) -> Result<T> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: by the driver's contract a pointer that is not null points to an initialised `T`.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// A list of `count`, which may be absent if it is empty.
    pub fn list(self, count: usize) -> Result<Vec<T>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        if self.0.is_null() || count > 1 << 24 {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: by the driver's contract the array has `count` elements.
        Ok((0..count).map(|at| unsafe { self.0.add(at).read_unaligned() }).collect())
    }

    pub fn is_null(self) -> bool {
        self.0.is_null()
    }
}

/// A C string that a program hands over.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    /// The text; null, or what is not UTF-8, is an invalid value.
    pub fn get<'a>(self) -> Result<&'a str> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: by the driver's contract it is a C string that lives for the call.
        unsafe { CStr::from_ptr(self.0) }.to_str().map_err(|_| Code::INVALID_VALUE)
    }
}
