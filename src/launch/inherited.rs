//! The signal state that this program was started with, so that the traced one can have it too.
//!
//! Rust's runtime ignores SIGPIPE before `main`; what it was before is noted by a constructor.

use std::sync::atomic::{AtomicBool, Ordering};

static SIGPIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

extern "C" fn note_sigpipe() {
    // SAFETY: `action` is zeroed plain data that sigaction fills; a null new action only reads.
    let ignored = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    };
    SIGPIPE_WAS_IGNORED.store(ignored, Ordering::Relaxed);
}

// SAFETY: the section holds pointers to functions that the loader calls before `main`; this one
// calls sigaction and stores an atomic, neither of which needs Rust's runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE_SIGPIPE: extern "C" fn() = note_sigpipe;

/// How SIGPIPE was handled when this program started.
pub fn sigpipe() -> libc::sighandler_t {
    if SIGPIPE_WAS_IGNORED.load(Ordering::Relaxed) { libc::SIG_IGN } else { libc::SIG_DFL }
}
