//! The hook of a launch, in instructions: a naked function, which leaves the call's arguments where they are.
//!
//! A launch mostly waits for cache lines that hold code: between two launches a program runs through far more
//! code than a core's first cache holds. So its hook has no more instructions than the call needs, with one
//! function before the call and one after it: those of [`paused_launch`](super::paused_launch) while the
//! session is paused, otherwise those of [`plain_launch`](super::plain_launch). Neither calls anything on its
//! usual way, but for what finds Python's frames. All other launches are [`launch`](super::launch)'s.

use core::ffi::{c_int, c_void};

use gputrace_producer::thread;

use crate::hook::launch_frame::{KEPT_WORDS, REGISTERS};
use crate::hook::under_way;

/// The body of a launch's hook, for a function of so many arguments; none is wider than a register. The
/// module `$of` has the functions of this launch.
///
/// Each of the two ways has a function before the call, which gets the [frame](super::launch_frame), and
/// while the session is paused the entry, and returns the driver's function. If that is null, nothing was
/// changed, and the hook jumps to `otherwise`, which gets the call's arguments. The function after the call
/// gets the frame and the status, and returns 0, which is SUCCESS, if that is the status and all is done;
/// otherwise the hook jumps to `$rest`, which gets the call's arguments.
///
/// Where the call is left by unwinding, as its thread ends in it, [`leave`] is called.
macro_rules! hook {
    ($entry_at:expr, $entries:path, $arguments:expr, $of:ident) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            // 0x1b: the address is relative to where it is written, in four bytes.
            ".cfi_personality 0x1b, {leave}",
            "mov eax, [rip + {page} + {state}]",
            "and al, {mask}",
            "cmp al, {passes_over}",
            "je 2f",
            $crate::hook::around_launch::way!("", "{plain_begin}", "{plain_end}", "{not_plain}"),
            "2:",
            $crate::hook::around_launch::way!(
                "lea rsi, [rip + {entries} + {entry_at}]", "{paused_begin}", "{paused_end}", "{paused}"
            ),
            // In this section the hook is followed by its function before the call, as `api` writes them: the
            // padding lets that one begin with a cache line.
            ".p2align 6",
            ".cfi_endproc",
            page = sym gputrace_producer::fork::PAGE,
            state = const gputrace_producer::fork::HOOK_STATE_AT,
            mask = const gputrace_producer::hook_state::OF_LAUNCHES,
            passes_over = const gputrace_producer::hook_state::PASSES_OVER_LAUNCHES,
            entries = sym $entries,
            entry_at = const $entry_at,
            kept = const 8 * $crate::hook::launch_frame::KEPT_WORDS,
            pushed = const $crate::hook::around_launch::pushed($arguments),
            padding = const $crate::hook::around_launch::padding($arguments),
            pushed_at = const $crate::hook::around_launch::PUSHED_AT,
            otherwise = sym $of::otherwise,
            plain_begin = sym $of::plain_begin,
            plain_end = sym $of::plain_end,
            not_plain = sym $of::not_plain,
            paused_begin = sym $crate::hook::paused_launch::begin,
            paused_end = sym $crate::hook::paused_launch::end,
            paused = sym $of::paused,
            leave = sym $crate::hook::around_launch::leave,
        )
    };
}
pub(crate) use hook;

/// One of the two ways of [`hook`]. The registers that hold arguments are saved on the stack, above the words
/// that are kept for the function after the call, until that one has returned.
macro_rules! way {
    ($entry:literal, $begin:literal, $end:literal, $rest:literal) => {
        concat!(
            ".irp register, rdi, rsi, rdx, rcx, r8, r9
             push \\register
             .cfi_adjust_cfa_offset 8
             .endr
             sub rsp, {kept}
             .cfi_adjust_cfa_offset {kept}
             mov rdi, rsp\n",
            $entry,
            "
             call ",
            $begin,
            "\n",
            $crate::hook::around_launch::restore!(),
            "test rax, rax
             jz 3f\n",
            // The arguments behind the sixth, the last one first.
            ".if {pushed}
             lea r11, [rsp + {pushed_at}]
             .if {padding}
             sub rsp, {padding}
             .cfi_adjust_cfa_offset {padding}
             .endif
             .set .Largument, 8 * {pushed}
             .rept {pushed}
             .set .Largument, .Largument - 8
             push qword ptr [r11 + .Largument]
             .cfi_adjust_cfa_offset 8
             .endr
             .endif
             call rax
             .if {pushed}
             add rsp, {padding} + 8 * {pushed}
             .cfi_adjust_cfa_offset -({padding} + 8 * {pushed})
             .endif
             mov rdi, rsp
             mov esi, eax
             call ",
            $end,
            "
             test eax, eax
             jnz 4f
             add rsp, {kept} + 48
             .cfi_adjust_cfa_offset -({kept} + 48)
             ret
             .cfi_adjust_cfa_offset {kept} + 48
             3:
             add rsp, {kept} + 48
             .cfi_adjust_cfa_offset -({kept} + 48)
             jmp {otherwise}
             .cfi_adjust_cfa_offset {kept} + 48
             4:\n",
            $crate::hook::around_launch::restore!(),
            "add rsp, {kept} + 48
             .cfi_adjust_cfa_offset -({kept} + 48)
             jmp ",
            $rest,
        )
    };
}
pub(crate) use way;

/// The registers that hold arguments, as [`way`] has saved them.
macro_rules! restore {
    () => {
        "mov r9, [rsp + {kept}]
         mov r8, [rsp + {kept} + 8]
         mov rcx, [rsp + {kept} + 16]
         mov rdx, [rsp + {kept} + 24]
         mov rsi, [rsp + {kept} + 32]
         mov rdi, [rsp + {kept} + 40]
"
    };
}
pub(crate) use restore;

/// The personality of a hook's frame (System V ABI for x86-64, section 6.2): it handles no exception, and
/// where one passes the frame, or the thread's end does, the thread leaves the hook. Only the driver's
/// function is called in a way that can be left so.
pub extern "C" fn leave(_: c_int, actions: c_int, _: u64, _: *mut c_void, _: *mut c_void) -> c_int {
    const CLEANUP_PHASE: c_int = 2;
    const CONTINUE_UNWIND: c_int = 8;
    if actions & CLEANUP_PHASE != 0 {
        thread::with(|slot| {
            under_way::launch_ended(slot);
            slot.call_ends();
            drop(slot.inside_again());
        });
    }
    CONTINUE_UNWIND
}

/// How many of so many arguments the caller has pushed: those that no register holds.
pub const fn pushed(arguments: usize) -> usize {
    arguments.saturating_sub(REGISTERS)
}

/// How many bytes are left free above their copies, so that the stack is aligned to 16 bytes at the call.
pub const fn padding(arguments: usize) -> usize {
    pushed(arguments) % 2 * 8
}

/// Where the caller has pushed them, in bytes above the stack pointer: behind the frame and the return
/// address.
pub const PUSHED_AT: usize = 8 * (KEPT_WORDS + REGISTERS + 1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stack_is_aligned_at_the_call_whatever_is_pushed() {
        // cuLaunchKernelEx's caller pushes none, and cuLaunchKernel's five.
        assert_eq!((pushed(4), padding(4)), (0, 0));
        assert_eq!((pushed(11), padding(11)), (5, 8));
        for arguments in 0..12 {
            // With the return address of the hook's caller.
            let bytes = 8 * (1 + REGISTERS + KEPT_WORDS + pushed(arguments)) + padding(arguments);
            assert_eq!(bytes % 16, 0, "{arguments}");
        }
    }
}
