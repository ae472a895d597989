//! The state that this program was started with, so that the traced one can have it too.
//!
//! Rust's runtime ignores SIGPIPE and opens what is closed of stdin, stdout and stderr before `main`;
//! what they were before is noted by a constructor. So is where our arguments are, as others read them.

use std::ffi::c_char;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, Ordering};

use libc::c_int;

static SIGPIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);
static SIGXFSZ_WAS_IGNORED: AtomicBool = AtomicBool::new(false);
/// Bit n: descriptor n was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);
static ARGUMENTS: AtomicPtr<*mut c_char> = AtomicPtr::new(null_mut());
static ARGUMENTS_COUNT: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(count: c_int, arguments: *mut *mut c_char) {
    // Only GNU's loader says them here.
    if cfg!(target_env = "gnu") {
        ARGUMENTS_COUNT.store(count, Ordering::Relaxed);
        ARGUMENTS.store(arguments, Ordering::Relaxed);
    }
    SIGPIPE_WAS_IGNORED.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
    SIGXFSZ_WAS_IGNORED.store(is_ignored(libc::SIGXFSZ), Ordering::Relaxed);
    for descriptor in 0..3 {
        // SAFETY: fcntl takes plain numbers.
        if unsafe { libc::fcntl(descriptor, libc::F_GETFD) } == -1 {
            CLOSED.fetch_or(1 << descriptor, Ordering::Relaxed);
        }
    }
}

fn is_ignored(signal: c_int) -> bool {
    // SAFETY: `action` is zeroed plain data that sigaction fills; a null new action only reads.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

// SAFETY: the section holds pointers to functions that the loader calls before `main`; this one
// calls sigaction and fcntl and stores atomics, none of which needs Rust's runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn(c_int, *mut *mut c_char) = note;

fn disposition(ignored: &AtomicBool) -> libc::sighandler_t {
    if ignored.load(Ordering::Relaxed) { libc::SIG_IGN } else { libc::SIG_DFL }
}

/// How SIGPIPE was handled when this program started.
pub fn sigpipe() -> libc::sighandler_t {
    disposition(&SIGPIPE_WAS_IGNORED)
}

/// How SIGXFSZ was.
pub fn sigxfsz() -> libc::sighandler_t {
    disposition(&SIGXFSZ_WAS_IGNORED)
}

/// Closes what was closed when this program started. For the forked child: async-signal-safe.
pub fn close_again() {
    let closed = CLOSED.load(Ordering::Relaxed);
    for descriptor in (0..3).filter(|descriptor| closed >> descriptor & 1 != 0) {
        // SAFETY: close takes a plain number; what it closes is the /dev/null of Rust's runtime, which
        // nothing uses between fork and exec.
        unsafe { libc::close(descriptor) };
    }
}

/// Where the kernel put our arguments, which `/proc/PID/cmdline` shows: up to the command, that is.
#[derive(Clone, Copy, Debug)]
pub struct Title {
    start: *mut u8,
    /// Without the zero before the command.
    bytes: usize,
}

/// The last so many of our arguments, as the loader has them.
pub fn command(words: usize) -> Option<&'static [*const c_char]> {
    let (arguments, count) = arguments()?;
    let command = count.checked_sub(words).filter(|command| *command > 0 && words > 0)?;
    // SAFETY: the loader's array of so many pointers, which lives as long as the process.
    Some(unsafe {
        std::slice::from_raw_parts(arguments.add(command).cast::<*const c_char>().cast_const(), words)
    })
}

fn arguments() -> Option<(*mut *mut c_char, usize)> {
    let arguments = ARGUMENTS.load(Ordering::Relaxed);
    let count = usize::try_from(ARGUMENTS_COUNT.load(Ordering::Relaxed)).ok()?;
    (!arguments.is_null() && count > 0).then_some((arguments, count))
}

/// The title of a process that was started by way of the loader: from what lies before our first argument, which the
/// loader took for itself, up to the argument behind the one of that number.
pub fn title_before(number: usize, loaders: &[u8]) -> Option<Title> {
    let (arguments, count) = arguments()?;
    if count <= number + 1 {
        return None;
    }
    // SAFETY: the loader's array of so many pointers to C strings, which live as long as the process. What lies before
    // the first is compared before it is believed; the kernel put the file's name there at least.
    unsafe {
        // The kernel puts one behind the other; what something else put in its place lies elsewhere.
        let follows = |number: usize| {
            let text = *arguments.add(number);
            text.add(libc::strlen(text) + 1) == *arguments.add(number + 1)
        };
        let start = (*arguments).cast::<u8>().sub(loaders.len());
        if !(0..=number).all(follows) || std::slice::from_raw_parts(start, loaders.len()) != loaders {
            return None;
        }
        let bytes = (*arguments.add(number + 1)).cast::<u8>().offset_from(start);
        // Without the zero before the command.
        Some(Title { start, bytes: usize::try_from(bytes).ok()?.checked_sub(1)? })
    }
}

impl Title {
    /// Shows `text` in place of what is before the command. Async-signal-safe.
    ///
    /// # Safety
    /// In a process of its own, with one thread: nobody else reads the arguments meanwhile.
    pub unsafe fn replace_before_command(self, text: &[u8]) {
        for (place, byte) in text.iter().copied().chain(std::iter::repeat(b' ')).take(self.bytes).enumerate()
        {
            // SAFETY: inside of what `title` measured, which is writable memory of the stack.
            unsafe { *self.start.add(place) = byte };
        }
    }
}
