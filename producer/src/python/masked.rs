//! Memory read a word at a time by a question about signals: how a page that may go at any moment is read where nothing may be
//! copied.
//!
//! A seccomp filter may end who calls `process_vm_readv`, and to look whether a page is there and then to read it is too late where
//! another thread gives it back in between. So the kernel is given the word's place as the set of signals to be blocked, in
//! the call by which every program's C library blocks signals; it copies the word from there, or fails and changes nothing. The next
//! call puts the thread's own mask back and tells what it was. Nothing is opened, kept, or shared with other threads or a
//! forked child, and a program whose filter forbids that call has no threads.
//!
//! What that does to the thread: between the two calls, some 100 ns, in which nothing of ours can fault, it blocks signals that it has open. It never opens one that it
//! blocks. What is sent to it waits so long; what is sent to the process another thread may take, as it may at any time. A handler
//! that runs in that moment, and never returns, leaves with what the word blocked beside what the handler does, and a program that it
//! starts (fork and exec) begins so, as if it had interrupted any function that blocks signals for a moment (`pthread_create`,
//! `abort`); one that leaves by `siglongjmp` takes its own mask along. So only stacks are read like this that are not the thread's own.
//!
//! SIGKILL and SIGSTOP cannot be blocked, so their bits are lost, as are those of what the thread blocks itself: they
//! are taken from the same bytes read at another place among the signals, up to seven bytes further up or down. A thread that blocks
//! nearly all signals can read nothing so.
//!
//! Why not otherwise: a pipe (written from there, read back) is a descriptor that a program may close and take for a file of
//! its own, into which we would then write its stack; it would be every forked child's too, and who reads it is told what
//! its parent has on the stack. `/proc/self/mem`, kept open, lets a child that was forked and gave up its rights read
//! its parent; opened for each look, it is one more call that a program which opens no files any more may be ended for.

use super::memory::{HIGHEST, LOWEST, Memory, PAGE, is_plausible};

const WORD: u64 = 8;
/// Signals that no mask has.
const NEVER_BLOCKED: u64 = 1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1);

/// This process's memory: a read fails where nothing is mapped, also where that was so a moment ago only. Three system calls a
/// word; `errno` changes.
#[derive(Clone, Copy, Debug)]
pub struct Masked;

impl Memory for Masked {
    fn may_hold(&self, base: u64) -> bool {
        is_plausible(base)
    }

    fn read(&self, base: u64, offset: u64, mut into: &mut [u8]) -> bool {
        let Some(mut from) = base.checked_add(offset) else { return false };
        while !into.is_empty() {
            let aligned = from & !(WORD - 1);
            let Some(word) = word_at(aligned) else { return false };
            let bytes = word.to_ne_bytes();
            let bytes = bytes.get((from - aligned) as usize..).unwrap_or_default();
            let (part, rest) = into.split_at_mut(bytes.len().min(into.len()));
            part.iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte);
            let Some(next) = aligned.checked_add(WORD) else { return rest.is_empty() };
            (from, into) = (next, rest);
        }
        true
    }
}

/// The word at an aligned place, if it is there and the thread's own mask hides none of it.
fn word_at(at: u64) -> Option<u64> {
    if !(LOWEST..HIGHEST - WORD).contains(&at) {
        return None;
    }
    let place = |shift: i32| at.checked_add_signed(shift.into());
    let mut word = Known { value: 0, bits: 0 };
    // On the same page.
    let shift = if at % PAGE == PAGE - WORD { -1 } else { 1 };
    let [own, here, beside] = two_at(at, place(shift)?)?;
    word.learn(own, here, 0)?;
    word.learn(own, beside, shift)?;
    // That is all, but for a thread that blocks signals. The page below or above may be none.
    let mut shifts = (1..WORD as i32).flat_map(|bytes| [-bytes, bytes]);
    while word.bits != u64::MAX {
        let shift = shifts.next()?;
        if let Some([own, beside]) = one_at(place(shift)?) {
            word.learn(own, beside, shift)?;
        }
    }
    Some(word.value)
}

/// What is known of a word.
struct Known {
    value: u64,
    bits: u64,
}

impl Known {
    /// Takes in a mask that was read so many bytes further up, on a thread that blocks `own`. `None` if the word changed meanwhile.
    fn learn(&mut self, own: u64, mask: u64, bytes_up: i32) -> Option<()> {
        let up = |bits: u64| if bytes_up < 0 { bits >> (-8 * bytes_up) } else { bits << (8 * bytes_up) };
        let bits = up(!(own | NEVER_BLOCKED));
        let value = up(mask) & bits;
        if (value ^ self.value) & self.bits & bits != 0 {
            return None;
        }
        self.value |= value;
        self.bits |= bits;
        Some(())
    }
}

/// The thread's mask, and what it blocked with the words at two places in turn: those words, but for what is lost.
fn two_at(first: u64, second: u64) -> Option<[u64; 3]> {
    let own = block(libc::SIG_BLOCK, first)?;
    if own == 0 {
        // Any mask blocks all that an empty one blocks, so the second may take the first one's place.
        let of_first = block(libc::SIG_SETMASK, second);
        let of_last = restore(own);
        return Some([own, of_first?, of_last?]);
    }
    let of_first = restore(own)?;
    let [own, of_second] = one_at(second)?;
    Some([own, of_first, of_second])
}

/// The thread's mask, and what it blocked with the word at that place.
fn one_at(place: u64) -> Option<[u64; 2]> {
    let own = block(libc::SIG_BLOCK, place)?;
    Some([own, restore(own)?])
}

/// Blocks signals as the word at a place says; what the thread blocked before. `None`, and nothing changes, where no word is.
fn block(how: i32, at: u64) -> Option<u64> {
    let mut before = 0u64;
    // SAFETY: the kernel does not trust the place, and writes eight bytes to a live value.
    let status = unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::c_long::from(how), at, &raw mut before, WORD as usize)
    };
    (status == 0).then_some(before)
}

/// Has the thread block what it did; what it blocked in between.
fn restore(own: u64) -> Option<u64> {
    block(libc::SIG_SETMASK, (&raw const own).expose_provenance() as u64)
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::super::super::native::pages::tests::map;
    use super::*;

    fn mask() -> u64 {
        // SAFETY: copies the mask alone: no set is given, so that none changes.
        unsafe {
            let mut mask = 0u64;
            libc::syscall(libc::SYS_rt_sigprocmask, 0, core::ptr::null::<u64>(), &raw mut mask, 8usize);
            mask
        }
    }

    /// As a program does, on a thread of the test's own.
    fn blocking(mask: u64, run: impl FnOnce() + Send) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                restore(mask).unwrap();
                run();
            });
        });
    }

    fn fill(start: u64, bytes: u64) -> Vec<u8> {
        let mut step = start;
        for at in (start..start + bytes).step_by(8) {
            step = step.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            // All sorts of words: none, all bits, addresses, noise.
            let word =
                [0, u64::MAX, 0x7f00_0000_0000 | step >> 24, step ^ step << 31][(step >> 61) as usize % 4];
            // SAFETY: the test's own pages.
            unsafe { *(at as *mut u64) = word };
        }
        // SAFETY: as above.
        unsafe { core::slice::from_raw_parts(start as *const u8, bytes as usize) }.to_vec()
    }

    #[test]
    fn words_are_what_is_there_and_the_mask_is_as_before() {
        let start = map(2);
        let bytes = fill(start, 2 * PAGE);
        blocking(0, || {
            let mut read = vec![0; bytes.len()];
            assert!(Masked.read(start, 0, &mut read));
            assert!(read == bytes);
            for (from, count) in [(0, 0), (1, 1), (3, 4), (5, 8), (8, 3), (4090, 13), (2 * PAGE - 1, 1)] {
                let mut read = vec![0; count];
                assert!(Masked.read(start, from, &mut read));
                assert_eq!(read, bytes[from as usize..][..count], "{from} {count}");
            }
            assert_eq!(mask(), 0);
        });
    }

    #[test]
    fn a_thread_that_blocks_signals_reads_the_same_or_nothing() {
        let start = map(1);
        let bytes = fill(start, PAGE);
        let words = || bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word));
        let bit = |signal: i32| 1u64 << (signal - 1);
        let usual = bit(libc::SIGPIPE) | bit(libc::SIGUSR1) | bit(libc::SIGCHLD) | bit(libc::SIGTERM);
        // Some bits can be told from bytes further down alone, which the first word here has none of.
        for (own, reads_from) in [
            (usual, 1),
            (bit(libc::SIGUSR1), 1),
            (0x7fff_ffff & !NEVER_BLOCKED, 1),
            (!NEVER_BLOCKED, usize::MAX),
        ] {
            blocking(own, || {
                for (index, word) in words().enumerate().skip(1) {
                    let read = Masked.word(start, 8 * index as u64);
                    assert_eq!(read, (index >= reads_from).then_some(word), "{own:x} {index}");
                }
                assert_eq!(mask(), own);
            });
        }
        // Any mask at all: never another word.
        let mut own = 1u64;
        for _ in 0..200 {
            own = own.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let own = own & !NEVER_BLOCKED & !bit(libc::SIGSEGV);
            blocking(own, || {
                for (index, word) in words().enumerate().skip((own % 7) as usize).step_by(9) {
                    assert!(Masked.word(start, 8 * index as u64).is_none_or(|read| read == word), "{own:x}");
                }
                assert_eq!(mask(), own);
            });
        }
    }

    #[test]
    fn what_is_not_there_is_not_read_and_changes_no_mask() {
        let start = map(2);
        fill(start, 2 * PAGE);
        // Not unmapped: another test's mapping might come there.
        // SAFETY: the test's own page.
        assert_eq!(unsafe { libc::mprotect((start + PAGE) as *mut _, PAGE as usize, libc::PROT_NONE) }, 0);
        for own in [0, 1 << 9] {
            blocking(own, || {
                let last = start + PAGE - 8;
                assert!(Masked.word(start, 0).is_some() && Masked.word(last, 0).is_some());
                for beside in
                    [start - 8, last + 1, last + 8, start + 2 * PAGE, 0, 8, u64::MAX - 7, 1 << 62, 1 << 47]
                {
                    assert_eq!(Masked.word(beside, 0), None, "{beside:x}");
                }
                assert!(!Masked.read(last, 0, &mut [0; 9]) && !Masked.read(u64::MAX, 2, &mut [0; 8]));
                assert_eq!(mask(), own);
            });
        }
    }

    /// Handlers run as ever, none twice and none never, whoever blocks what they are for.
    #[test]
    fn signals_that_come_meanwhile_are_taken_once_each() {
        static TAKEN: AtomicU32 = AtomicU32::new(0);
        extern "C" fn take(_: i32) {
            TAKEN.fetch_add(1, Ordering::Relaxed);
        }
        const SENT: u32 = 20_000;
        let signal = libc::SIGRTMIN() + 9;
        let start = map(1);
        fill(start, PAGE);
        // SAFETY: a handler that is safe anywhere, for a signal of the test's own.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = take as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            assert_eq!(libc::sigaction(signal, &action, core::ptr::null_mut()), 0);
        }
        let is_over = AtomicBool::new(false);
        blocking(0, || {
            // SAFETY: asks for the calling thread.
            let reader = unsafe { libc::pthread_self() };
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for sent in 0..SENT {
                        // A signal queue is as long as a limit says.
                        while sent - TAKEN.load(Ordering::Relaxed) > 64 {
                            std::thread::yield_now();
                        }
                        // SAFETY: the reader waits for this thread.
                        assert_eq!(unsafe { libc::pthread_kill(reader, signal) }, 0);
                    }
                    is_over.store(true, Ordering::Release);
                });
                while !is_over.load(Ordering::Acquire) || TAKEN.load(Ordering::Relaxed) < SENT {
                    for at in (0..PAGE).step_by(8) {
                        assert!(Masked.word(start, at).is_some());
                    }
                }
            });
            assert_eq!((mask(), TAKEN.load(Ordering::Relaxed)), (0, SENT));
        });
    }
}
