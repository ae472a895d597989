//! A hooked function of the driver. The table of all of them is `api`.

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::process::link::Link;

/// The table, which is above all that reads it here. Set before the first session starts.
pub static TABLE: Link<&[Entry]> = Link::new(&(&[] as &[Entry]));

/// One hooked symbol of the driver, in one cache line: a launch finds it cold.
#[repr(C, align(64))]
pub struct Entry {
    /// The driver's function; null until it is looked up.
    pub original: AtomicPtr<c_void>,
    /// The symbol's definition in the lower half, the generation of its session in the upper one; 0 if it was
    /// never defined.
    pub api: AtomicU64,
    /// The base name under which `cuGetProcAddress` knows it.
    pub base: &'static str,
    /// The exported symbol, with a terminating NUL.
    pub symbol: &'static str,
    /// Returns the address of our replacement.
    pub hook: fn() -> *mut c_void,
    /// [`hash`] of the symbol without its NUL.
    pub hash: u32,
    /// The CUDA version from which `cuGetProcAddress` returns this symbol for the base.
    pub since: u16,
    /// Whether it is the variant with the per-thread default stream.
    pub per_thread: bool,
    /// Whether it does nothing but wait for the device: [`only_waits`] of the base name. Every hook asks,
    /// and the name would be one more cache line.
    pub only_waits: bool,
}

const _: () = assert!(size_of::<Entry>() == 64);

impl Entry {
    pub fn launches_kernels(&self) -> bool {
        launches_kernels(self.base)
    }

    /// Whether its work makes device records.
    pub fn makes_records(&self) -> bool {
        self.launches_kernels()
            || ["cuGraphLaunch", "cuMemcpy", "cuMemset"].iter().any(|prefix| self.base.starts_with(prefix))
    }

    /// The symbol's definition in the session of that generation; `None` if it has none there.
    #[inline(always)]
    pub fn api_in(&self, generation: u32) -> Option<u32> {
        let known = self.api.load(Ordering::Relaxed);
        ((known >> 32) as u32 == generation).then_some(known as u32)
    }

    /// The symbol's definition in the session in which it was last defined.
    #[inline(always)]
    pub fn latest_api(&self) -> u32 {
        self.api.load(Ordering::Relaxed) as u32
    }

    pub fn name(&self) -> &'static str {
        self.symbol.get(..self.symbol.len() - 1).unwrap_or_default()
    }
}

/// Whether a function of that base name launches a kernel.
pub const fn launches_kernels(base: &str) -> bool {
    let is_of_host = matches!(base.as_bytes().first_chunk(), Some(b"cuLaunchHostFunc"));
    matches!(base.as_bytes().first_chunk(), Some(b"cuLaunch")) && !is_of_host
}

/// Whether a function of that base name does nothing but wait for the device.
pub const fn only_waits(base: &str) -> bool {
    matches!(base.as_bytes().last_chunk(), Some(b"Synchronize"))
}

/// FNV-1a: cheap; callers that need certainty compare the full name too.
pub const fn hash(name: &[u8]) -> u32 {
    let mut value = 0x811c_9dc5u32;
    let mut at = 0;
    while at < name.len() {
        // A const fn cannot use an iterator; the loop's condition bounds the index.
        #[allow(clippy::indexing_slicing)]
        let byte = name[at];
        value = (value ^ byte as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    value
}
