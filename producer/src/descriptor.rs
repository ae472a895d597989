//! A descriptor of ours in a program that closes what it does not know, and a place for one that
//! changes while other threads use it.
//!
//! A closed number is soon somebody else's, so that a descriptor is known by what it is: its
//! device and inode are compared before each use. All calls here are async-signal-safe.

use core::mem::zeroed;
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use crate::system;

/// Where kept descriptors go if the limit allows: above what programs take for theirs.
const HIGH: i32 = 400;

/// What we leave to the program at least, beside what we keep (a socket and a memory file) and
/// have for a moment while a session starts.
const LEFT_TO_THE_PROGRAM: usize = 16;
const OURS_AT_ONCE: usize = 4;
/// Where a higher limit lets numbers be, we do not look.
const LOOKED_AT_MOST: libc::rlim_t = 65536;

/// Whether the limit leaves the program what it may need when we have taken ours. Numbers are
/// given out from the lowest, so it looks from the highest.
pub fn is_room() -> bool {
    let most = system::soft_limit(libc::RLIMIT_NOFILE).min(LOOKED_AT_MOST) as i32;
    let is_free = |number: &i32| system::fcntl(*number, libc::F_GETFD, 0) < 0;
    let wanted = LEFT_TO_THE_PROGRAM + OURS_AT_ONCE;
    (0..most).rev().filter(is_free).take(wanted).count() == wanted
}

/// A descriptor, known by number and inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Descriptor {
    number: i32,
    device: u64,
    inode: u64,
}

impl Descriptor {
    /// Takes a number and remembers what it is.
    pub fn adopt(number: i32) -> Option<Descriptor> {
        let (device, inode) = identity(number)?;
        Some(Descriptor { number, device, inode })
    }

    /// The number, if it still is what it was.
    pub fn number(&self) -> Option<i32> {
        (identity(self.number)? == (self.device, self.inode)).then_some(self.number)
    }

    /// Moves it out of the numbers that programs count on; where that cannot be it stays.
    pub fn out_of_the_way(self) -> Descriptor {
        let Some(number) = self.number() else { return self };
        let high = system::fcntl(number, libc::F_DUPFD_CLOEXEC, HIGH);
        if high < 0 {
            return self;
        }
        self.close();
        Descriptor { number: high, ..self }
    }

    pub fn close(&self) {
        if let Some(number) = self.number() {
            // SAFETY: it still is what we made.
            unsafe { system::close(number) };
        }
    }
}

/// A place for a descriptor. One thread changes it; a thread that reads meanwhile may get the
/// number of one and the inode of another, which no file answers to: it then has none.
#[derive(Debug)]
pub struct Place {
    number: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

impl Place {
    pub const fn empty() -> Place {
        Place { number: AtomicI32::new(-1), device: AtomicU64::new(0), inode: AtomicU64::new(0) }
    }

    pub fn new(descriptor: Descriptor) -> Place {
        let place = Place::empty();
        place.set(Some(descriptor));
        place
    }

    /// Whatever was there is the caller's to close.
    pub fn set(&self, descriptor: Option<Descriptor>) {
        let Descriptor { number, device, inode } =
            descriptor.unwrap_or(Descriptor { number: -1, device: 0, inode: 0 });
        self.number.store(-1, Ordering::Release);
        self.device.store(device, Ordering::Release);
        self.inode.store(inode, Ordering::Release);
        self.number.store(number, Ordering::Release);
    }

    /// What is there now, ours still or not; one of no number where there is none.
    pub fn get(&self) -> Descriptor {
        Descriptor {
            number: self.number.load(Ordering::Acquire),
            device: self.device.load(Ordering::Acquire),
            inode: self.inode.load(Ordering::Acquire),
        }
    }

    /// Closes what is there.
    pub fn clear(&self) {
        let there = self.get();
        self.set(None);
        there.close();
    }
}

/// What a descriptor is: device and inode, by which it is told apart from whatever gets its number
/// later. A socket's are of a file system that has nothing but sockets.
pub(crate) fn identity(number: i32) -> Option<(u64, u64)> {
    // SAFETY: zero is a valid stat; the pointer is to a live one.
    let mut stat: libc::stat = unsafe { zeroed() };
    (system::fstat(number, &mut stat) == 0).then_some((stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> i32 {
        // SAFETY: makes a new descriptor of the test's own.
        unsafe { libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC) }
    }

    #[test]
    fn a_kept_descriptor_is_out_of_the_way_and_goes_when_it_is_cleared() {
        let place = Place::new(Descriptor::adopt(file()).unwrap().out_of_the_way());
        let number = place.get().number().unwrap();
        assert!(number >= HIGH);
        // SAFETY: only looks at the flags.
        assert_eq!(unsafe { libc::fcntl(number, libc::F_GETFD) } & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
        place.clear();
        assert!(identity(number).is_none() && place.get().number().is_none());
    }

    #[test]
    fn a_number_that_became_another_file_is_not_closed() {
        let (ours, theirs) = (file(), file());
        let place = Place::new(Descriptor::adopt(ours).unwrap());
        // SAFETY: the test's own descriptors.
        unsafe { libc::dup2(theirs, ours) };
        place.clear();
        assert!(identity(ours).is_some());
        // SAFETY: as above.
        unsafe { (libc::close(ours), libc::close(theirs)) };
    }
}
