//! Our `_exit`, exec and the like: each ends or publishes the session, then jumps to the original.

use core::arch::naked_asm;
use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use gputrace_producer::stderr;

use crate::lifecycle::finish::{before_exec, finish};
use crate::symbols::libc_symbols;

/// An export that runs `$before` and then jumps to the next definition of the same name. Every argument
/// register, the vector registers and the stack are as the caller left them.
macro_rules! run_before {
    ($($name:ident => $before:ident, $slot:ident;)*) => { $(
        static $slot: Original = Original {
            name: match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            },
            address: AtomicPtr::new(core::ptr::null_mut()),
        };

        /// # Safety
        /// The same as for libc's function of that name.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            unsafe extern "C" fn prepare() -> *mut c_void {
                let _errno = stderr::KeepErrno::new();
                $before();
                $slot.get()
            }
            naked_asm!(
                "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
                // Seven pushes and the return address: the stack is aligned again.
                "sub rsp, 128",
                "movups [rsp], xmm0", "movups [rsp + 16], xmm1", "movups [rsp + 32], xmm2", "movups [rsp + 48], xmm3",
                "movups [rsp + 64], xmm4", "movups [rsp + 80], xmm5", "movups [rsp + 96], xmm6", "movups [rsp + 112], xmm7",
                "call {prepare}",
                "mov r11, rax",
                "movups xmm0, [rsp]", "movups xmm1, [rsp + 16]", "movups xmm2, [rsp + 32]", "movups xmm3, [rsp + 48]",
                "movups xmm4, [rsp + 64]", "movups xmm5, [rsp + 80]", "movups xmm6, [rsp + 96]", "movups xmm7, [rsp + 112]",
                "add rsp, 128",
                "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                "jmp r11",
                prepare = sym prepare,
            )
        }
    )*

        /// Looks up the originals, at load. Later, the look-up's locks may be held by a thread that a forked
        /// child does not have, or by the code that a signal handler interrupted.
        pub fn prepare() {
            $( $slot.get(); )*
        }
    };
}

run_before! {
    _exit => finish, EXIT;
    _Exit => finish, EXIT_C99;
    execve => before_exec, EXECVE;
    execv => before_exec, EXECV;
    execvp => before_exec, EXECVP;
    execvpe => before_exec, EXECVPE;
    execl => before_exec, EXECL;
    execlp => before_exec, EXECLP;
    execle => before_exec, EXECLE;
    fexecve => before_exec, FEXECVE;
    execveat => before_exec, EXECVEAT;
}

/// The next definition of a libc function after ours.
struct Original {
    name: &'static CStr,
    /// Null until it is looked up.
    address: AtomicPtr<c_void>,
}

impl Original {
    fn get(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        let found = libc_symbols::next(self.name);
        let found = if found.is_null() { missing as *mut c_void } else { found };
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// Replaces a function that the C library lacks. The program could not have linked to it.
unsafe extern "C" fn missing() -> i32 {
    stderr::set_errno(libc::ENOSYS);
    -1
}
