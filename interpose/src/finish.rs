//! A session's last moment: exit in all its forms, and exec.
//!
//! `exit` and a return from `main` run our handler, registered after `cuInit` so that it runs
//! before the driver's. `_exit`, `_Exit`, `quick_exit` and the exec family run no handlers: they
//! are interposed by a few instructions that keep every argument, flush, and jump on, so that no
//! signature (some are variadic) need be known. Whatever the end, the waiting is bounded.

use core::arch::naked_asm;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use gputrace_producer::session::{self, Session};
use gputrace_producer::{fork, service, stderr, thread};
use gputrace_wire::handshake::{HEAD_BYTES, TEXT_MAX, bye};

use crate::cupti;
use crate::resolve::libc_symbols;

/// How long a process that is ending waits for its outputs in bare use.
const OUTPUT_WAIT_MS: i32 = 20_000;

/// Whether the collector is our own child and its summary is ours to print.
static BARE: AtomicBool = AtomicBool::new(false);
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Makes sure that the session is finished when the process ends.
pub fn register(bare: bool) {
    BARE.store(bare, Ordering::Relaxed);
    if REGISTERED.swap(true, Ordering::AcqRel) {
        return;
    }
    unsafe extern "C" {
        fn at_quick_exit(handler: extern "C" fn()) -> i32;
    }
    // SAFETY: the handlers have the right type and live as long as the process: the library is
    // preloaded and never unloaded.
    unsafe {
        libc::atexit(at_exit);
        at_quick_exit(at_exit);
    }
}

extern "C" fn at_exit() {
    finish(bye::EXIT);
}

/// Publishes everything, says good-bye, and in bare use waits for the outputs.
pub fn finish(reason: u64) {
    let Some(session) = session::current() else { return };
    // A vfork's child shares our memory and is about to exec or exit: not its session.
    if !session.is_ours() {
        return;
    }
    let _errno = stderr::KeepErrno::new();
    thread::with(|slot| {
        let _inside = slot.enter();
        cupti::finish(session);
        if !session.end() {
            return;
        }
        service::stop();
        slot.emit(session, &[session.anchor().to_cell()]);
        // From here on every hook passes through.
        fork::set_generation(0);
        session.say_bye(reason);
        if BARE.load(Ordering::Relaxed) {
            print_summary(session);
        }
        session.socket().close();
    });
}

fn print_summary(session: &Session) {
    // On the heap: exit may run on a small stack.
    let mut packet = vec![0u8; HEAD_BYTES + TEXT_MAX];
    match session.wait_for_done(OUTPUT_WAIT_MS, &mut packet) {
        Some(summary) => stderr::raw(summary),
        None => stderr::line(&[
            b"the collector did not finish in time or is gone; `gputrace report` reads the trace file it left",
        ]),
    }
}

unsafe extern "C" fn before_exit() {
    finish(bye::EXIT);
}

unsafe extern "C" fn before_exec() {
    finish(bye::EXEC);
}

/// An export that runs `$before` and then jumps to the next definition of the same name, with
/// every argument register, the vector registers and the stack as the caller left them.
macro_rules! run_before {
    ($($name:ident => $before:ident, $slot:ident;)*) => { $(
        static $slot: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

        /// # Safety
        /// As libc's function of that name.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            unsafe extern "C" fn prepare() -> *mut c_void {
                // SAFETY: the functions named in the list below have no preconditions.
                unsafe { $before() };
                next(&$slot, const {
                    match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => c"",
                    }
                })
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
    )* };
}

run_before! {
    _exit => before_exit, EXIT;
    _Exit => before_exit, EXIT_C99;
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
fn next(slot: &AtomicPtr<c_void>, name: &'static core::ffi::CStr) -> *mut c_void {
    let known = slot.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    let found = libc_symbols::next(name);
    let found = if found.is_null() { missing as *mut c_void } else { found };
    slot.store(found, Ordering::Relaxed);
    found
}

/// Stands in where the C library lacks the function: the program could not have linked to it.
unsafe extern "C" fn missing() -> i32 {
    stderr::set_errno(libc::ENOSYS);
    -1
}
