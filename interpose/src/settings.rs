//! The GPUTRACE_… variables that this library reads. Their documentation is the program's option
//! table; unknown ones are warned about there. `rank` reads the launchers' variables by way of here.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicUsize, Ordering};

/// The session socket's path; set by `gputrace run`.
pub const SESSION: &CStr = c"GPUTRACE_SESSION";
/// `full` or `off`.
pub const DEVICE_TIMES: &CStr = c"GPUTRACE_DEVICE_TIMES";
/// `node`, `graph` or `auto`: how launches of graphs are timed.
pub const GRAPH_TIMES: &CStr = c"GPUTRACE_GRAPH_TIMES";
/// `steady` or `full`: when CUPTI is made to deliver.
pub const DELIVERY: &CStr = c"GPUTRACE_DELIVERY";
/// Which libcupti to load, where none is loaded yet.
pub const CUPTI: &CStr = c"GPUTRACE_CUPTI";
/// The program that collects in bare use; otherwise the `gputrace` beside this library.
pub const COLLECTOR: &CStr = c"GPUTRACE_COLLECTOR";
/// `on`: of a command line only the program is told.
pub const REDACT: &CStr = c"GPUTRACE_REDACT";
/// `drop` or `wait`: what a thread does whose ring is full.
pub const ON_FULL: &CStr = c"GPUTRACE_ON_FULL";
/// `python`, `native`, `nvtx`, several with commas, or `none`: whose frames are told of a call.
pub const STACKS: &CStr = c"GPUTRACE_STACKS";
/// `on`: PyTorch's operators are frames.
pub const TORCH_OPS: &CStr = c"GPUTRACE_TORCH_OPS";
/// `off` turns the library off altogether.
pub const ENABLED: &CStr = c"GPUTRACE";

/// Enough for all of them with paths as long as they usually are; a variable that does not fit is not
/// remembered.
const REMEMBERED_BYTES: usize = 4096;

/// Our variables as they were at load, `NAME=value` and a zero each: a program that clears its environment
/// (`clearenv`) before it uses CUDA still belongs to the session that it was started for.
struct Remembered {
    entries: UnsafeCell<[u8; REMEMBERED_BYTES]>,
    /// Bytes of `entries` that are written; written last, and once.
    length: AtomicUsize,
}

// SAFETY: `entries` is written once, by `remember`, before `length` says so (Release, which the Acquire in
// `entries()` pairs with), and only read from then on.
unsafe impl Sync for Remembered {}

static REMEMBERED: Remembered =
    Remembered { entries: UnsafeCell::new([0; REMEMBERED_BYTES]), length: AtomicUsize::new(0) };

/// At load, on the only thread there is: remembers our variables. Calls nothing.
pub fn remember() {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: the loader runs this once, before the program's threads, and nobody reads `entries` while
    // `length` is 0. `environ` is the C library's array of C strings, null-terminated, which nobody else
    // changes meanwhile.
    unsafe {
        let room = &mut *REMEMBERED.entries.get();
        let mut length = 0;
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            let text = CStr::from_ptr(*entry).to_bytes_with_nul();
            if text.starts_with(b"GPUTRACE")
                && let Some(place) = room.get_mut(length..length + text.len())
            {
                place.copy_from_slice(text);
                length += text.len();
            }
            entry = entry.add(1);
        }
        REMEMBERED.length.store(length, Ordering::Release);
    }
}

/// The variable's value at load.
fn remembered(name: &CStr) -> Option<&'static CStr> {
    let length = REMEMBERED.length.load(Ordering::Acquire);
    // SAFETY: so many bytes were written before the length was, and nobody writes them again.
    let entries = unsafe { &*REMEMBERED.entries.get() }.get(..length)?;
    entries.split_inclusive(|byte| *byte == 0).find_map(|entry| {
        let value = entry.strip_prefix(name.to_bytes())?.strip_prefix(b"=")?;
        CStr::from_bytes_with_nul(value).ok()
    })
}

/// The variable's value, as it was at load if the program took it away since; `None` where it is unset or
/// empty.
pub fn get(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: the name is a C string. The result lives until the program changes that variable,
    // which it has no reason to. No thread of ours reads: each read is on a thread of the program's,
    // at load, inside its cuInit or inside a call of a tool's interface, and races with a setenv
    // on another as any getenv there would.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return remembered(name).filter(|value| !value.is_empty());
    }
    // SAFETY: getenv returns a C string.
    Some(unsafe { CStr::from_ptr(value) }).filter(|value| !value.is_empty())
}

/// Whether a variable says `off` (or `0`, `no`, `false`).
pub fn is_off(name: &CStr) -> bool {
    get(name).is_some_and(|value| matches!(value.to_bytes(), b"off" | b"0" | b"no" | b"false"))
}
