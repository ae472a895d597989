//! Signals that wait on the calling thread, while the C library works for us there.
//!
//! It allocates to look a symbol up or to say why it found none, and locks what is the whole
//! process's. A handler that comes in the middle and forks waits in `fork` for the lock of memory,
//! which its own thread holds: for ever. A program of one thread alone may do that, and with a
//! thread of ours it is none. What allocates on a program's thread does it with handlers held back.

use core::marker::PhantomData;
use core::mem;

/// A fault of the thread's own: held back it would end the program, and a handler may be meant for it.
const FAULTS: [i32; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// While it lives, no handler runs on the calling thread, but for a fault's. One inside another ends before it.
pub struct HeldBack {
    before: libc::sigset_t,
    /// It is of the thread that made it.
    _stays: PhantomData<*const ()>,
}

impl HeldBack {
    /// All but faults.
    pub fn new() -> HeldBack {
        HeldBack::but_for(&FAULTS)
    }

    /// Faults too: for what runs meanwhile without the thread's own memory or on its behalf, and for a thread that begins
    /// meanwhile and keeps the set.
    pub fn with_faults() -> HeldBack {
        HeldBack::but_for(&[])
    }

    fn but_for(these: &[i32]) -> HeldBack {
        // SAFETY: zero is valid for a signal set; all pointers are to live sets.
        unsafe {
            let mut all = mem::zeroed();
            let mut before = mem::zeroed();
            libc::sigfillset(&mut all);
            for signal in these {
                libc::sigdelset(&mut all, *signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
            HeldBack { before, _stays: PhantomData }
        }
    }
}

impl Default for HeldBack {
    fn default() -> Self {
        HeldBack::new()
    }
}

impl Drop for HeldBack {
    fn drop(&mut self) {
        // SAFETY: the set that was found.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, core::ptr::null_mut()) };
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

    fn held() -> Vec<i32> {
        // SAFETY: reads the calling thread's set into a live value.
        unsafe {
            let mut now = mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, core::ptr::null(), &mut now);
            (1..32).filter(|signal| libc::sigismember(&now, *signal) == 1).collect()
        }
    }

    #[test]
    fn all_but_faults_wait_until_the_last_one_goes() {
        let before = held();
        {
            let _outer = HeldBack::new();
            {
                let _inner = HeldBack::with_faults();
                assert!(FAULTS.iter().all(|fault| held().contains(fault)));
            }
            let held = held();
            assert!(held.contains(&libc::SIGALRM) && held.contains(&libc::SIGTERM), "{held:?}");
            assert!(!FAULTS.iter().any(|fault| held.contains(fault)), "{held:?}");
        }
        assert_eq!(held(), before);
    }
}
