//! A descriptor of ours in a program that closes descriptors it does not know, and a slot for a descriptor
//! that changes while other threads use it.
//!
//! A closed number is soon reused. A descriptor is therefore identified by its device and inode, which are
//! compared before each use. All calls here are async-signal-safe.

use core::mem::zeroed;
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use crate::system;

/// Kept descriptors are moved here or above if the limit allows: above the numbers that programs use.
const HIGH: i32 = 400;

/// The numbers that we leave to the program at least, besides those that we keep (a socket and a memory
/// file) and those that we use for a moment while a session starts.
const LEFT_TO_THE_PROGRAM: usize = 16;
const OURS_AT_ONCE: usize = 4;
/// Higher numbers than this are not checked, even where the limit allows them.
const LOOKED_AT_MOST: libc::rlim_t = 65536;

/// Whether the limit leaves the program enough numbers after we have taken ours. The kernel assigns the
/// lowest free number, so the check starts from the highest.
pub fn has_free_number() -> bool {
    let most = system::soft_limit(libc::RLIMIT_NOFILE).min(LOOKED_AT_MOST) as i32;
    let is_free = |number: &i32| system::fcntl(*number, libc::F_GETFD, 0) < 0;
    let wanted = LEFT_TO_THE_PROGRAM + OURS_AT_ONCE;
    (0..most).rev().filter(is_free).take(wanted).count() == wanted
}

/// A descriptor, identified by number, device and inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Descriptor {
    number: i32,
    device: u64,
    inode: u64,
}

impl Descriptor {
    /// Takes a number and records its identity.
    pub fn from_raw(number: i32) -> Option<Descriptor> {
        let (device, inode) = identity(number)?;
        Some(Descriptor { number, device, inode })
    }

    /// The number, if it still has the recorded identity.
    pub fn number(&self) -> Option<i32> {
        (identity(self.number)? == (self.device, self.inode)).then_some(self.number)
    }

    /// Moves the descriptor above the numbers that programs count on. If that fails, it stays.
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

/// A slot for a descriptor. One thread changes it. A thread that reads at the same time may get the number
/// of one descriptor and the inode of another; no file matches that, so the thread gets none.
#[derive(Debug)]
pub struct DescriptorSlot {
    number: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

impl DescriptorSlot {
    pub const fn empty() -> DescriptorSlot {
        DescriptorSlot { number: AtomicI32::new(-1), device: AtomicU64::new(0), inode: AtomicU64::new(0) }
    }

    pub fn new(descriptor: Descriptor) -> DescriptorSlot {
        let slot = DescriptorSlot::empty();
        slot.set(Some(descriptor));
        slot
    }

    /// Stores a descriptor. The caller must close the previous one.
    pub fn set(&self, descriptor: Option<Descriptor>) {
        let Descriptor { number, device, inode } =
            descriptor.unwrap_or(Descriptor { number: -1, device: 0, inode: 0 });
        self.number.store(-1, Ordering::Release);
        self.device.store(device, Ordering::Release);
        self.inode.store(inode, Ordering::Release);
        self.number.store(number, Ordering::Release);
    }

    /// The stored descriptor, valid or not; one without a number if the slot is empty.
    pub fn get(&self) -> Descriptor {
        Descriptor {
            number: self.number.load(Ordering::Acquire),
            device: self.device.load(Ordering::Acquire),
            inode: self.inode.load(Ordering::Acquire),
        }
    }

    /// Closes and removes the stored descriptor.
    pub fn clear(&self) {
        let there = self.get();
        self.set(None);
        there.close();
    }
}

/// The device and inode of a descriptor, which distinguish it from a later one with the same number. A
/// socket's are those of a file system that contains only sockets.
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
    fn kept_descriptor_is_out_of_the_way_and_goes_when_it_is_cleared() {
        let slot = DescriptorSlot::new(Descriptor::from_raw(file()).unwrap().out_of_the_way());
        let number = slot.get().number().unwrap();
        assert!(number >= HIGH);
        // SAFETY: only looks at the flags.
        assert_eq!(unsafe { libc::fcntl(number, libc::F_GETFD) } & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
        slot.clear();
        assert!(identity(number).is_none() && slot.get().number().is_none());
    }

    #[test]
    fn descriptor_that_became_another_file_is_not_closed() {
        let (ours, theirs) = (file(), file());
        let slot = DescriptorSlot::new(Descriptor::from_raw(ours).unwrap());
        // SAFETY: the test's own descriptors.
        unsafe { libc::dup2(theirs, ours) };
        slot.clear();
        assert!(identity(ours).is_some());
        // SAFETY: as above.
        unsafe { (libc::close(ours), libc::close(theirs)) };
    }
}
