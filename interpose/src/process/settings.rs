//! The GPUTRACE_… variables that this library reads. The program's option table documents them and warns
//! about unknown ones. `rank` reads the launchers' variables through this file.

use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use gputrace_wire::budget::Budget;

use crate::process::environment;

/// The session socket's path; set by `gputrace run`.
pub const SESSION: &CStr = c"GPUTRACE_SESSION";
/// A [`gputrace_wire::windows::DeviceTimesMode`].
pub const DEVICE_TIMES: &CStr = c"GPUTRACE_DEVICE_TIMES";
/// The most that tracing may cost: a [`gputrace_wire::budget::Budget`].
pub const BUDGET: &CStr = c"GPUTRACE_BUDGET";
/// `node`, `graph` or `auto`: how launches of graphs are timed.
pub const GRAPH_TIMES: &CStr = c"GPUTRACE_GRAPH_TIMES";
/// `steady` or `full`: when CUPTI is made to deliver.
pub const DELIVERY: &CStr = c"GPUTRACE_DELIVERY";
/// The libcupti to load, if none is loaded yet.
pub const CUPTI: &CStr = c"GPUTRACE_CUPTI";
/// The collector program for auto-collect; otherwise the `gputrace` beside this library.
pub const COLLECTOR: &CStr = c"GPUTRACE_COLLECTOR";
/// `on`: only the program's name of a command line is recorded.
pub const REDACT: &CStr = c"GPUTRACE_REDACT";
/// `drop` or `wait`: what a thread does if its ring is full.
pub const ON_FULL: &CStr = c"GPUTRACE_ON_FULL";
/// `python`, `native`, `nvtx`, several with commas, or `none`: the frames recorded of a call.
pub const STACKS: &CStr = c"GPUTRACE_STACKS";
/// `on`: PyTorch's operators are frames.
pub const TORCH_OPS: &CStr = c"GPUTRACE_TORCH_OPS";
/// `blocks`: the blocks of caching allocators are recorded too.
pub const MEMORY: &CStr = c"GPUTRACE_MEMORY";
/// `on`: the session begins paused.
pub const START_PAUSED: &CStr = c"GPUTRACE_START_PAUSED";
/// Set: the session begins paused, and the collector starts it.
pub const DELAY: &CStr = c"GPUTRACE_DELAY";
/// What begins and ends the part that is recorded: a [`gputrace_wire::capture_range::CaptureRange`].
pub const CAPTURE_RANGE: &CStr = c"GPUTRACE_CAPTURE_RANGE";
/// A [`gputrace_wire::capture_range::CaptureRangeEnd`].
pub const CAPTURE_RANGE_END: &CStr = c"GPUTRACE_CAPTURE_RANGE_END";
/// `off` turns the library off altogether.
pub const ENABLED: &CStr = c"GPUTRACE";

/// Enough for all variables with paths of usual length. A variable that does not fit is not remembered.
const REMEMBERED_BYTES: usize = 4096;

/// Our variables at load, `NAME=value` and a NUL each. A program that clears its environment (`clearenv`)
/// before it uses CUDA still belongs to the session that it was started for.
struct Remembered {
    entries: UnsafeCell<[u8; REMEMBERED_BYTES]>,
    /// Number of valid bytes in `entries`; written last, and once.
    length: AtomicUsize,
}

// SAFETY: `entries` is written once, by `remember`, before the Release store of `length`. The Acquire load
// in `entries()` pairs with that store, and `entries` is only read from then on.
unsafe impl Sync for Remembered {}

static REMEMBERED: Remembered =
    Remembered { entries: UnsafeCell::new([0; REMEMBERED_BYTES]), length: AtomicUsize::new(0) };

/// Called at load: stores our variables. Calls no other function.
pub fn remember() {
    // SAFETY: the loader runs this once. Constructors of other libraries may have started threads, but no
    // thread makes a reference to `entries` while `length` is 0.
    let buffer = unsafe { &mut *REMEMBERED.entries.get() };
    let mut length = 0;
    for entry in environment::entries() {
        // SAFETY: a C string of the environment's.
        let text = unsafe { CStr::from_ptr(entry) }.to_bytes_with_nul();
        if text.starts_with(b"GPUTRACE")
            && let Some(target) = buffer.get_mut(length..length + text.len())
        {
            target.copy_from_slice(text);
            length += text.len();
        }
    }
    REMEMBERED.length.store(length, Ordering::Release);
}

/// The variable's value at load.
fn remembered(name: &CStr) -> Option<&'static CStr> {
    let length = REMEMBERED.length.load(Ordering::Acquire);
    if length == 0 {
        return None;
    }
    // SAFETY: so many bytes were written before the length was, and no thread writes them again.
    let entries = unsafe { &*REMEMBERED.entries.get() }.get(..length)?;
    entries.split_inclusive(|byte| *byte == 0).find_map(|entry| {
        let value = entry.strip_prefix(name.to_bytes())?.strip_prefix(b"=")?;
        CStr::from_bytes_with_nul(value).ok()
    })
}

/// Whether `GPUTRACE=off` was in the environment when the process began. If so, nothing is prepared,
/// look-ups return the real functions, and direct calls of our exports go straight to the driver.
pub fn is_turned_off() -> bool {
    const UNKNOWN: u8 = 0;
    const ON: u8 = 1;
    const OFF: u8 = 2;
    static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);
    match KNOWN.load(Ordering::Relaxed) {
        UNKNOWN => {
            let is_off = is_off(ENABLED);
            // The C library has not set up the environment yet, so the answer is not known.
            if environment::entries().next().is_some() {
                KNOWN.store(if is_off { OFF } else { ON }, Ordering::Relaxed);
            }
            is_off
        }
        known => known == OFF,
    }
}

/// The variable's value, or its value at load if the program removed it since. `None` if unset or empty.
pub fn get(name: &CStr) -> Option<&'static CStr> {
    environment::value(name).or_else(|| remembered(name)).filter(|value| !value.is_empty())
}

/// A budget that makes no sense is as if there were none, as the command line warns.
pub fn budget() -> Option<Budget> {
    Budget::parse(get(BUDGET)?.to_str().ok()?).ok().flatten()
}

/// The sources of frames that are asked for, if the variable says which. One that makes no sense is as if
/// unset, as the command line warns.
fn stacks() -> Option<&'static [u8]> {
    let value = get(STACKS)?.to_bytes();
    let is_known = |word: &[u8]| matches!(word.trim_ascii(), b"python" | b"native" | b"nvtx" | b"none");
    value.split(|byte| *byte == b',').all(is_known).then_some(value)
}

/// Whether a source of frames is asked for by its word.
pub fn asks_for_stacks(source: &[u8], default: bool) -> bool {
    stacks().map_or(default, |list| list.split(|byte| *byte == b',').any(|word| word.trim_ascii() == source))
}

/// Whether the variable's value is `off` (or `0`, `no`, `false`).
pub fn is_off(name: &CStr) -> bool {
    get(name).is_some_and(|value| matches!(value.to_bytes(), b"off" | b"0" | b"no" | b"false"))
}
