//! CUPTI's result codes.

use crate::pointer::OutPtr;
use std::cell::Cell;
use std::ffi::{CStr, c_char};

/// A `CUptiResult` other than success.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure(pub u32);

/// What the functions behind the C ABI return.
pub type CuptiResult<T = ()> = std::result::Result<T, Failure>;

pub const INVALID_PARAMETER: Failure = Failure(1);
pub const INVALID_CONTEXT: Failure = Failure(3);
pub const INVALID_OPERATION: Failure = Failure(7);
pub const PARAMETER_SIZE_NOT_SUFFICIENT: Failure = Failure(10);
pub const MAX_LIMIT_REACHED: Failure = Failure(12);
pub const NOT_COMPATIBLE: Failure = Failure(14);
pub const NOT_INITIALIZED: Failure = Failure(15);
pub const QUEUE_EMPTY: Failure = Failure(18);
pub const INVALID_STREAM: Failure = Failure(20);
pub const INVALID_KIND: Failure = Failure(21);
pub const MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED: Failure = Failure(39);

const NAMES: &[(u32, &CStr)] = &[
    (0, c"CUPTI_SUCCESS"),
    (1, c"CUPTI_ERROR_INVALID_PARAMETER"),
    (2, c"CUPTI_ERROR_INVALID_DEVICE"),
    (3, c"CUPTI_ERROR_INVALID_CONTEXT"),
    (7, c"CUPTI_ERROR_INVALID_OPERATION"),
    (8, c"CUPTI_ERROR_OUT_OF_MEMORY"),
    (10, c"CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT"),
    (11, c"CUPTI_ERROR_API_NOT_IMPLEMENTED"),
    (12, c"CUPTI_ERROR_MAX_LIMIT_REACHED"),
    (13, c"CUPTI_ERROR_NOT_READY"),
    (14, c"CUPTI_ERROR_NOT_COMPATIBLE"),
    (15, c"CUPTI_ERROR_NOT_INITIALIZED"),
    (18, c"CUPTI_ERROR_QUEUE_EMPTY"),
    (19, c"CUPTI_ERROR_INVALID_HANDLE"),
    (20, c"CUPTI_ERROR_INVALID_STREAM"),
    (21, c"CUPTI_ERROR_INVALID_KIND"),
    (23, c"CUPTI_ERROR_DISABLED"),
    (27, c"CUPTI_ERROR_NOT_SUPPORTED"),
    (35, c"CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"),
    (39, c"CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"),
    (999, c"CUPTI_ERROR_UNKNOWN"),
];

thread_local! {
    static LAST: Cell<u32> = const { Cell::new(0) };
}

/// A result as C wants it, kept for `cuptiGetLastError` if it is a failure.
pub fn number(result: CuptiResult) -> u32 {
    match result {
        Ok(()) => 0,
        Err(failure) => {
            LAST.set(failure.0);
            failure.0
        }
    }
}

/// The last failure on this thread; asking clears it.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetLastError() -> u32 {
    LAST.replace(0)
}

/// Text of a result.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetResultString(result: u32, text: OutPtr<*const c_char>) -> u32 {
    let known = NAMES.iter().find(|(number, _)| *number == result).ok_or(INVALID_PARAMETER);
    number(known.and_then(|(_, name)| text.set(name.as_ptr())))
}
