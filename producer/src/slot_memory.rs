//! Where each thread's [`Slot`] is: in the static part of its thread-local storage, at a fixed distance from the
//! thread pointer.
//!
//! The compiler gives a library's thread-locals the general form, a call of the loader's `__tls_get_addr`: three
//! lines of code and four of data, which a hook finds cold, for one addition. The library is preloaded, so the
//! loader reserves its thread-locals in every thread, and the distance is a constant that the loader writes to our
//! offset table. (If the library is opened later, glibc takes them from its reserve of 1664 bytes, or the open
//! fails.)
//!
//! The memory is zero in a new thread, which is a new slot.

use crate::thread::Slot;

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
mod place {
    use super::Slot;

    core::arch::global_asm!(
        ".pushsection .tbss.gputrace_slot,\"awT\",@nobits",
        ".balign {align}",
        ".globl gputrace_slot",
        ".hidden gputrace_slot",
        ".type gputrace_slot, @object",
        ".size gputrace_slot, {size}",
        "gputrace_slot:",
        ".zero {size}",
        ".popsection",
        size = const size_of::<Slot>(),
        align = const align_of::<Slot>(),
    );

    #[inline(always)]
    pub fn with<R>(body: impl FnOnce(&Slot) -> R) -> R {
        let slot: *const Slot;
        // SAFETY: reads the thread pointer and a constant that the loader wrote, and adds them.
        unsafe {
            core::arch::asm!(
                "mov {slot}, qword ptr fs:[0]",
                "add {slot}, qword ptr [rip + gputrace_slot@GOTTPOFF]",
                slot = out(reg) slot,
                options(pure, nomem, nostack),
            );
        }
        // SAFETY: memory of that size and alignment, which lives as long as the thread and is this thread's alone;
        // zero is a valid slot.
        body(unsafe { &*slot })
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
mod place {
    use core::mem::MaybeUninit;

    use super::Slot;

    thread_local! {
        static SLOT: MaybeUninit<Slot> = const { MaybeUninit::zeroed() };
    }

    #[inline(always)]
    pub fn with<R>(body: impl FnOnce(&Slot) -> R) -> R {
        // SAFETY: zero is a valid slot.
        SLOT.with(|slot| body(unsafe { slot.assume_init_ref() }))
    }
}

pub use place::with;
