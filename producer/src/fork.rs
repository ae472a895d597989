//! How a forked child notices that it is one.
//!
//! The kernel zeroes a page marked wipe-on-fork in every child, whatever made it (fork, clone, a
//! raw system call), so no handler is needed and none can be missed. The page holds the
//! generation of the current session; a thread's slot remembers the generation it attached to.
//! In a child the two differ and everything inherited is left alone: the rings' memory is not
//! even mapped there (`MADV_DONTFORK`). A child of `vfork` shares the page and is not told
//! apart here; it may only exec or exit, and both check the pid.
//!
//! A fork in a signal handler that interrupted a hook returns into that hook in the child, so
//! whoever writes to a segment compares the generation right before, not only at the hook's
//! start. What is left is a signal that falls between that comparison and the store.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::memory;

static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());
/// Used where the kernel has no wipe-on-fork (before 4.14): zeroed by a fork handler.
static FALLBACK: AtomicU32 = AtomicU32::new(0);

#[inline(always)]
fn cell() -> &'static AtomicU32 {
    let page = PAGE.load(Ordering::Acquire);
    // SAFETY: the pointer is null, or to a page that `prepare` mapped and nobody unmaps.
    unsafe { page.as_ref() }.unwrap_or(&FALLBACK)
}

/// Maps the page. Called once, before the first session starts.
pub fn prepare() {
    if !PAGE.load(Ordering::Acquire).is_null() {
        return;
    }
    let page = memory::map_bytes(4096).filter(|page| {
        // SAFETY: the page was just mapped and nothing is in it.
        unsafe { libc::madvise(page.cast(), 4096, libc::MADV_WIPEONFORK) == 0 }
    });
    match page {
        Some(page) => {
            let _ = PAGE.compare_exchange(
                core::ptr::null_mut(),
                page.cast(),
                Ordering::AcqRel,
                Ordering::Acquire,
            );
        }
        None => {
            extern "C" fn in_child() {
                FALLBACK.store(0, Ordering::Relaxed);
            }
            // SAFETY: the handler only stores to a static, which is safe in a forked child.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        }
    }
}

/// The generation of this process's session; 0 where there is none, as in every new child.
#[inline(always)]
pub fn generation() -> u32 {
    // SYNC: pairs with the Release store in `set_generation`: who sees a session's generation
    // sees its pointer too. Otherwise a thread of a forked child could take its parent's
    // session, whose memory is not mapped, for its own.
    cell().load(Ordering::Acquire)
}

/// Says which session is current from here on, after it was stored; 0 for none.
pub fn set_generation(generation: u32) {
    // SYNC: pairs with the Acquire load in `generation`.
    cell().store(generation, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The generation is one for the whole process; its tests take turns.
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

    #[test]
    fn a_child_sees_zero_and_its_parent_does_not() {
        let _alone = ALONE.lock().unwrap();
        prepare();
        set_generation(7);
        // SAFETY: the child only reads an atomic and exits.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(generation() as i32) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(pid, &mut status, 0) };
        assert_eq!(libc::WEXITSTATUS(status), 0);
        assert_eq!(generation(), 7);
        set_generation(0);
    }

    /// On x86 this cannot fail by itself; under the thread sanitizer (`-Zsanitizer=thread`) it
    /// is a data race as soon as one of the two orderings is weaker.
    #[test]
    fn who_sees_the_generation_sees_what_came_before_it() {
        struct Plain(core::cell::UnsafeCell<u64>);
        // SAFETY: the generation orders the one write before the one read.
        unsafe impl Sync for Plain {}
        static BEFORE: Plain = Plain(core::cell::UnsafeCell::new(0));
        let _alone = ALONE.lock().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while generation() != 9 {
                    core::hint::spin_loop();
                }
                // SAFETY: as above.
                assert_eq!(unsafe { *BEFORE.0.get() }, 42);
            });
            // SAFETY: as above.
            unsafe { *BEFORE.0.get() = 42 };
            set_generation(9);
        });
        set_generation(0);
    }
}
