//! Files that are cut while they are mapped: to read what is gone is a SIGBUS, which would end the collector.
//!
//! While a thread reads mapped files here, a handler puts zeros in the place of a page that is gone, so that
//! reading goes on, and notes it: what was read is then not believed. Everywhere else the signal does what it
//! did before.

use std::cell::Cell;
use std::sync::OnceLock;

use libc::{c_int, c_void, siginfo_t};

thread_local! {
    /// How deep the thread is inside of [`reading`], and whether something was gone. Without a destructor and with
    /// a constant at first, so that a signal handler may use them.
    static READING: Cell<u32> = const { Cell::new(0) };
    static WAS_CUT: Cell<bool> = const { Cell::new(false) };
}

/// What SIGBUS did before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Reads mapped files; `None` if one of them was cut meanwhile.
pub fn reading<T>(read: impl FnOnce() -> T) -> Option<T> {
    prepare();
    let outside = READING.replace(READING.get() + 1);
    let cut_before = WAS_CUT.replace(false);
    let inside = Inside { outside };
    let found = read();
    drop(inside);
    let was_cut = WAS_CUT.replace(cut_before);
    (!was_cut).then_some(found)
}

/// Ends the reading also where it panics.
struct Inside {
    outside: u32,
}

impl Drop for Inside {
    fn drop(&mut self) {
        READING.set(self.outside);
    }
}

fn prepare() {
    BEFORE.get_or_init(|| {
        // SAFETY: both are plain data, for which zeros mean nothing special; the handler is async-signal-safe, and
        // runs on the stack that it interrupts.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before);
            let mut ours: libc::sigaction = std::mem::zeroed();
            ours.sa_sigaction = on_bus_error as *const () as usize;
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGBUS, &raw const ours, std::ptr::null_mut());
            before
        }
    });
}

extern "C" fn on_bus_error(signal: c_int, info: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel gives the handler a whole siginfo; SIGBUS has an address in it.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code == libc::BUS_ADRERR && READING.try_with(Cell::get).is_ok_and(|depth| depth > 0) {
        // SAFETY: sysconf has no preconditions.
        let page_bytes = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let page = address & !(page_bytes - 1);
        // SAFETY: the address was being read here, in a mapping of a file that this thread looks at; its page holds
        // nothing any more. What is there instead can be read and is never written.
        let put = unsafe {
            libc::mmap(
                page as *mut c_void,
                page_bytes,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        if put != libc::MAP_FAILED {
            let _ = WAS_CUT.try_with(|was_cut| was_cut.set(true));
            return;
        }
    }
    // As before: whoever raised it raises it again at once, now that this handler is gone.
    // SAFETY: restores what sigaction gave, or the default.
    unsafe {
        match BEFORE.get() {
            Some(before) => libc::sigaction(signal, before, std::ptr::null_mut()),
            None => {
                libc::signal(signal, libc::SIG_DFL);
                0
            }
        };
        // One that was sent, and not raised by an access, does not come again by itself.
        if code <= 0 {
            libc::raise(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_file_that_is_cut_while_it_is_mapped_is_read_as_zeros_and_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        std::fs::write(&path, vec![7u8; 3 * 4096]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let sum = |mapped: *const u8| {
            // SAFETY: three pages are mapped there; those that are gone are what this is about.
            (0..3).map(|page| u32::from(unsafe { mapped.add(page * 4096).read_volatile() })).sum::<u32>()
        };
        let map = || {
            // SAFETY: a new mapping of a file that was opened.
            let mapped = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    3 * 4096,
                    libc::PROT_READ,
                    libc::MAP_PRIVATE,
                    file.as_raw_fd(),
                    0,
                )
            };
            assert_ne!(mapped, libc::MAP_FAILED);
            mapped as *const u8
        };
        assert_eq!(reading(|| sum(map())), Some(21));
        let read = reading(|| {
            let mapped = map();
            assert_eq!(sum(mapped), 21);
            file.set_len(4096).unwrap();
            assert_eq!(sum(mapped), 7);
            // A reading within another is told by itself.
            assert_eq!(reading(|| 1), Some(1));
        });
        assert_eq!(read, None);
        assert_eq!(reading(|| 5), Some(5), "what was cut is over");
    }
}
