//! The limit on open descriptors: this program raises its own soft limit, and the traced one gets back the
//! original.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// The soft limit that this program works with, if the hard one allows it. A traced process takes a few
/// descriptors of the collector's.
const WANTED: u64 = 65_536;
/// With 13 free descriptors a session cannot start, with 15 it can; a traced process needs 20
/// (`producer/src/descriptor.rs`), so that with fewer nothing could be traced.
const NEEDED: usize = 20;
/// What [`ORIGINAL`] holds while the soft limit is as it was.
const UNCHANGED: u64 = u64::MAX;

/// The soft limit before [`raise`].
static ORIGINAL: AtomicU64 = AtomicU64::new(UNCHANGED);

/// Raises the soft limit, as far as the hard limit allows.
pub fn raise() {
    let Some(limit) = limit() else { return };
    let wanted = WANTED.min(limit.rlim_max);
    if limit.rlim_cur < wanted && set(libc::rlimit { rlim_cur: wanted, ..limit }) {
        ORIGINAL.store(limit.rlim_cur, Ordering::Relaxed);
    }
}

/// Gives a process that is about to become the program the soft limit that this program was started with.
/// Async-signal-safe: runs in the forked child.
pub fn restore_for_program() {
    let original = ORIGINAL.load(Ordering::Relaxed);
    if original != UNCHANGED
        && let Some(limit) = limit()
    {
        set(libc::rlimit { rlim_cur: original, ..limit });
    }
}

/// Whether a session has the descriptors that it needs. `Err` says in words why not.
pub fn are_enough() -> Result<(), String> {
    let mut opened = Vec::with_capacity(NEEDED);
    for _ in 0..NEEDED {
        match File::open("/") {
            Ok(file) => opened.push(file),
            Err(error) if is_shortage(&error) => {
                let free = opened.len();
                return Err(format!(
                    "only {free} of the {NEEDED} file descriptors that tracing needs are free (ulimit -n)"
                ));
            }
            // Whatever else is wrong with that folder is no lack of descriptors.
            Err(_) => break,
        }
    }
    Ok(())
}

/// Whether it is a lack of descriptors, of this process or of the machine.
pub fn is_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

fn limit() -> Option<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live rlimit, which getrlimit fills.
    (unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0).then_some(limit)
}

fn set(limit: libc::rlimit) -> bool {
    // SAFETY: a live rlimit, which setrlimit reads.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) == 0 }
}
