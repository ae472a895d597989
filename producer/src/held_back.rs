//! Signals that wait on the calling thread, while the C library works for us there.
//!
//! It allocates to look a symbol up or to say why it found none, and locks what is the whole
//! process's. A handler that comes in the middle and forks waits in `fork` for the lock of memory,
//! which its own thread holds: for ever. A program of one thread alone may do that, and with a
//! thread of ours it is none. What allocates on a program's thread does it with handlers held back.

use core::marker::PhantomData;

use crate::system::{self, SignalSet};

/// A fault of the thread's own: held back it would end the program, and a handler may be meant for it.
const FAULTS: SignalSet =
    system::signals(&[libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS]);

/// While it lives, no handler runs on the calling thread, but for a fault's. One inside another ends before it.
pub struct HeldBack {
    before: SignalSet,
    /// It is of the thread that made it.
    _stays: PhantomData<*const ()>,
}

impl HeldBack {
    /// All but faults.
    pub fn new() -> HeldBack {
        HeldBack::of(system::ALL_SIGNALS & !FAULTS)
    }

    /// Faults too: for what runs meanwhile without the thread's own memory or on its behalf, and for a thread that begins
    /// meanwhile and keeps the set.
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
    fn all_but_faults_wait_until_the_last_one_goes() {
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
