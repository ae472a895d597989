//! What runs when the library is loaded.

use gputrace_producer::{stderr, thread};

use crate::lifecycle::before_exit;
use crate::nvtx;
use crate::process::{preload_once, settings};
use crate::resolve::look_up;

/// Only steps that must be early and cost nothing.
#[ctor::ctor(unsafe)]
fn loaded() {
    preload_once::forget();
    settings::remember();
    // The program calls our `dlsym`, `_exit` and the like even when tracing is turned off.
    look_up::prepare();
    before_exit::prepare();
    if settings::is_turned_off() {
        return;
    }
    thread::prepare();
    stderr::remember();
    nvtx::prepare();
}
