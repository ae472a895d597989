//! Blocks signals on the calling thread while the C library works for us.
//!
//! The C library allocates memory to look a symbol up or to report why it found none, and takes
//! process-wide locks. If a signal handler interrupts it and forks, `fork` waits for the memory lock, which
//! the handler's own thread holds: a deadlock. A program with a single thread may fork in a handler, and
//! with our service thread it has more than one. Code of ours that allocates on a program's thread
//! therefore does so with signals blocked.

use core::marker::PhantomData;

use crate::system::{self, SignalSet};

/// Faults of the thread's own. A blocked fault would end the program, which may have a handler for it.
const FAULTS: SignalSet =
    system::signals(&[libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS]);

/// While it exists, the thread runs no signal handler, except for faults. A nested one must end before the
/// outer one.
pub struct HeldBack {
    before: SignalSet,
    /// Not `Send`: the mask is that of the thread that made it.
    _stays: PhantomData<*const ()>,
}

impl HeldBack {
    /// Blocks all signals except faults.
    pub fn new() -> HeldBack {
        HeldBack::of(system::ALL_SIGNALS & !FAULTS)
    }

    /// Blocks faults too: for code that runs without the thread's own memory or on its behalf, and for a
    /// new thread, which keeps the mask.
    pub fn with_faults() -> HeldBack {
        HeldBack::of(system::ALL_SIGNALS)
    }

    fn of(these: SignalSet) -> HeldBack {
        HeldBack { before: system::signal_mask(libc::SIG_BLOCK, these), _stays: PhantomData }
    }
}

impl Default for HeldBack {
    fn default() -> Self {
        HeldBack::new()
    }
}

impl Drop for HeldBack {
    fn drop(&mut self) {
        system::signal_mask(libc::SIG_SETMASK, self.before);
    }
}

impl core::fmt::Debug for HeldBack {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        to.write_str("HeldBack")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held() -> SignalSet {
        system::signal_mask(libc::SIG_BLOCK, 0)
    }

    #[test]
    fn signals_but_faults_wait_until_the_last_guard_is_dropped() {
        let before = held();
        {
            let _outer = HeldBack::new();
            {
                let _inner = HeldBack::with_faults();
                assert_eq!(held() & FAULTS, FAULTS);
            }
            let others = system::signals(&[libc::SIGALRM, libc::SIGTERM]);
            assert_eq!(held() & (others | FAULTS), others);
        }
        assert_eq!(held(), before);
    }
}
