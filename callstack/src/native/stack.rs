//! The calling thread's stack: which part of it may be read, and how.
//!
//! The thread's own stack, the one it was created with, is read in place from the thread's position to the
//! stack's end ([`super::bounds`]). On another stack, only the rest of the page that the hook was called on
//! is read in place. Both stay mapped while the hook runs.
//!
//! All other memory may belong to somebody else and be unmapped at any time: what lies beside a coroutine's
//! stack, a stack that a signal handler interrupted according to the tables, and any address from a wrong
//! table. Such memory is copied by the kernel, page by page ([`super::pages`]), and not read at all where a
//! seccomp filter may forbid the copy.

use core::cell::Cell;

use gputrace_producer::stderr::KeepErrno;
use gputrace_producer::system;

use super::bounds::{self, Bounds};
use super::pages::{PAGE, Taken};
use super::walk::Words;
use crate::python::memory::{Copied, Memory};

/// How much is read of a stack with unknown bounds.
const UNKNOWN_BYTES: u64 = 1 << 20;
/// How far above an address the thread's descriptor may be and still count as the end of the same stack.
const REACH_BYTES: u64 = 128 << 20;
/// The most that the tracer's own frames take. A larger distance means another stack.
const OWN_FRAMES_BYTES: u64 = 64 << 10;
/// How far a function may write below its stack pointer.
const RED_ZONE_BYTES: u64 = 128;

/// The bounds were not determined yet.
const NEW: Bounds = Bounds { low: u64::MAX, end: 0 };
/// The thread's descriptor gives no stack.
const NONE: Bounds = Bounds { low: u64::MAX, end: 1 };

thread_local! {
    /// The stack that the thread was created with.
    static OWN: Cell<Bounds> = const { Cell::new(NEW) };
}

/// The stack from a given address on.
#[derive(Debug)]
pub struct Stack {
    from: u64,
    /// Up to this address the stack is read in place.
    certain: u64,
    /// From this address on nothing is read.
    limit: u64,
    /// The copied page, for memory that may be unmapped.
    copy: Option<Taken>,
    /// The copied word, where there is no buffer for a page.
    word: u64,
}

impl Stack {
    /// The stack that the calling thread is on, from `sp` on.
    #[inline(always)]
    pub fn of_this_thread(sp: u64) -> Stack {
        let own = OWN.get();
        if own.hold(sp) {
            return Stack { from: sp, certain: own.end, limit: own.end, copy: None, word: 0 };
        }
        Stack::look(sp)
    }

    #[cold]
    #[inline(never)]
    fn look(sp: u64) -> Stack {
        let _errno = KeepErrno::new();
        let (certain, limit) = match own(sp) {
            Some(own) => (own.end, own.end),
            None => {
                let limit = believed_end(sp);
                (end_of_page(sp).min(limit), limit)
            }
        };
        Stack { from: sp, certain, limit, copy: None, word: 0 }
    }

    #[inline(always)]
    fn is_certain(&self, at: u64) -> bool {
        at >= self.from && at.checked_add(8).is_some_and(|end| end <= self.certain) && at & 7 == 0
    }

    /// The page is unmapped only as a whole, with everything on it. Code on one of the tracer's own stacks
    /// (`detour`) reads no stack, so its frames follow one another.
    #[cold]
    #[inline(never)]
    fn reach(&mut self, end: u64) {
        if end.checked_sub(self.from).is_some_and(|bytes| (8..OWN_FRAMES_BYTES).contains(&bytes)) {
            self.certain = end_of_page(end - 8).min(self.limit).max(self.certain);
        }
    }

    /// The address of a copy of a word that may be unmapped; 0 if it is. Valid until the next call.
    #[cold]
    #[inline(never)]
    fn copied(&mut self, at: u64) -> u64 {
        if at < self.from || at & 7 != 0 || at.checked_add(8).is_none_or(|end| end > self.limit) {
            return 0;
        }
        let _errno = KeepErrno::new();
        if self.copy.is_none() {
            self.copy = Taken::new();
        }
        if let Some(page) = &self.copy {
            return page.word_at(at).unwrap_or(0);
        }
        match Copied.word(at, 0) {
            Some(word) => {
                self.word = word;
                (&raw const self.word).expose_provenance() as u64
            }
            None => 0,
        }
    }
}

impl Words for Stack {
    #[inline(always)]
    fn word(&mut self, at: u64) -> Option<u64> {
        let from = if self.is_certain(at) { at } else { self.copied(at) };
        if from == 0 {
            return None;
        }
        // SAFETY: `from` is one of two things. It is an aligned word above this thread's position, on the
        // thread's own stack or on the page that the hook was called on; such a word stays mapped until the
        // thread has returned past it, which is after the hook. Or it is a copy.
        Some(unsafe { load(from) })
    }

    #[inline(always)]
    fn lives_up_to(&mut self, end: u64) {
        if end > self.certain {
            self.reach(end);
        }
    }

    #[inline(never)]
    fn go_on_at(&mut self, sp: u64) -> bool {
        if sp & 7 != 0 {
            return false;
        }
        if sp >= self.from && sp < self.certain {
            return true;
        }
        let _errno = KeepErrno::new();
        let limit = own(sp).map_or_else(|| believed_end(sp), |own| own.end);
        // Only a table says that the thread was on that stack, so none of it is certain to be mapped.
        let mut stack = Stack { from: sp, certain: 0, limit, copy: None, word: 0 };
        if stack.copied(sp) == 0 {
            return false;
        }
        stack.from = sp.saturating_sub(RED_ZONE_BYTES);
        *self = stack;
        true
    }
}

/// Reads a word of a stack. The language does not let a function read other functions' stack memory, and a
/// sanitizer reports it: hence the instruction.
///
/// # Safety
///
/// The address is aligned and mapped.
#[inline(always)]
pub(super) unsafe fn load(at: u64) -> u64 {
    let word: u64;
    // SAFETY: the caller's word.
    unsafe {
        core::arch::asm!("mov {}, qword ptr [{}]", out(reg) word, in(reg) at, options(readonly, nostack, preserves_flags));
    }
    word
}

/// The bounds of the stack that the thread was created with, as far as they were looked for; otherwise they
/// hold nothing.
pub(super) fn known_own() -> Bounds {
    OWN.get()
}

/// The bounds of the stack that the thread was created with, if `sp` is on it.
fn own(sp: u64) -> Option<Bounds> {
    let mut own = OWN.get();
    if let Some(first) = bounds::of_first(sp) {
        own = first;
    } else if own == NEW && bounds::are_described() {
        own = bounds::described().unwrap_or(NONE);
    }
    OWN.set(own);
    own.hold(sp).then_some(own)
}

fn end_of_page(at: u64) -> u64 {
    (at & !(PAGE - 1)).saturating_add(PAGE)
}

/// The probable end of the stack that `sp` is on.
fn believed_end(sp: u64) -> u64 {
    let of_a_new_thread = || {
        let end = bounds::descriptor();
        (OWN.get() == NEW && sp < end && end - sp < REACH_BYTES).then_some(end)
    };
    let said = signal_stack_end(sp).or_else(|| bounds::end_of_grown_first(sp)).or_else(of_a_new_thread);
    said.unwrap_or(sp.saturating_add(UNKNOWN_BYTES))
}

/// The end of the signal handlers' alternate stack, if `sp` is on it.
fn signal_stack_end(sp: u64) -> Option<u64> {
    let stack = system::signal_stack()?;
    let start = stack.ss_sp as u64;
    let end = start.checked_add(stack.ss_size as u64)?;
    (start..end).contains(&sp).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::super::bounds::stack_pointer as here;
    use super::super::bounds::tests::learn_in_a_thread;
    use super::super::pages::tests::map;
    use super::*;

    #[test]
    fn own_stack_is_read_directly_up_to_its_end() {
        learn_in_a_thread();
        let looks = || {
            let sp = here() & !7;
            let mut stack = Stack::of_this_thread(sp);
            assert_eq!(stack.certain, stack.limit, "known at the first look");
            assert!(stack.limit > sp && stack.limit - sp < 16 << 20);
            for at in (stack.from..(stack.limit & !7) - 8).step_by(8) {
                assert!(stack.is_certain(at) && stack.word(at).is_some());
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
    fn deep_stack_is_known_at_once() {
        learn_in_a_thread();
        #[inline(never)]
        fn down(levels: u32) -> u64 {
            let buffer = core::hint::black_box([levels as u8; 64 << 10]);
            if levels == 0 {
                let sp = here() & !7;
                let stack = Stack::of_this_thread(sp);
                return (stack.certain - sp) << 8 | u64::from(buffer[7]);
            }
            down(levels - 1).wrapping_add(u64::from(buffer[3] >> 7))
        }
        let deep = || down(120) >> 8;
        let certain = std::thread::Builder::new().stack_size(16 << 20).spawn(deep).unwrap().join().unwrap();
        assert!(certain > 120 * (64 << 10), "{certain}");
    }

    /// Not unmapped: another test's mapping might take the range.
    fn take_away(from: u64, pages: usize) {
        let bytes = pages * PAGE as usize;
        // SAFETY: the caller's own pages.
        assert_eq!(unsafe { libc::mprotect(from as *mut _, bytes, libc::PROT_NONE) }, 0);
    }

    #[test]
    fn unknown_stack_is_read_only_where_pages_are_mapped() {
        let pages = map(2);
        let mut stack = Stack::of_this_thread(pages + 64);
        assert_eq!(stack.word(pages + 64), Some(0));
        assert_eq!(stack.word(pages + 56), None, "below where the thread is");
        assert!(stack.is_certain(pages + PAGE - 8) && !stack.is_certain(pages + PAGE));
        for at in (pages + PAGE..pages + 2 * PAGE).step_by(8) {
            assert_eq!(stack.word(at), Some(0));
        }
        assert_eq!((stack.word(pages + 2 * PAGE - 4), stack.word(pages + 2 * PAGE)), (None, None));
        assert_eq!(stack.word(pages + PAGE), Some(0), "what was there still is");
        stack.lives_up_to(pages + PAGE);
        assert!(!stack.is_certain(pages + PAGE), "the last word is on the first page");
        stack.lives_up_to(pages + OWN_FRAMES_BYTES + 64);
        stack.lives_up_to(pages);
        assert!(!stack.is_certain(pages + PAGE), "another stack");
        stack.lives_up_to(pages + PAGE + 8);
        assert!(stack.is_certain(pages + 2 * PAGE - 8) && !stack.is_certain(pages + 2 * PAGE));
        let mut here = Stack::of_this_thread(here() & !7);
        assert!(!here.go_on_at(pages + 2 * PAGE + 64));
        assert!(!here.go_on_at(u64::MAX - 255) && !here.go_on_at(8) && !here.go_on_at(pages + 4));
        assert!(here.go_on_at(pages + PAGE + 256));
        assert_eq!((here.word(pages + PAGE + 128), here.word(pages + PAGE + 120)), (Some(0), None));
        assert!(here.go_on_at(pages));
        assert_eq!((here.word(pages), here.word(pages - 8)), (Some(0), None));
    }

    /// Runs on a stack of `pages` pages that begins at `start`.
    fn on_stack_at(start: u64, pages: usize, run: impl FnOnce() + Send) {
        extern "C" fn main<F: FnOnce()>(run: *mut libc::c_void) -> *mut libc::c_void {
            // SAFETY: the function that was passed, once, while its owner waits.
            unsafe { run.cast::<Option<F>>().as_mut() }.unwrap().take().unwrap()();
            core::ptr::null_mut()
        }
        fn main_of<F: FnOnce()>(_: &Option<F>) -> extern "C" fn(*mut libc::c_void) -> *mut libc::c_void {
            main::<F>
        }
        let mut run = Some(run);
        // SAFETY: live values, initialised by the calls; the stack stays the caller's until the join.
        unsafe {
            let (mut attributes, mut thread) = core::mem::zeroed();
            libc::pthread_attr_init(&mut attributes);
            let bytes = pages * PAGE as usize;
            assert_eq!(libc::pthread_attr_setstack(&mut attributes, start as *mut _, bytes), 0);
            let main = main_of(&run);
            assert_eq!(libc::pthread_create(&mut thread, &attributes, main, (&raw mut run).cast()), 0);
            libc::pthread_attr_destroy(&mut attributes);
            assert_eq!(libc::pthread_join(thread, core::ptr::null_mut()), 0);
        }
        assert!(run.is_none());
    }

    /// A thread's stack without a guard page, and directly below it a stack that another owner may unmap. A
    /// thread on the lower stack is not on its own stack, even if the memory between them is mapped
    /// throughout.
    #[test]
    fn memory_beside_a_thread_s_stack_may_be_unmapped_at_any_time() {
        learn_in_a_thread();
        const BESIDE: usize = 16;
        const OWN: usize = 64;
        let beside = map(BESIDE + OWN);
        let own = beside + BESIDE as u64 * PAGE;
        on_stack_at(own, OWN, || {
            let sp = here() & !7;
            let mut stack = Stack::of_this_thread(sp);
            assert_eq!(stack.certain, stack.limit);
            // As if a coroutine ran there, and as if a handler had interrupted one.
            let on_coroutine = || Stack::of_this_thread(beside + 256);
            let mut coroutine = on_coroutine();
            assert_eq!(coroutine.certain, beside + PAGE);
            assert_eq!(coroutine.word(own - 8), Some(0));
            assert!(stack.go_on_at(beside + 4 * PAGE));
            assert_eq!((stack.certain, stack.word(own - 8)), (0, Some(0)));

            take_away(beside + PAGE, BESIDE - 1);
            for at in [beside + PAGE, beside + 2 * PAGE + 64, own - 8] {
                assert_eq!(on_coroutine().word(at), None);
            }
            assert_eq!(on_coroutine().word(beside + PAGE - 8), Some(0));
            assert!(!Stack::of_this_thread(sp).go_on_at(beside + 4 * PAGE));
            let mut stack = Stack::of_this_thread(sp);
            assert!(stack.go_on_at(beside + 64));
            assert_eq!((stack.word(beside + 64), stack.word(beside + PAGE)), (Some(0), None));
            assert_eq!(Stack::of_this_thread(sp).certain, Stack::of_this_thread(sp).limit);
        });
    }

    /// Memory below the thread's position on its own stack is not certain to be readable: a program may
    /// guard it.
    #[test]
    fn own_stack_below_the_thread_is_not_read_directly() {
        learn_in_a_thread();
        let start = map(64);
        on_stack_at(start, 64, || {
            let mut stack = Stack::of_this_thread(here() & !7);
            let guard = start + 8 * PAGE;
            take_away(guard, 1);
            assert!(!stack.go_on_at(guard + 64));
            assert!(stack.go_on_at(guard - 64));
            assert_eq!((stack.word(guard - 8), stack.word(guard)), (Some(0), None));
        });
    }
}
