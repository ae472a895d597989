//! The stack that this program works on: the main thread's, or one of its own where `ulimit -s` left that
//! little.

use std::process::ExitCode;
use std::thread::Builder;

/// What the main thread has by default on Linux. Mapped, and taken page by page as it is used.
const STACK_BYTES: usize = 8 << 20;
/// With this much the main thread's stack does: a debug build ends well with 128 KiB, and overflows it with
/// 96 KiB.
const ENOUGH_BYTES: libc::rlim_t = 1 << 20;

/// Runs `work`, on a thread with a stack of [`STACK_BYTES`] if the main thread's stack is limited to less
/// than [`ENOUGH_BYTES`]. Where there can be no such thread (RLIMIT_NPROC, RLIMIT_AS), on the main thread.
pub fn run(work: fn() -> ExitCode) -> ExitCode {
    if !is_small() {
        return work();
    }
    match Builder::new().name("gputrace".into()).stack_size(STACK_BYTES).spawn(work) {
        // A panic was printed where it happened; 101 is the code that Rust gives it on the main thread.
        Ok(thread) => thread.join().unwrap_or(ExitCode::from(101)),
        Err(_) => work(),
    }
}

fn is_small() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live rlimit, which getrlimit fills.
    unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) == 0 && limit.rlim_cur < ENOUGH_BYTES }
}
