//! The GPUTRACE_… variables that this library reads. Their documentation is the program's option
//! table; unknown ones are warned about there. `rank` reads the launchers' variables by way of here.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU8, Ordering};

use crate::environment;

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

/// Whether `GPUTRACE=off` was in the environment when the process began. Then nothing is prepared, looked up
/// names get the real functions, and what the program links to us goes straight on to the driver.
pub fn is_turned_off() -> bool {
    const UNKNOWN: u8 = 0;
    const ON: u8 = 1;
    const OFF: u8 = 2;
    static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);
    match KNOWN.load(Ordering::Relaxed) {
        UNKNOWN => {
            let is_off = is_off(ENABLED);
            // Before the C library has set the environment up, nobody knows yet.
            if environment::entries().next().is_some() {
                KNOWN.store(if is_off { OFF } else { ON }, Ordering::Relaxed);
            }
            is_off
        }
        known => known == OFF,
    }
}

/// The variable's value; `None` where it is unset or empty.
pub fn get(name: &CStr) -> Option<&'static CStr> {
    environment::value(name).filter(|value| !value.is_empty())
}

/// Whether a variable says `off` (or `0`, `no`, `false`).
pub fn is_off(name: &CStr) -> bool {
    get(name).is_some_and(|value| matches!(value.to_bytes(), b"off" | b"0" | b"no" | b"false"))
}
