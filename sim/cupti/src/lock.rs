//! A mutex and a condition variable that are the C library's, as CUPTI's are.
//!
//! The standard library's are made of futexes, which ThreadSanitizer does not see: in a program with
//! it, every record would look like a data race.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

pub struct Mutex<T> {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through a guard only, which one thread has at a time.
unsafe impl<T: Send> Sync for Mutex<T> {}

/// The value, until it is dropped; of the thread that locked.
pub struct Guard<'a, T> {
    of: &'a Mutex<T>,
    _stays: PhantomData<*const ()>,
}

pub struct Condvar(UnsafeCell<libc::pthread_cond_t>);

// SAFETY: the C library's functions may be called on it by all threads at once.
unsafe impl Sync for Condvar {}

impl<T> Mutex<T> {
    pub fn new(value: T) -> Mutex<T> {
        Mutex { mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER), value: UnsafeCell::new(value) }
    }

    pub fn lock(&'static self) -> Guard<'static, T> {
        // SAFETY: an initialised mutex that never moves: `self` is a static.
        unsafe { libc::pthread_mutex_lock(self.mutex.get()) };
        Guard { of: self, _stays: PhantomData }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard's thread holds the lock.
        unsafe { &*self.of.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.of.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: locked by this thread when the guard was made.
        unsafe { libc::pthread_mutex_unlock(self.of.mutex.get()) };
    }
}

impl Condvar {
    pub const fn new() -> Condvar {
        Condvar(UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER))
    }

    pub fn notify_all(&self) {
        // SAFETY: an initialised condition variable.
        unsafe { libc::pthread_cond_broadcast(self.0.get()) };
    }

    pub fn wait<'a, T>(&'static self, guard: Guard<'a, T>) -> Guard<'a, T> {
        // SAFETY: the guard's thread holds the mutex; both live as long as the process.
        unsafe { libc::pthread_cond_wait(self.0.get(), guard.of.mutex.get()) };
        guard
    }

    /// At most so long, by the clock of the day: what waits looks again at every wake-up.
    pub fn wait_timeout<'a, T>(&'static self, guard: Guard<'a, T>, most: Duration) -> Guard<'a, T> {
        // SAFETY: `until` is plain data that clock_gettime fills; otherwise as above.
        unsafe {
            let mut until: libc::timespec = std::mem::zeroed();
            libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut until);
            let nanoseconds = until.tv_nsec + i64::from(most.subsec_nanos());
            until.tv_sec += most.as_secs().min(1 << 32).cast_signed() + nanoseconds / 1_000_000_000;
            until.tv_nsec = nanoseconds % 1_000_000_000;
            libc::pthread_cond_timedwait(self.0.get(), guard.of.mutex.get(), &raw const until);
        }
        guard
    }
}
