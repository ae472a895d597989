//! The calling thread's stack: how far it may be read.
//!
//! Of a thread's own stack the end is known without asking: the C library keeps what it knows of a thread at the upper
//! end of the thread's stack, and the kernel puts the program's arguments at that of the first one's. How far the pages
//! are there, from the end down, is looked at once and kept by thread. Of a signal handler's own stack the kernel tells the end.
//! Of any other (a coroutine's) every page is looked at anew, in each walk.

use core::cell::Cell;

use super::walk::Words;
use crate::python::memory::Checked;
use crate::stderr::KeepErrno;

const PAGE: u64 = 4096;
/// Pages that one walk looks at before it lets the next one go on.
const PAGES_A_WALK: u32 = 512;
/// What is read of a stack that nobody knows.
const UNKNOWN_BYTES: u64 = 1 << 20;
/// What a function may use below its stack pointer.
const RED_ZONE_BYTES: u64 = 128;

/// What is known of the thread's own stack: from where on its pages are there, and its end.
#[derive(Clone, Copy)]
struct Known {
    low: u64,
    end: u64,
}

thread_local! {
    static KNOWN: Cell<Known> = const { Cell::new(Known { low: 0, end: 0 }) };
}

/// The stack from some place on.
#[derive(Debug)]
pub struct Stack {
    from: u64,
    /// All is there up to here.
    known: u64,
    /// Nothing is read from here on.
    limit: u64,
}

impl Stack {
    /// The stack that the calling thread is on, from `sp` on, where it is.
    #[inline(always)]
    pub fn of_this_thread(sp: u64) -> Stack {
        let known = KNOWN.get();
        if known.low <= sp && sp < known.end {
            return Stack { from: sp, known: known.end, limit: known.end };
        }
        Stack::look(sp)
    }

    #[cold]
    #[inline(never)]
    fn look(sp: u64) -> Stack {
        let _errno = KeepErrno::new();
        if let Some(end) = own_end(sp) {
            return Stack { from: sp, known: end, limit: end };
        }
        let limit = signal_stack_end(sp).unwrap_or(sp.saturating_add(UNKNOWN_BYTES));
        Stack { from: sp, known: (sp & !(PAGE - 1)).saturating_add(PAGE).min(limit), limit }
    }

    #[inline(always)]
    fn holds(&self, at: u64) -> bool {
        at >= self.from && at.checked_add(8).is_some_and(|end| end <= self.known) && at & 7 == 0
    }

    /// Looks whether the pages up to that word are there.
    #[cold]
    #[inline(never)]
    fn reaches(&mut self, at: u64) -> bool {
        if at < self.from || at & 7 != 0 || at.checked_add(8).is_none_or(|end| end > self.limit) {
            return false;
        }
        let _errno = KeepErrno::new();
        let memory = Checked::new();
        while self.known < at + 8 {
            if !memory.has(self.known) {
                self.limit = self.known;
                return false;
            }
            self.known = (self.known & !(PAGE - 1)).saturating_add(PAGE).min(self.limit);
        }
        true
    }
}

impl Words for Stack {
    #[inline(always)]
    fn word(&mut self, at: u64) -> Option<u64> {
        if !self.holds(at) && !self.reaches(at) {
            return None;
        }
        // SAFETY: an aligned word between a place of the stack that this thread is on, below which it does not
        // return before the hook does, and a place up to which pages were seen to be there.
        Some(unsafe { load(at) })
    }

    #[inline(never)]
    fn go_on_at(&mut self, sp: u64) -> bool {
        if sp & 7 != 0 {
            return false;
        }
        if sp >= self.from && sp < self.known {
            return true;
        }
        let _errno = KeepErrno::new();
        let stack = Stack::look(sp);
        // Of one that is not known not even the place of its pointer is sure.
        if stack.known < stack.limit && !Checked::new().has(sp) {
            return false;
        }
        // Of the page below nothing is known.
        *self = Stack { from: sp.saturating_sub(RED_ZONE_BYTES).max(sp & !(PAGE - 1)), ..stack };
        true
    }
}

/// A word of a stack. What other functions keep there is nothing that the language lets this one read, nor does a
/// sanitizer: hence the instruction.
///
/// # Safety
/// Aligned, and mapped.
#[inline(always)]
unsafe fn load(at: u64) -> u64 {
    let word: u64;
    // SAFETY: the caller's word.
    unsafe {
        core::arch::asm!("mov {}, qword ptr [{}]", out(reg) word, in(reg) at, options(readonly, nostack, preserves_flags));
    }
    word
}

/// The end of the thread's own stack, if `sp` is on it and all pages up to there are known to be there.
fn own_end(sp: u64) -> Option<u64> {
    let known = KNOWN.get();
    let end = if known.end == 0 { thread_end() } else { known.end };
    if sp >= end {
        return None;
    }
    let memory = Checked::new();
    let mut low = if known.end == 0 { end & !(PAGE - 1) } else { known.low };
    // The page of the end itself is only looked at if something of it belongs to the stack.
    if known.end == 0 && low != end && !memory.has(low) {
        return None;
    }
    for _ in 0..PAGES_A_WALK {
        if low <= sp || !is_mapped(low - PAGE) || !memory.has(low - PAGE) {
            break;
        }
        low -= PAGE;
    }
    KNOWN.set(Known { low, end });
    (low <= sp).then_some(end)
}

/// Whether something is mapped at a page's address. Asked before the page is looked at: the kernel makes the
/// first thread's stack larger for whoever reads below it.
fn is_mapped(page: u64) -> bool {
    let mut is_resident = 0u8;
    // SAFETY: only asks; the answer of one page is one byte.
    unsafe { libc::mincore(page as *mut libc::c_void, PAGE as usize, &raw mut is_resident) == 0 }
}

/// Where the thread's own stack ends: at what the C library keeps of the thread, or, of the first thread, at what the
/// kernel told the program. A process that another thread forked has a first thread with a stack that nobody knows.
fn thread_end() -> u64 {
    // SAFETY: neither has preconditions.
    let is_first = unsafe { libc::syscall(libc::SYS_gettid) == libc::c_long::from(libc::getpid()) };
    if is_first {
        // SAFETY: only looks at a table of the C library's.
        return unsafe { libc::getauxval(libc::AT_RANDOM) };
    }
    #[cfg(target_arch = "x86_64")]
    {
        let thread: u64;
        // SAFETY: the first word of what the C library keeps of a thread is its own address.
        unsafe {
            core::arch::asm!("mov {}, fs:0", out(reg) thread, options(nostack, readonly, preserves_flags))
        };
        thread
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}

/// The end of the signal handlers' own stack, if `sp` is on it.
fn signal_stack_end(sp: u64) -> Option<u64> {
    let mut stack = libc::stack_t { ss_sp: core::ptr::null_mut(), ss_flags: 0, ss_size: 0 };
    // SAFETY: only asks; the pointer is to a live value.
    if unsafe { libc::sigaltstack(core::ptr::null(), &mut stack) } != 0 {
        return None;
    }
    let start = stack.ss_sp as u64;
    let end = start.checked_add(stack.ss_size as u64)?;
    (start..end).contains(&sp).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stack pointer; under a sanitizer locals lie elsewhere.
    #[inline(always)]
    fn here() -> u64 {
        let sp: u64;
        // SAFETY: reads a register.
        unsafe { core::arch::asm!("mov {}, rsp", out(reg) sp, options(nomem, nostack, preserves_flags)) };
        sp
    }

    #[test]
    fn a_threads_own_stack_is_known_up_to_its_end() {
        let looks = || {
            let sp = here();
            let mut stack = Stack::of_this_thread(sp & !7);
            assert_eq!(stack.known, stack.limit, "known at the first look");
            assert!(stack.limit > sp && stack.limit - sp < 16 << 20);
            for at in (stack.from..(stack.limit & !7) - 8).step_by(8) {
                assert!(stack.word(at).is_some());
            }
            assert_eq!(stack.word(stack.limit), None);
            assert_eq!((stack.word(stack.from - 8), stack.word(stack.from + 1)), (None, None));
            assert_eq!((stack.word(u64::MAX - 7), stack.word(0)), (None, None));
        };
        std::thread::spawn(looks).join().unwrap();
        std::thread::Builder::new().stack_size(64 << 10).spawn(looks).unwrap().join().unwrap();
        looks();
    }

    #[test]
    fn a_deep_stack_is_known_after_some_walks() {
        let deep = || {
            #[inline(never)]
            fn down(levels: u32) -> u64 {
                let room = core::hint::black_box([levels as u8; 64 << 10]);
                if levels == 0 {
                    let sp = here() & !7;
                    let walks = (1..100).find(|_| {
                        let stack = Stack::of_this_thread(sp);
                        stack.known == stack.limit
                    });
                    return walks.map_or(0, |walks| walks as u64) << 8 | u64::from(room[7]);
                }
                down(levels - 1).wrapping_add(u64::from(room[3] >> 7))
            }
            down(120) >> 8
        };
        let walks = std::thread::Builder::new().stack_size(16 << 20).spawn(deep).unwrap().join().unwrap();
        // 7.5 MiB, 2 MiB a walk.
        assert!((2..=8).contains(&walks), "{walks}");
    }

    #[test]
    fn of_a_stack_that_nobody_knows_only_pages_that_are_there_are_read() {
        // SAFETY: a mapping of our own, of three pages of which the last is taken away.
        let pages = unsafe {
            let pages = libc::mmap(
                core::ptr::null_mut(),
                3 * 4096,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            libc::mprotect(pages.byte_add(2 * 4096), 4096, libc::PROT_NONE);
            pages as u64
        };
        let mut stack = Stack::of_this_thread(pages + 64);
        assert_eq!(stack.word(pages + 64), Some(0));
        assert_eq!(stack.word(pages + 56), None, "below where the thread is");
        assert_eq!(stack.word(pages + 2 * 4096 - 8), Some(0));
        assert_eq!(stack.word(pages + 2 * 4096 - 4), None);
        assert_eq!(stack.word(pages + 2 * 4096), None);
        assert_eq!(stack.word(pages + 4096), Some(0), "what was there still is");
        let mut here = Stack::of_this_thread(here() & !7);
        assert!(!here.go_on_at(pages + 2 * 4096 + 64));
        assert!(here.go_on_at(pages + 4096));
        assert_eq!((here.word(pages + 4096 - 128), here.word(pages)), (None, None), "the page below");
        let mut here = Stack::of_this_thread(self::here() & !7);
        assert!(here.go_on_at(pages + 4096 + 256));
        assert_eq!((here.word(pages + 4096 + 128), here.word(pages + 4096 + 120)), (Some(0), None));
    }
}
