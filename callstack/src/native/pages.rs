//! Copies of pages of this process, made by the kernel: a page that is not mapped, or is unmapped at that
//! moment, is not copied, and nothing faults.
//!
//! A seccomp filter may kill a program that copies in this way, so under a filter stacks are not read at
//! all. Pages of libraries, which stay mapped while one of their functions runs, are then checked and
//! copied in place.

use core::cell::{Cell, UnsafeCell};
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, Ordering};

pub use crate::python::memory::PAGE;
use crate::python::memory::{Copied, Lent, Memory, is_plausible};

type Page = [u8; PAGE as usize];

/// A cache of that many copies, indexed by page number. All zeros is empty.
#[derive(Debug)]
pub struct Pages<const N: usize> {
    /// The pages that were copied, as [`mark_of`] encodes them; 0: none.
    at: [Cell<u64>; N],
    /// Whether the pages are of stacks, which other code may unmap, and not of libraries.
    are_of_stacks: bool,
    bytes: UnsafeCell<[Page; N]>,
}

impl<const N: usize> Pages<N> {
    const fn of_stacks() -> Pages<N> {
        Pages {
            are_of_stacks: true,
            at: [const { Cell::new(0) }; N],
            bytes: UnsafeCell::new([[0; PAGE as usize]; N]),
        }
    }

    /// Discards all copies: the memory may have changed since.
    pub fn forget(&self) {
        self.at.iter().for_each(|at| at.set(0));
    }

    /// A copy of a page, if it can be read. Valid until the next call.
    fn copy_of(&self, page: u64) -> Option<*const Page> {
        let index = (page / PAGE) as usize % N;
        // SAFETY: this value is not shared between threads, and nothing keeps a reference to the bytes.
        let copies = unsafe { &mut *self.bytes.get() };
        let (at, copy) = (self.at.get(index)?, copies.get_mut(index)?);
        if at.get() != mark_of(page) {
            at.set(0);
            let is_copied =
                if self.are_of_stacks { Copied.read(page, 0, copy) } else { Lent.read(page, 0, copy) };
            if !is_copied {
                return None;
            }
            at.set(mark_of(page));
        }
        Some(copy)
    }

    /// The address of a copy of the word at an aligned address. Valid until the next call.
    pub fn word_at(&self, at: u64) -> Option<u64> {
        let page = at & !(PAGE - 1);
        Some(self.copy_of(page)? as u64 + (at - page))
    }
}

/// Never 0.
fn mark_of(page: u64) -> u64 {
    page | 1
}

impl<const N: usize> Memory for Pages<N> {
    fn may_hold(&self, base: u64) -> bool {
        is_plausible(base)
    }

    fn read(&self, base: u64, offset: u64, mut into: &mut [u8]) -> bool {
        let Some(mut from) = base.checked_add(offset) else { return false };
        while !into.is_empty() {
            let rest = (PAGE - from % PAGE) as usize;
            let (part, others) = into.split_at_mut(rest.min(into.len()));
            let Some(next) = from.checked_add(part.len() as u64) else { return false };
            let page = from & !(PAGE - 1);
            let Some(copy) = self.copy_of(page) else { return false };
            // SAFETY: a page of our own, read before another is asked for.
            match unsafe { &*copy }.get((from - page) as usize..).and_then(|rest| rest.get(..part.len())) {
                Some(bytes) => part.copy_from_slice(bytes),
                None => return false,
            }
            (from, into) = (next, others);
        }
        true
    }
}

/// A buffer for one page, shared by several threads: a signal handler's stack may be too small for a page.
#[derive(Debug)]
struct PageBuffer {
    is_taken: AtomicBool,
    page: Pages<1>,
}

// SAFETY: the page is touched by the thread that took the buffer, one at a time.
unsafe impl Sync for PageBuffer {}

/// How many threads can be on foreign stacks at the same moment.
const PAGE_BUFFERS_COUNT: usize = 16;
static PAGE_BUFFERS: [PageBuffer; PAGE_BUFFERS_COUNT] =
    [const { PageBuffer { is_taken: AtomicBool::new(false), page: Pages::of_stacks() } }; PAGE_BUFFERS_COUNT];

/// A buffer that a thread has taken.
#[derive(Debug)]
pub struct Taken(&'static PageBuffer);

impl Taken {
    /// `None` if all are taken.
    pub fn new() -> Option<Taken> {
        // SYNC: pairs with the Release in `drop`.
        let buffer = PAGE_BUFFERS.iter().find(|buffer| !buffer.is_taken.swap(true, Ordering::Acquire))?;
        buffer.page.forget();
        Some(Taken(buffer))
    }
}

impl Deref for Taken {
    type Target = Pages<1>;

    fn deref(&self) -> &Pages<1> {
        &self.0.page
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // SYNC: the next owner's copies come after ours.
        self.0.is_taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Pages with unreadable memory around them.
    pub fn map(pages: usize) -> u64 {
        // SAFETY: new mappings, of which the inner pages may be touched.
        unsafe {
            let bytes = (pages + 2) * PAGE as usize;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let start = libc::mmap(core::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) as u64 + PAGE;
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            assert_eq!(libc::mprotect(start as *mut _, pages * PAGE as usize, protection), 0);
            start
        }
    }

    /// The same, where each word contains its own address.
    fn mapping_of_pages(pages: usize) -> u64 {
        let start = map(pages);
        for at in (start..start + pages as u64 * PAGE).step_by(8) {
            // SAFETY: our own pages.
            unsafe { *(at as *mut u64) = word_at(at) };
        }
        start
    }

    fn word_at(at: u64) -> u64 {
        at.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[test]
    fn copies_are_what_is_there() {
        let start = mapping_of_pages(5);
        let (one, three) = (Pages::<1>::of_stacks(), Pages::<3>::of_stacks());
        let mut step = 1u64;
        for _ in 0..20_000 {
            step = step.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let at = start + (step >> 33) % (5 * PAGE / 8) * 8;
            assert_eq!((one.word(at, 0), three.word(at, 0)), (Some(word_at(at)), Some(word_at(at))));
        }
        let mut all = vec![0; 5 * PAGE as usize - 3];
        assert!(three.read(start, 3, &mut all));
        // SAFETY: our own pages.
        assert_eq!(all, unsafe { core::slice::from_raw_parts((start + 3) as *const u8, all.len()) });
    }

    #[test]
    fn missing_page_is_not_copied_and_a_changed_one_is_copied_anew() {
        let start = mapping_of_pages(2);
        let pages = Pages::<2>::of_stacks();
        assert_eq!(pages.word(start + PAGE - 8, 0), Some(word_at(start + PAGE - 8)));
        for beside in
            [start - 8, start - 4, start + 2 * PAGE - 4, start + 2 * PAGE, 0, 8, u64::MAX - 7, 1 << 62]
        {
            assert_eq!(pages.word(beside, 0), None, "{beside:x}");
        }
        assert!(
            !pages.read(u64::MAX - 8, 16, &mut [0; 8])
                && !pages.read(start, 0, &mut vec![0; 3 * PAGE as usize])
        );
        // SAFETY: our own pages.
        unsafe {
            assert_eq!(pages.word(start, 0), Some(word_at(start)));
            *(start as *mut u64) = 7;
            assert_eq!(pages.word(start, 0), Some(word_at(start)), "the copy");
            pages.forget();
            assert_eq!(pages.word(start, 0), Some(7));
            // Not unmapped: another test's mapping might take the range.
            assert_eq!(libc::mprotect(start as *mut _, PAGE as usize, libc::PROT_NONE), 0);
        }
        pages.forget();
        assert_eq!((pages.word(start, 0), pages.word(start + PAGE, 0)), (None, Some(word_at(start + PAGE))));
    }

    #[test]
    fn slots_are_one_thread_s_at_a_time() {
        let threads = (0..8).map(|number| {
            std::thread::spawn(move || {
                let start = mapping_of_pages(4 + number);
                for round in 0..500u64 {
                    // All may be taken for a while.
                    let Some(buffer) = Taken::new() else { continue };
                    let at = start + round % 4 * PAGE + 8 * number as u64;
                    assert_eq!(buffer.word(at, 0), Some(word_at(at)));
                }
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
