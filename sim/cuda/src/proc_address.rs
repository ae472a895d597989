//! `cuGetProcAddress`: functions by name, CUDA version and kind of default stream, all from the table.

use crate::TABLE;
use crate::abi::{Out, Text};
use crate::entry::{Call, Export, api};
use gputrace_sim::error::{Code, Result};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::LazyLock;

/// Stream 0 means the calling thread's own.
const PER_THREAD_DEFAULT_STREAM: u64 = 2;
/// Legacy and per-thread streams at once make no sense; other bits are unknown.
const KNOWN_FLAGS: u64 = 3;

/// Why there is no address, as `CUdriverProcAddressQueryResult`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Absence {
    NoSuchSymbol = 1,
    VersionTooLow = 2,
}

/// All variants of each name.
static BY_NAME: LazyLock<HashMap<&str, Vec<&Export>>> = LazyLock::new(|| {
    let mut by_name: HashMap<&str, Vec<&Export>> = HashMap::new();
    for entry in TABLE.iter().copied().flatten() {
        by_name.entry(entry.name).or_default().push(entry);
    }
    by_name
});

/// The newest variant that a program built for `version` means.
fn find(name: &str, version: u32, per_thread: bool) -> std::result::Result<&'static Export, Absence> {
    let variants = BY_NAME.get(name).ok_or(Absence::NoSuchSymbol)?;
    let newest = |wanted: bool| {
        let of_kind = variants.iter().filter(|entry| entry.per_thread == wanted && entry.version <= version);
        of_kind.max_by_key(|entry| entry.version).copied()
    };
    // Functions without streams have one variant for both.
    let found = if per_thread { newest(true).or_else(|| newest(false)) } else { newest(false) };
    found.ok_or(Absence::VersionTooLow)
}

fn answer(
    symbol: Text,
    address: Out<*const c_void>,
    version: i32,
    flags: u64,
    status: Option<Out<u32>>,
) -> Result {
    let name = symbol.get()?;
    address.required()?;
    if flags & !KNOWN_FLAGS != 0 || flags == KNOWN_FLAGS {
        return Err(Code::INVALID_VALUE);
    }
    let report = |value| {
        if let Some(status) = status {
            status.set_if_wanted(value);
        }
    };
    match find(name, u32::try_from(version).unwrap_or(0), flags & PER_THREAD_DEFAULT_STREAM != 0) {
        Ok(entry) => {
            report(0);
            address.set(entry.address)
        }
        Err(absence) => {
            report(absence as u32);
            address.set(std::ptr::null())?;
            Err(Code::NOT_FOUND)
        }
    }
}

api! {
    "cuGetProcAddress" 11030 fn cuGetProcAddress(symbol: Text, pfn: Out<*const c_void>, cudaVersion: i32, flags: u64) |_| {
        answer(symbol, pfn, cudaVersion, flags, None)
    }
    "cuGetProcAddress" 12000 fn cuGetProcAddress_v2(symbol: Text, pfn: Out<*const c_void>, cudaVersion: i32, flags: u64, symbolStatus: Out<u32>) |_| {
        answer(symbol, pfn, cudaVersion, flags, Some(symbolStatus))
    }
    "cuGetExportTable" 3000 fn cuGetExportTable(ppExportTable: Out<*const c_void>, _pExportTableId: u64) |_| {
        crate::initialisation::explain_runtime_api();
        ppExportTable.set(std::ptr::null())?;
        Err(Code::NOT_FOUND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(name: &str, version: u32, per_thread: bool) -> std::result::Result<&'static str, Absence> {
        find(name, version, per_thread).map(|entry| entry.symbol.to_str().unwrap())
    }

    #[test]
    fn variant_follows_version_and_stream_kind() {
        assert_eq!(symbol("cuMemAlloc", 12000, false), Ok("cuMemAlloc_v2"));
        assert_eq!(symbol("cuMemAlloc", 12000, true), Ok("cuMemAlloc_v2"));
        assert_eq!(symbol("cuLaunchKernel", 12000, false), Ok("cuLaunchKernel"));
        assert_eq!(symbol("cuLaunchKernel", 12000, true), Ok("cuLaunchKernel_ptsz"));
        assert_eq!(symbol("cuLaunchKernel", 5000, true), Ok("cuLaunchKernel"));
        assert_eq!(symbol("cuGetProcAddress", 11050, false), Ok("cuGetProcAddress"));
        assert_eq!(symbol("cuGetProcAddress", 13000, false), Ok("cuGetProcAddress_v2"));
    }

    #[test]
    fn absent_symbol_is_reported_as_absent() {
        assert_eq!(symbol("cuNoSuch", 12000, false), Err(Absence::NoSuchSymbol));
        assert_eq!(symbol("cuLaunchKernelEx", 11000, false), Err(Absence::VersionTooLow));
        assert_eq!(symbol("cuMemAlloc_v2", 12000, false), Err(Absence::NoSuchSymbol));
    }

    #[test]
    fn symbols_are_described_once() {
        let mut symbols: Vec<_> = TABLE.iter().copied().flatten().map(|entry| entry.symbol).collect();
        let all = symbols.len();
        symbols.sort();
        symbols.dedup();
        assert_eq!(symbols.len(), all);
    }
}
