//! Runs a function on a separate stack, with the thread's cancellation off and errno kept.
//!
//! `cuInit` may be called on the smallest possible stack, and `_exit` on a signal handler's, which is
//! smaller still. Starting and ending a session (reading files, loading libcupti, flushing it) needs far
//! more than either, so it runs on a mapping that lasts as long as the call. Signals are not blocked: a
//! start can take seconds, and the user may want to interrupt it.

use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use core::ptr;

use gputrace_producer::memory;
use gputrace_producer::stderr::KeepErrno;
use gputrace_producer::system;

/// Address space; only touched pages use memory.
const STACK_BYTES: usize = 1 << 20;
/// Inaccessible, so that an overflow faults instead of overwriting a neighbour.
const GUARD_BYTES: usize = 4096;

/// Runs `body` on a stack of its own, or on the current one if there is no memory.
pub fn run<B: FnOnce()>(body: B) {
    let _errno = KeepErrno::new();
    let _cancel = KeepCancel::new();
    let Some(stack) = Stack::map() else { return body() };
    let mut body = Some(body);
    // SAFETY: the stack is mapped, aligned and not shared; `call` gets the body that it was made for, which
    // outlives the call.
    unsafe { on_stack((&raw mut body).cast(), stack.top(), call::<B>) };
}

/// # Safety
/// `body` is a live `Option<B>`.
unsafe extern "C" fn call<B: FnOnce()>(body: *mut c_void) {
    // SAFETY: `run` passes a live option of this type and does not look at it meanwhile.
    if let Some(body) = unsafe { &mut *body.cast::<Option<B>>() }.take() {
        body();
    }
}

/// Calls `function(argument)` with the stack pointer at `top`.
///
/// # Safety
/// `top` is the 16-byte aligned end of enough unshared memory.
#[unsafe(naked)]
unsafe extern "C" fn on_stack(
    argument: *mut c_void,
    top: *mut c_void,
    function: unsafe extern "C" fn(*mut c_void),
) {
    // Unwinders find the way back by the frame pointer or by these CFI directives.
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rsi",
        "call rdx",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

struct Stack(*mut u8);

impl Stack {
    fn map() -> Option<Stack> {
        let base = memory::map_bytes(STACK_BYTES)?;
        // SAFETY: the lowest page of the mapping made above. Where it cannot be protected, the
        // stack works all the same.
        unsafe { system::mprotect(base.cast(), GUARD_BYTES, libc::PROT_NONE) };
        Some(Stack(base))
    }

    fn top(&self) -> *mut c_void {
        self.0.wrapping_add(STACK_BYTES).cast()
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`; the function that ran on it has returned.
        unsafe { system::munmap(self.0.cast(), STACK_BYTES) };
    }
}

/// The thread is not cancelled while this lives. Neither `cuInit` nor `_exit` is a cancellation point, and
/// what runs here would be one.
pub struct KeepCancel(c_int);

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

impl KeepCancel {
    pub fn new() -> KeepCancel {
        const PTHREAD_CANCEL_DISABLE: c_int = 1;
        let mut old = 0;
        // SAFETY: the pointer is to a live int.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &mut old) };
        KeepCancel(old)
    }
}

impl Drop for KeepCancel {
    fn drop(&mut self) {
        // SAFETY: restores the thread's former state; the out pointer may be null.
        unsafe { pthread_setcancelstate(self.0, ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gputrace_producer::stderr::{errno, set_errno};

    #[test]
    fn body_runs_once_on_another_stack_and_keeps_errno() {
        let (here, mut there, mut times) = (0u8, 0usize, 0);
        set_errno(77);
        run(|| {
            let local = 0u8;
            there = (&raw const local).addr();
            times += 1;
            set_errno(1);
        });
        assert_eq!((errno(), times), (77, 1));
        assert!(there.abs_diff((&raw const here).addr()) > STACK_BYTES / 2, "the same stack");
    }

    #[test]
    fn body_has_more_stack_than_its_thread() {
        let small = std::thread::Builder::new().stack_size(64 * 1024);
        let body = || {
            let mut sum = 0u64;
            run(|| {
                let array = core::hint::black_box([1u8; 128 * 1024]);
                sum = array.iter().map(|byte| u64::from(*byte)).sum();
            });
            sum
        };
        assert_eq!(small.spawn(body).unwrap().join().unwrap(), 128 * 1024);
    }
}
