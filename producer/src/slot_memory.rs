//! Where each thread's [`Slot`](crate::thread::Slot) is: in the static part of its thread-local storage, at a
//! fixed distance from the thread pointer.
//!
//! The compiler gives a library's thread-locals the general form, a call of the loader's `__tls_get_addr`:
//! three cache lines of code and four of data for one addition, which a hook finds cold. The library is
//! preloaded, so the loader reserves its thread-locals in every thread and writes the distance to our offset
//! table once. (If the library is opened later instead, glibc takes them from its reserve of 1664 bytes, or
//! the library does not open.)
//!
//! The memory is zero in a new thread.

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
use {crate::fork, core::hint::cold_path, core::sync::atomic::Ordering};

/// The memory of each thread, in bytes, and its alignment.
pub const BYTES: usize = 768;
pub const ALIGNMENT: usize = 64;

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
core::arch::global_asm!(
    ".pushsection .tbss.gputrace_slot,\"awT\",@nobits",
    ".balign {alignment}",
    ".globl gputrace_slot",
    ".hidden gputrace_slot",
    ".type gputrace_slot, @object",
    ".size gputrace_slot, {bytes}",
    "gputrace_slot:",
    ".zero {bytes}",
    ".popsection",
    bytes = const BYTES,
    alignment = const ALIGNMENT,
);

/// How far the memory is from the thread pointer: the same in all threads, and never 0.
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
#[inline(always)]
pub fn distance() -> isize {
    let distance: isize;
    // SAFETY: reads a constant, which the loader wrote.
    unsafe {
        core::arch::asm!(
            "mov {distance}, qword ptr [rip + gputrace_slot@GOTTPOFF]",
            distance = out(reg) distance,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    distance
}

/// The memory of the calling thread. Every hook needs it, and reads the distance where it finds all else
/// that it reads of the process; it is 0 there before the process's first session, and in a forked child
/// before its own.
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
#[inline(always)]
pub fn of_this_thread() -> *const u8 {
    match of_this_thread_if_known() {
        Some(memory) => memory,
        None => {
            cold_path();
            at(distance())
        }
    }
}

/// The same; `None` before the process's first session, and in a forked child before its own.
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
#[inline(always)]
pub fn of_this_thread_if_known() -> Option<*const u8> {
    match fork::of_process().slot_distance.load(Ordering::Relaxed) {
        0 => None,
        known => Some(at(known)),
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
#[inline(always)]
fn at(distance: isize) -> *const u8 {
    let memory: *const u8;
    // SAFETY: adds a constant to the thread pointer.
    unsafe {
        core::arch::asm!(
            "add {memory}, qword ptr fs:[0]",
            memory = inout(reg) distance => memory,
            options(pure, nomem, nostack),
        );
    }
    memory
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
pub fn distance() -> isize {
    0
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
#[inline(always)]
pub fn of_this_thread() -> *const u8 {
    use core::cell::UnsafeCell;

    #[repr(C, align(64))]
    struct Memory(UnsafeCell<[u8; BYTES]>);
    thread_local! {
        static MEMORY: Memory = const { Memory(UnsafeCell::new([0; BYTES])) };
    }
    MEMORY.with(|memory| memory.0.get().cast_const().cast())
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
#[inline(always)]
pub fn of_this_thread_if_known() -> Option<*const u8> {
    Some(of_this_thread())
}
