//! The loader's list of mapped objects, read while no thread forks.
//!
//! `dl_iterate_phdr` holds a lock of the loader that glibc does not release in a forked child. If another
//! thread forks in that moment, the child waits for ever in its next `dlopen`. A program that forks does
//! not know that one of our threads reads the list. So forks wait for readers, some microseconds, and
//! readers wait for forks. Who takes a lock of another library does so in the same way.
//!
//! The module owns the numbers of readers and of forks under way. A fork that runs no handlers (`_Fork`, a
//! raw clone) is not covered: its child may call nothing that takes a lock anyway.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use crate::held_back::HeldBack;
use crate::stderr::KeepErrno;
use crate::system;

pub type LookAt = unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int;

static READERS: AtomicU32 = AtomicU32::new(0);
/// The thread of the latest reader. If a fault's handler on that thread forks, the fork must not wait for
/// the reader; other signals are blocked there.
static READER: AtomicI32 = AtomicI32::new(0);
static FORKS: AtomicU32 = AtomicU32::new(0);
/// The thread of the latest fork: its own fork handlers may read the list.
static FORKER: AtomicI32 = AtomicI32::new(0);

/// The most that one side waits for the other: a callback of the program's may fork, or a handler that ran
/// before ours may never return.
const PATIENCE_NS: u64 = 500_000_000;
const NAP_NS: u64 = 20_000;

/// Calls `look_at` with each mapped object, in load order, until it returns a value other than 0. Waits
/// while a fork is under way, so it must not be called on the path of an event.
///
/// # Safety
///
/// `look_at` may be called with `data`, which outlives the call.
pub unsafe fn each_object(look_at: LookAt, data: *mut c_void) {
    // SAFETY: the caller's word.
    apart_from_forks(|| unsafe { libc::dl_iterate_phdr(Some(look_at), data) });
}

/// Calls `act`, which takes a lock of another library, while no thread forks: a child would inherit the held
/// lock. `act` must call neither this nor [`each_object`], and this is not for the path of an event.
pub fn apart_from_forks<T>(act: impl FnOnce() -> T) -> T {
    // If a signal handler on this thread forked now, its child would inherit the lock, too.
    let _held_back = HeldBack::new();
    prepare();
    let _reading = Reading::begin();
    act()
}

struct Reading;

impl Reading {
    fn begin() -> Self {
        let _errno = KeepErrno::new();
        let us = own_id();
        READER.store(us, Ordering::Relaxed);
        wait_while(|| {
            // SYNC: each side first announces itself and then checks for the other, in one total order: at
            // most one of the two goes on.
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

/// Subtracts one, but not below 0: a child that a signal handler forked inside the code above starts with
/// 0.
fn leave(count: &AtomicU32) {
    let _ = count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1));
}

/// Waits while `holds` returns true. Returns true if it still does at the end of the patience.
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

/// Registers the fork handlers, once per process: before one of our threads reads the list.
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

    /// The counts are process-wide, so the tests take turns.
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

    /// Without the handlers one of the first children already hangs.
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
        // Other tests fork too, but each fork ends.
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

    /// Fork handlers registered before ours run after it, on the thread that forks.
    #[test]
    fn forking_thread_may_read_the_list() {
        let _alone = ALONE.lock().unwrap();
        objects();
        FORKS.fetch_add(1, Ordering::SeqCst);
        let begin = std::time::Instant::now();
        // A test that runs at the same time may fork and be the latest one.
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
