//! The state that this program was started with, so that the traced one can have it too.
//!
//! Rust's runtime ignores SIGPIPE and opens what is closed of stdin, stdout and stderr before `main`;
//! what they were before is noted by a constructor.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use libc::c_int;

static SIGPIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);
static SIGXFSZ_WAS_IGNORED: AtomicBool = AtomicBool::new(false);
/// Bit n: descriptor n was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);

extern "C" fn note() {
    SIGPIPE_WAS_IGNORED.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
    SIGXFSZ_WAS_IGNORED.store(is_ignored(libc::SIGXFSZ), Ordering::Relaxed);
    for descriptor in 0..3 {
        // SAFETY: fcntl takes plain numbers.
        if unsafe { libc::fcntl(descriptor, libc::F_GETFD) } == -1 {
            CLOSED.fetch_or(1 << descriptor, Ordering::Relaxed);
        }
    }
}

fn is_ignored(signal: c_int) -> bool {
    // SAFETY: `action` is zeroed plain data that sigaction fills; a null new action only reads.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

// SAFETY: the section holds pointers to functions that the loader calls before `main`; this one
// calls sigaction and fcntl and stores atomics, none of which needs Rust's runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = note;

fn disposition(ignored: &AtomicBool) -> libc::sighandler_t {
    if ignored.load(Ordering::Relaxed) { libc::SIG_IGN } else { libc::SIG_DFL }
}

/// How SIGPIPE was handled when this program started.
pub fn sigpipe() -> libc::sighandler_t {
    disposition(&SIGPIPE_WAS_IGNORED)
}

/// How SIGXFSZ was.
pub fn sigxfsz() -> libc::sighandler_t {
    disposition(&SIGXFSZ_WAS_IGNORED)
}

/// Closes what was closed when this program started. For the forked child: async-signal-safe.
pub fn close_again() {
    let closed = CLOSED.load(Ordering::Relaxed);
    for descriptor in (0..3).filter(|descriptor| closed >> descriptor & 1 != 0) {
        // SAFETY: close takes a plain number; what it closes is the /dev/null of Rust's runtime, which
        // nothing uses between fork and exec.
        unsafe { libc::close(descriptor) };
    }
}
