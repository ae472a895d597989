//! A session's last moment: exit in all its forms, and exec.
//!
//! `exit` and a return from `main` run our handler, registered after `cuInit` so that it runs
//! before the driver's. `_exit`, `_Exit`, `quick_exit` and the exec family run no handlers: they
//! are interposed by a few instructions that keep every argument, flush, and jump on, so that no
//! signature (some are variadic) need be known. Whatever the end, the waiting is bounded.

use core::arch::naked_asm;
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use gputrace_producer::session::{self, Session};
use gputrace_producer::{fork, memory, service, stderr, thread};
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
        let inside = slot.enter();
        // Inside already: a signal handler ends the program in the middle of a call. Whatever
        // locks that call holds stay held, so CUPTI is not asked for anything; what it delivered
        // is in the rings.
        if inside.is_some() {
            cupti::finish(session);
        }
        if !session.end() {
            return;
        }
        service::stop();
        slot.emit(session, &[session.anchor().to_cell()]);
        // From here on every hook passes through.
        fork::set_generation(0);
        session.say_bye(reason);
        if BARE.load(Ordering::Relaxed) && inside.is_some() {
            print_summary(session);
        }
        session.socket().close();
    });
}

fn print_summary(session: &Session) {
    // Mapped: exit may run on a small stack, or in a signal handler that interrupted malloc.
    let Some(room) = memory::map_bytes(HEAD_BYTES + TEXT_MAX) else { return };
    // SAFETY: the mapping is that long, and ours alone.
    let packet = unsafe { core::slice::from_raw_parts_mut(room, HEAD_BYTES + TEXT_MAX) };
    match session.wait_for_done(OUTPUT_WAIT_MS, packet) {
        Some(summary) => stderr::raw(summary),
        None => stderr::line(&[
            b"the collector did not finish in time or is gone; `gputrace report` reads the trace file it left",
        ]),
    }
}

/// `_exit` and its like. The argument is a status, and none of our business.
fn before_exit(_: *const c_char) {
    finish(bye::EXIT);
}

/// An exec by path. One that is bound to fail leaves the program running, and its session with it.
fn before_exec(path: *const c_char) {
    // SAFETY: the caller's C string, or null; access only looks at the file.
    let can_succeed = path.is_null() || unsafe { libc::access(path, libc::X_OK) } == 0;
    if can_succeed {
        finish(bye::EXEC);
    }
}

/// An exec by name, which is a path only where it has a slash, or by descriptor.
fn before_exec_by_name(name: *const c_char) {
    // SAFETY: the caller's C string, or null.
    let is_path = !name.is_null() && !unsafe { libc::strchr(name, c_int::from(b'/')) }.is_null();
    before_exec(if is_path { name } else { core::ptr::null() });
}

fn before_exec_by_descriptor(_: *const c_char) {
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
            // The first argument is still in its register when this is called.
            unsafe extern "C" fn prepare(first: *const c_char) -> *mut c_void {
                let _errno = stderr::KeepErrno::new();
                $before(first);
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
    )*

        /// Looks the originals up, at load: later the look-up's locks may be held by a thread
        /// that a forked child does not have, or by the code that a signal handler interrupted.
        pub fn prepare() {
            $( next(&$slot, const {
                match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                }
            }); )*
        }
    };
}

run_before! {
    _exit => before_exit, EXIT;
    _Exit => before_exit, EXIT_C99;
    execve => before_exec, EXECVE;
    execv => before_exec, EXECV;
    execvp => before_exec_by_name, EXECVP;
    execvpe => before_exec_by_name, EXECVPE;
    execl => before_exec, EXECL;
    execlp => before_exec_by_name, EXECLP;
    execle => before_exec, EXECLE;
    fexecve => before_exec_by_descriptor, FEXECVE;
    execveat => before_exec_by_descriptor, EXECVEAT;
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
