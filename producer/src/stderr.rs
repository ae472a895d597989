//! One line on standard error, by a raw write: no lock, no buffer, no allocation.
//!
//! A program that closes its standard error gets the number 2 for the next file that it opens, and our
//! lines would be written to that file. So the descriptor's identity is recorded at load, and lines are
//! written only while the identity is the same. A program that redirects its standard error later gets no
//! lines of ours there.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::socket::identity;
use crate::system::{self, SignalSet};

const STANDARD_ERROR: i32 = 2;

mod known {
    /// `remember` was not called: descriptor 2 is taken as standard error.
    pub const NOT_ASKED: u32 = 0;
    pub const OPEN: u32 = 1;
    pub const CLOSED: u32 = 2;
}

static KNOWN: AtomicU32 = AtomicU32::new(known::NOT_ASKED);
static DEVICE: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);

/// Records the identity of standard error. Called at load, before the program runs.
pub fn remember() {
    let _errno = KeepErrno::new();
    let state = match identity(STANDARD_ERROR) {
        Some((device, inode)) => {
            DEVICE.store(device, Ordering::Relaxed);
            INODE.store(inode, Ordering::Relaxed);
            known::OPEN
        }
        None => known::CLOSED,
    };
    // SYNC: pairs with the Acquire load in `is_ours`; the identity is stored before it.
    KNOWN.store(state, Ordering::Release);
}

/// Whether descriptor 2 has the identity recorded at load.
fn is_ours() -> bool {
    match KNOWN.load(Ordering::Acquire) {
        known::OPEN => {
            identity(STANDARD_ERROR) == Some((DEVICE.load(Ordering::Relaxed), INODE.load(Ordering::Relaxed)))
        }
        known::CLOSED => false,
        _ => true,
    }
}

/// Writes the parts as one line that begins with `gputrace: `. Writes nothing if the descriptor is closed.
pub fn line(parts: &[&[u8]]) {
    let mut buffer = [0u8; 512];
    let mut length = 0;
    let all = [&b"gputrace: "[..]].into_iter().chain(parts.iter().copied()).chain([&b"\n"[..]]);
    for part in all {
        for byte in part {
            // The last byte is reserved for the newline of a line that is cut.
            if (length + 1 < buffer.len() || *byte == b'\n')
                && let Some(to) = buffer.get_mut(length)
            {
                *to = *byte;
                length += 1;
            }
        }
    }
    raw(buffer.get(..length).unwrap_or_default());
}

/// Writes the collector's text if that cannot block: a pipe that is ready has room for a page. What is not
/// written is in the report.
pub fn raw_if_ready(bytes: &[u8]) {
    let _errno = KeepErrno::new();
    let mut descriptors = [libc::pollfd { fd: STANDARD_ERROR, events: libc::POLLOUT, revents: 0 }];
    if is_ours() && system::poll(&mut descriptors, 0) == 1 && descriptors[0].revents & libc::POLLOUT != 0 {
        raw(bytes);
    }
}

/// Writes bytes as they are.
pub fn raw(mut bytes: &[u8]) {
    let _errno = KeepErrno::new();
    if !is_ours() {
        return;
    }
    let _signals = KeepSignals::new();
    while !bytes.is_empty() {
        let wrote = system::write(STANDARD_ERROR, bytes);
        match usize::try_from(wrote) {
            Ok(count) if count > 0 => bytes = bytes.get(count..).unwrap_or_default(),
            _ if wrote == -(libc::EINTR as isize) => {}
            _ => break,
        }
    }
}

/// While it exists, a failing write raises no signal. A pipe without a reader raises SIGPIPE and a file at
/// its limit SIGXFSZ, and either would kill a program that knows nothing of our line.
struct KeepSignals {
    before: SignalSet,
    /// A signal that was pending before belongs to the program and stays pending.
    were_pending: SignalSet,
}

const WRITE_SIGNALS: SignalSet = system::signals(&[libc::SIGPIPE, libc::SIGXFSZ]);

impl KeepSignals {
    fn new() -> KeepSignals {
        let were_pending = system::pending_signals();
        KeepSignals { before: system::signal_mask(libc::SIG_BLOCK, WRITE_SIGNALS), were_pending }
    }
}

impl Drop for KeepSignals {
    fn drop(&mut self) {
        // A signal that our write raised is pending on this thread. It is taken before the mask is
        // restored.
        while system::take_signal(WRITE_SIGNALS & !self.were_pending) {}
        system::signal_mask(libc::SIG_SETMASK, self.before);
    }
}

/// The calling thread's errno.
pub fn errno() -> i32 {
    // SAFETY: glibc guarantees a valid pointer to the thread's errno.
    unsafe { *libc::__errno_location() }
}

pub fn set_errno(value: i32) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value }
}

/// Restores errno on drop: the program must not see a change of errno that we cause inside a hook.
#[derive(Debug)]
pub struct KeepErrno(i32);

impl KeepErrno {
    pub fn new() -> KeepErrno {
        KeepErrno(errno())
    }
}

impl Default for KeepErrno {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for KeepErrno {
    fn drop(&mut self) {
        set_errno(self.0);
    }
}
