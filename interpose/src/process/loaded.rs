//! How many objects the loader has mapped and unmapped: shows whether a new search is due.

use core::ffi::{c_int, c_void};

use gputrace_producer::loader;

/// Since the process began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub loaded: u64,
    pub unloaded: u64,
}

pub fn counts() -> Counts {
    unsafe extern "C" fn read(object: *mut libc::dl_phdr_info, _: usize, counts: *mut c_void) -> c_int {
        // SAFETY: the loader's description, and `counts`' own value.
        unsafe {
            let object = &*object;
            *counts.cast::<Counts>() = Counts { loaded: object.dlpi_adds, unloaded: object.dlpi_subs };
        }
        1
    }
    let mut counts = Counts::default();
    // SAFETY: the callback gets a pointer to `counts`, which outlives the call.
    unsafe { loader::each_object(read, (&raw mut counts).cast()) };
    counts
}
