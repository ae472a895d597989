//! Mapped files that are truncated: reading beyond the new end raises SIGBUS, which would end the collector.
//!
//! While a thread reads mapped files here, a handler maps a page of zeros over the missing page, so that
//! reading continues, and notes it: the result is then discarded. Everywhere else the signal acts as before.

use std::cell::Cell;
use std::sync::OnceLock;

use libc::{c_int, c_void, siginfo_t};

thread_local! {
    /// The nesting depth of [`reading`] on this thread, and whether a page was missing. Const-initialised and
    /// without a destructor, so that a signal handler may use them.
    static READING: Cell<u32> = const { Cell::new(0) };
    static WAS_CUT: Cell<bool> = const { Cell::new(false) };
}

/// The action of SIGBUS before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Runs `read`, which reads mapped files. Returns `None` if one of them was truncated meanwhile.
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

/// Restores the depth, also on a panic.
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
        // SAFETY: both structs are plain data that may be zero; the handler is async-signal-safe.
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
        // SAFETY: this thread was reading the address in a file mapping of its own, whose page no longer
        // exists. The new page can be read and is never written.
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
    // Restores the action before. The access then raises the signal again.
    // SAFETY: the action is the one that sigaction returned, or the default.
    unsafe {
        match BEFORE.get() {
            Some(before) => libc::sigaction(signal, before, std::ptr::null_mut()),
            None => {
                libc::signal(signal, libc::SIG_DFL);
                0
            }
        };
        // A signal that was sent, not raised by an access, does not repeat by itself.
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
    fn file_that_is_cut_while_it_is_mapped_is_read_as_zeros_and_not_believed() {
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
            // A nested reading has a result of its own.
            assert_eq!(reading(|| 1), Some(1));
        });
        assert_eq!(read, None);
        assert_eq!(reading(|| 5), Some(5), "what was cut is over");
    }
}
