//! The loader's list of mapped objects, read when nobody forks.
//!
//! `dl_iterate_phdr` holds a lock of the loader's that glibc does not give back to a forked child:
//! a child that was forked in that moment by another thread waits for ever in its next `dlopen`.
//! A program that forks does not know that a thread of ours reads the list, so forks wait for it,
//! some microseconds, and it waits for forks. Owned here: how many read, how many fork. A fork that
//! runs no handlers (`_Fork`, a raw clone) may call nothing in its child that takes a lock anyway.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use crate::held_back::HeldBack;
use crate::stderr::KeepErrno;
use crate::system;

pub type LookAt = unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int;

static READERS: AtomicU32 = AtomicU32::new(0);
/// The thread of the latest reader: a fault's handler there that forks must not wait for it, and other handlers are held back.
static READER: AtomicI32 = AtomicI32::new(0);
static FORKS: AtomicU32 = AtomicU32::new(0);
/// The thread of the latest fork: its own handlers may read the list.
static FORKER: AtomicI32 = AtomicI32::new(0);

/// One side waits no longer for the other: a callback of the program's own may fork, or a handler
/// that ran before ours may never return.
const PATIENCE_NS: u64 = 500_000_000;
const NAP_NS: u64 = 20_000;

/// Calls `look_at` with each mapped object, in the order of loading, until it returns something
/// else than 0. It waits while a fork is under way: not for the path of a call.
///
/// # Safety
/// `look_at` may be called with `data`, which outlives the call.
pub unsafe fn each_object(look_at: LookAt, data: *mut c_void) {
    // A handler of this thread that forks meanwhile would leave its child the loader's lock.
    let _held_back = HeldBack::new();
    prepare();
    let _reading = Reading::begin();
    // SAFETY: the caller's word.
    unsafe { libc::dl_iterate_phdr(Some(look_at), data) };
}

struct Reading;

impl Reading {
    fn begin() -> Self {
        let _errno = KeepErrno::new();
        let us = own_id();
        READER.store(us, Ordering::Relaxed);
        wait_while(|| {
            // SYNC: each side first says that it is there and then looks for the other, in one
            // order for all: at most one of the two goes on.
            READERS.fetch_add(1, Ordering::SeqCst);
            let goes_on = FORKS.load(Ordering::SeqCst) == 0 || FORKER.load(Ordering::Relaxed) == us;
            if !goes_on {
                leave(&READERS);
            }
            !goes_on
        })
        .then(|| READERS.fetch_add(1, Ordering::SeqCst));
        Self
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        leave(&READERS);
    }
}

fn own_id() -> i32 {
    system::gettid()
}

/// One less, but not less than none: a child that a signal handler forked inside the above
/// begins with none.
fn leave(count: &AtomicU32) {
    let _ = count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1));
}

/// Waits while that holds. True if it still does when patience ends.
fn wait_while(mut holds: impl FnMut() -> bool) -> bool {
    let mut naps = PATIENCE_NS / NAP_NS;
    while holds() {
        if naps == 0 {
            return true;
        }
        naps -= 1;
        system::sleep_ns(NAP_NS);
    }
    false
}

/// Registers the handlers, once a process: before there is a thread of ours that reads.
pub(crate) fn prepare() {
    static PREPARED: AtomicBool = AtomicBool::new(false);
    if !PREPARED.swap(true, Ordering::AcqRel) {
        // SAFETY: the handlers touch atomics and sleep, which any thread may at a fork.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
    }
}

extern "C" fn before_fork() {
    let _errno = KeepErrno::new();
    FORKS.fetch_add(1, Ordering::SeqCst);
    let us = own_id();
    FORKER.store(us, Ordering::Relaxed);
    wait_while(|| READERS.load(Ordering::SeqCst) > 0 && READER.load(Ordering::Relaxed) != us);
}

extern "C" fn in_parent() {
    leave(&FORKS);
}

extern "C" fn in_child() {
    FORKS.store(0, Ordering::SeqCst);
    READERS.store(0, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is counted is the process's: the tests take turns.
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

    unsafe extern "C" fn count(_: *mut libc::dl_phdr_info, _: usize, objects: *mut c_void) -> c_int {
        // SAFETY: the test's own number.
        unsafe { *objects.cast::<u32>() += 1 };
        0
    }

    fn objects() -> u32 {
        let mut objects = 0u32;
        // SAFETY: the callback gets a number that outlives the call.
        unsafe { each_object(count, (&raw mut objects).cast()) };
        objects
    }

    /// Without the handlers the first children hang already.
    #[test]
    fn children_forked_while_the_list_is_read_can_read_it_too() {
        const CHILDREN: u32 = 200;
        let _alone = ALONE.lock().unwrap();
        let expected = objects();
        assert!(expected > 1);
        let over = AtomicBool::new(false);
        let ended = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    assert_eq!(objects(), expected);
                }
            });
            let ended = (0..CHILDREN).filter(|_| child_ends(expected)).count();
            over.store(true, Ordering::Relaxed);
            ended
        });
        assert_eq!(ended, CHILDREN as usize);
        // Other tests fork, too, but none of them for ever.
        let is_quiet = || (READERS.load(Ordering::SeqCst), FORKS.load(Ordering::SeqCst)) == (0, 0);
        assert!(!wait_while(|| !is_quiet()), "somebody is counted who has gone");
    }

    fn child_ends(expected: u32) -> bool {
        // SAFETY: the child reads the list and exits; the parent waits for it.
        unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::alarm(20);
                libc::_exit(i32::from(objects() != expected));
            }
            let mut status = 0;
            libc::waitpid(pid, &mut status, 0);
            status == 0
        }
    }

    /// Handlers registered before ours run after it, on the thread that forks.
    #[test]
    fn who_forks_may_read_it() {
        let _alone = ALONE.lock().unwrap();
        objects();
        FORKS.fetch_add(1, Ordering::SeqCst);
        let begin = std::time::Instant::now();
        // A test beside this one may fork, and be the latest then.
        let reads = (0..100).filter(|_| {
            FORKER.store(own_id(), Ordering::Relaxed);
            let begin = std::time::Instant::now();
            assert!(objects() > 1);
            begin.elapsed().as_nanos() < u128::from(PATIENCE_NS)
        });
        let at_once = reads.count();
        leave(&FORKS);
        assert!(at_once >= 50, "{at_once} in {:?}", begin.elapsed());
    }
}
