//! `cuGetProcAddress`: finds the ABI variant that the driver has just returned, and our hook for it.
//!
//! The driver is called first. Its result is unchanged if it is an error, if the name is not in our table,
//! or if the variant is newer than the table knows. The requested version and the stream flavour determine
//! the variant; the table's versions are the driver's own.

use core::ffi::{c_char, c_int, c_void};

use gputrace_producer::session;
use gputrace_wire::counter::Counter;

use crate::symbols::driver::{self, SUCCESS, Status};
use crate::symbols::entry::Entry;
use crate::symbols::originals;

/// The newest CUDA version whose ABI variants the table has (`cupti-sys/facts`).
const NEWEST_KNOWN: u32 = cupti_sys::driver::CUDA_VERSION;
/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD: u64 = 2;

/// Replaces a found function by our hook, if it is one of the `entries`.
///
/// # Safety
/// The other arguments are those of a call to the original that has returned `status`.
pub unsafe fn replace(
    entries: &'static [Entry],
    status: Status,
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
) {
    if status != SUCCESS || symbol.is_null() || function.is_null() {
        return;
    }
    // SAFETY: the original succeeded: it has read the name and written the function.
    let (base, found) = unsafe { (driver::text(symbol, 256), function.read()) };
    if found.is_null() {
        return;
    }
    let version = u32::try_from(version).unwrap_or(0);
    let Some(entry) = variant(entries, base, version, flags & PER_THREAD != 0) else { return };
    if version > NEWEST_KNOWN && !is_that(entry, found) {
        if let Some(session) = session::current() {
            session.count(Counter::UnknownAbi, 1);
        }
        return;
    }
    // SAFETY: the caller's out pointer, which the original has just written.
    unsafe { function.write(originals::replace(entry, found)) };
}

/// The variant that the driver returns for a base name, a version and a flavour: the newest that is not
/// newer than the requested version. A function without a per-thread flavour has one variant for both.
fn variant(entries: &'static [Entry], base: &[u8], version: u32, per_thread: bool) -> Option<&'static Entry> {
    let newest = |per_thread: bool| {
        entries
            .iter()
            .filter(|entry| {
                entry.base.as_bytes() == base
                    && entry.per_thread == per_thread
                    && u32::from(entry.since) <= version
            })
            .max_by_key(|entry| entry.since)
    };
    if per_thread { newest(true).or_else(|| newest(false)) } else { newest(false) }
}

/// Whether the address is the exported symbol of that entry.
fn is_that(entry: &'static Entry, found: *mut c_void) -> bool {
    originals::find_in_driver(entry.symbol) == found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(base: &str, version: u32, per_thread: bool) -> Option<&'static str> {
        variant(&crate::api::ENTRIES, base.as_bytes(), version, per_thread).map(Entry::name)
    }

    #[test]
    fn versions_and_flavours_choose_the_symbol() {
        assert_eq!(symbol("cuMemcpyHtoD", 13000, false), Some("cuMemcpyHtoD_v2"));
        assert_eq!(symbol("cuMemcpyHtoD", 13000, true), Some("cuMemcpyHtoD_v2_ptds"));
        assert_eq!(symbol("cuMemcpyHtoD", 3000, false), None, "the 32-bit ABI passes through");
        assert_eq!(symbol("cuCtxCreate", 12040, false), Some("cuCtxCreate_v3"));
        assert_eq!(symbol("cuCtxCreate", 13000, false), Some("cuCtxCreate_v4"));
        assert_eq!(symbol("cuInit", 12000, true), Some("cuInit"));
        assert_eq!(symbol("cuGetProcAddress", 11040, false), Some("cuGetProcAddress"));
        assert_eq!(symbol("cuGetProcAddress", 12000, false), Some("cuGetProcAddress_v2"));
        assert_eq!(symbol("cuGraphInstantiate", 12000, false), Some("cuGraphInstantiate_v2"));
        assert_eq!(symbol("cudnnCreate", 12000, false), None);
        assert_eq!(symbol("cu", 12000, false), None);
    }
}
