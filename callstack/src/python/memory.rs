//! Ways to read an interpreter's memory.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};

use gputrace_producer::system;

/// The way in which frames are read.
pub trait Memory {
    /// Whether an object can be at that address. Asked once before the object's fields are read.
    fn may_hold(&self, base: u64) -> bool;
    /// Reads bytes of the object at `base`, which may not be mapped.
    fn read(&self, base: u64, offset: u64, into: &mut [u8]) -> bool;

    #[inline(always)]
    fn word(&self, base: u64, offset: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(base, offset, &mut bytes).then(|| u64::from_ne_bytes(bytes))
    }

    #[inline(always)]
    fn half(&self, base: u64, offset: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(base, offset, &mut bytes).then(|| u32::from_ne_bytes(bytes))
    }

    #[inline(always)]
    fn byte(&self, base: u64, offset: u64) -> Option<u8> {
        let mut bytes = [0; 1];
        self.read(base, offset, &mut bytes).then(|| bytes[0])
    }
}

/// The unit that is mapped or not: the smallest page of any machine we run on.
pub const PAGE: u64 = 4096;
/// Nothing is ever mapped below this address.
const LOWEST: u64 = 0x1_0000;
/// User space ends here.
#[cfg(target_arch = "x86_64")]
const HIGHEST: u64 = 1 << 47;
#[cfg(not(target_arch = "x86_64"))]
const HIGHEST: u64 = 1 << 48;

#[inline(always)]
pub fn is_plausible(base: u64) -> bool {
    base & 7 == 0 && base.wrapping_sub(LOWEST) < HIGHEST - LOWEST
}

/// This process's memory, read in place.
#[derive(Debug)]
pub struct Own(());

impl Own {
    /// # Safety
    ///
    /// Every address read through it belongs to a live object of the calling thread's interpreter.
    pub unsafe fn new() -> Own {
        Own(())
    }
}

impl Memory for Own {
    #[inline(always)]
    fn may_hold(&self, base: u64) -> bool {
        is_plausible(base)
    }

    #[inline(always)]
    fn read(&self, base: u64, offset: u64, into: &mut [u8]) -> bool {
        let from = base.wrapping_add(offset) as *const u8;
        // SAFETY: whoever made this value answers for the address; the bytes may be any.
        unsafe { core::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
        true
    }
}

/// This process's memory, copied by the kernel: a read fails where nothing is mapped, even if the memory
/// was unmapped a moment ago. Two system calls for each read. Nothing is read under a seccomp filter, which
/// may kill a process that copies in this way, or if the kernel has no such call.
///
/// No other way is harmless. A page that was checked and is then read may be unmapped by another thread in
/// between. The kernel also copies a set of signals to be blocked from any address, but that blocks SIGSEGV
/// for a moment, which kills a profiler whose handler expects such faults. A pipe or a file would be one
/// more descriptor in the program and in every child that it forks.
#[derive(Debug)]
pub struct Copied;

/// Copying is not possible: there is a filter, which cannot be removed, or the kernel has no such call.
static NO_COPIES: AtomicBool = AtomicBool::new(false);

impl Copied {
    /// Whether the bytes were copied; `None` if copying is not possible.
    fn copy(from: u64, into: &mut [u8]) -> Option<bool> {
        if NO_COPIES.load(Ordering::Relaxed) || system::is_filtered() {
            NO_COPIES.store(true, Ordering::Relaxed);
            return None;
        }
        let to = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        let from = libc::iovec { iov_base: from as *mut libc::c_void, iov_len: into.len() };
        let process = system::getpid() as usize;
        let arguments =
            [process, (&raw const to).expose_provenance(), 1, (&raw const from).expose_provenance(), 1, 0];
        // SAFETY: the kernel trusts neither; it writes at most as many bytes as `into` has.
        let copied = unsafe { system::call(libc::SYS_process_vm_readv, arguments) };
        if copied == -(libc::ENOSYS as isize) {
            NO_COPIES.store(true, Ordering::Relaxed);
            return None;
        }
        Some(usize::try_from(copied) == Ok(into.len()))
    }
}

impl Memory for Copied {
    fn may_hold(&self, base: u64) -> bool {
        is_plausible(base)
    }

    fn read(&self, base: u64, offset: u64, into: &mut [u8]) -> bool {
        Copied::copy(base.wrapping_add(offset), into) == Some(true)
    }
}

/// Memory of this process whose owner keeps it mapped while it is read, if it is mapped at all. Copied by
/// the kernel; where that is not possible, the pages are checked and then read.
#[derive(Debug)]
pub struct Lent;

impl Memory for Lent {
    fn may_hold(&self, base: u64) -> bool {
        is_plausible(base)
    }

    fn read(&self, base: u64, offset: u64, into: &mut [u8]) -> bool {
        match Copied::copy(base.wrapping_add(offset), into) {
            Some(is_copied) => is_copied,
            None => Checked::new().read(base, offset, into),
        }
    }
}

/// This process's memory, checked by the kernel first, so that no read faults. A page that was found is not
/// checked again while this value lives, which is one reading of one stack.
#[derive(Debug)]
pub struct Checked {
    known: [Cell<u64>; Self::KNOWN],
}

impl Checked {
    const KNOWN: usize = 32;

    pub fn new() -> Checked {
        Checked { known: [const { Cell::new(0) }; Self::KNOWN] }
    }

    /// Whether the page of an address can be read. Reads nothing of it.
    pub fn has(&self, address: u64) -> bool {
        (LOWEST..HIGHEST).contains(&address) && self.is_there(address)
    }

    fn is_there(&self, address: u64) -> bool {
        let page = address / PAGE;
        let Some(known) = self.known.get(page as usize % Self::KNOWN) else { return false };
        if known.get() == page {
            return true;
        }
        // The kernel copies the set before it checks the operation, which is an invalid one: EFAULT if the
        // page is not mapped, EINVAL if it is. No mask changes. SAFETY: the kernel does not trust the
        // pointer.
        let answer = unsafe {
            system::call(libc::SYS_rt_sigprocmask, [usize::MAX, (page * PAGE) as usize, 0, 8, 0, 0])
        };
        let is_there = answer == 0 || answer == -(libc::EINVAL as isize);
        if is_there {
            known.set(page);
        }
        is_there
    }
}

impl Default for Checked {
    fn default() -> Checked {
        Checked::new()
    }
}

impl Memory for Checked {
    fn may_hold(&self, base: u64) -> bool {
        is_plausible(base)
    }

    fn read(&self, base: u64, offset: u64, into: &mut [u8]) -> bool {
        let (Some(first), length) = (base.checked_add(offset), into.len() as u64) else { return false };
        let Some(last) = first.checked_add(length.saturating_sub(1)).filter(|last| *last < HIGHEST) else {
            return false;
        };
        if first < LOWEST || !(first / PAGE..=last / PAGE).all(|page| self.is_there(page * PAGE)) {
            return false;
        }
        // SAFETY: the kernel has just read all these pages. The thread whose frames refer to them is inside
        // this function and frees none of them.
        unsafe { core::ptr::copy_nonoverlapping(first as *const u8, into.as_mut_ptr(), into.len()) };
        true
    }
}

/// Bytes that represent a process from an address on: for tests and fuzzing.
#[derive(Debug)]
pub struct ProcessImage<'b> {
    pub start: u64,
    pub bytes: &'b [u8],
}

impl Memory for ProcessImage<'_> {
    fn may_hold(&self, base: u64) -> bool {
        is_plausible(base)
    }

    fn read(&self, base: u64, offset: u64, into: &mut [u8]) -> bool {
        let from = base.checked_add(offset).and_then(|at| at.checked_sub(self.start));
        let Some(from) = from.and_then(|at| usize::try_from(at).ok()) else { return false };
        match from.checked_add(into.len()).and_then(|end| self.bytes.get(from..end)) {
            Some(bytes) => into.copy_from_slice(bytes),
            None => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unmapped_memory_is_not_read() {
        // SAFETY: a mapping of our own, of two pages of which the second is taken away.
        let page = unsafe {
            let pages = libc::mmap(
                core::ptr::null_mut(),
                8192,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            libc::mprotect(pages.byte_add(4096), 4096, libc::PROT_NONE);
            pages as u64
        };
        let memory = Checked::new();
        assert_eq!(memory.word(page, 0), Some(0));
        assert_eq!(memory.word(page, 4088), Some(0));
        assert_eq!(memory.word(page, 4092), None, "half of it is on the page that cannot be read");
        assert_eq!(memory.word(page, 4096), None);
        assert_eq!(memory.word(8, 0), None);
        assert_eq!(memory.word(u64::MAX - 8, 4), None);
        assert_eq!(memory.word(HIGHEST - 4, 0), None);
    }
}
