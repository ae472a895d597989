//! Anonymous mappings for tables. They are zero when new, take memory only where touched, and are never
//! unmapped.
//!
//! Statics that every hook reads are in the section `gputrace_hot`, in all crates, so that they share a
//! cache line.

use core::mem::{align_of, size_of};
use core::ptr;

use crate::system;

// The section begins with a line. What is in it takes less than one.
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
core::arch::global_asm!(".pushsection gputrace_hot,\"aw\",@progbits", ".balign 64", ".popsection");

/// Types for which all-zero bytes are a valid value.
///
/// # Safety
///
/// The implementer guarantees that zeroed memory is a valid value of the type.
pub unsafe trait Zeroed: Sync {}

// SAFETY: zero is a valid value of an atomic integer.
unsafe impl Zeroed for core::sync::atomic::AtomicU64 {}
// SAFETY: as above.
unsafe impl Zeroed for core::sync::atomic::AtomicU32 {}
// SAFETY: as above.
unsafe impl Zeroed for core::sync::atomic::AtomicU8 {}
// SAFETY: bytes.
unsafe impl Zeroed for u8 {}
// SAFETY: as many values for which zero is valid.
unsafe impl<T: Zeroed, const COUNT: usize> Zeroed for [T; COUNT] {}

/// Maps memory for `count` values; `None` if the kernel has no memory for them.
pub fn map<T: Zeroed>(count: usize) -> Option<&'static [T]> {
    let start = map_bytes(count.checked_mul(size_of::<T>())?)?;
    debug_assert!(align_of::<T>() <= 4096);
    // SAFETY: the mapping is `count` values long, page-aligned, zeroed, private to this process
    // and never unmapped; `Zeroed` makes its contents valid.
    Some(unsafe { core::slice::from_raw_parts(start.cast::<T>(), count) })
}

/// Prefetches the cache line in which `to` begins. A hint: nothing waits for it, and it never faults.
#[inline(always)]
pub fn prefetch<T: ?Sized>(of: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has the instruction, which reads nothing that the program could see.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(ptr::from_ref(of).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = of;
}

/// The same for any address; nothing need be mapped there.
#[inline(always)]
pub fn prefetch_at(address: u64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as in `prefetch`.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(ptr::without_provenance(
            address as usize,
        ));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// The same for so many lines from there on; for one if that is 0. The compiler would make a longer loop, and
/// a launch's hook is to have few lines of code.
#[inline(always)]
pub fn prefetch_lines(address: u64, lines: u32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as in `prefetch`.
    unsafe {
        core::arch::asm!(
            "2:",
            "prefetcht0 [{at}]",
            "add {at}, 64",
            "dec {left:e}",
            "jg 2b",
            at = inout(reg) address => _,
            left = inout(reg) lines => _,
            options(nostack, readonly),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (address, lines);
}

/// As [`prefetch`], for a line that is written next, which another core may have read: it is then fetched as
/// this core's own. Processors without the instruction ignore it.
#[inline(always)]
pub fn prefetch_to_write<T>(of: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads nothing that the program could see, and never faults.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) of, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = of;
}

/// A static of this library, by its distance from the instruction. For one of another crate the compiler
/// reads its address from a table first: one more cache line, for which the static's own waits.
#[macro_export]
macro_rules! own_static {
    ($name:path) => {{
        #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
        {
            /// Gives the pointer the static's type.
            #[inline(always)]
            fn typed<T: 'static>(at: *const T, _: impl FnOnce() -> &'static T) -> *const T {
                at
            }
            let at;
            // SAFETY: computes an address. The library exports no static: linking fixes the distance.
            unsafe {
                core::arch::asm!("lea {at}, [rip + {name}]", at = out(reg) at, name = sym $name,
                    options(pure, nomem, nostack, preserves_flags));
            }
            // SAFETY: the address of a static of that type.
            unsafe { &*typed(at, || &$name) }
        }
        #[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
        &$name
    }};
}

/// Maps anonymous zeroed memory, readable and writable.
pub fn map_bytes(bytes: usize) -> Option<*mut u8> {
    // SAFETY: a new anonymous mapping touches no existing memory.
    let start = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        system::mmap(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1)
    };
    start.map(<*mut _>::cast)
}
