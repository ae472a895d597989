//! With `GPUTRACE_SIM_FLUSHES_ALONE=on` the process aborts (SIGABRT) if a flush overlaps with a driver call
//! for which CUPTI makes callbacks. The real CUPTI 13.0 to 13.5 crashes only sometimes in that case.

use gputrace_sim::settings::settings;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

static CALLS: AtomicI32 = AtomicI32::new(0);
static IS_FLUSHED: AtomicBool = AtomicBool::new(false);

/// Added to each flush, so that a program that calls all the time would make a call during it.
const LONGER: Duration = Duration::from_micros(500);

/// A call begins (0) or ends (1).
pub fn at_call(site: u32) {
    if !settings().flushes_alone {
        return;
    }
    CALLS.fetch_add(if site == 0 { 1 } else { -1 }, Ordering::SeqCst);
    if IS_FLUSHED.load(Ordering::SeqCst) {
        die("a call began or ended during a flush");
    }
}

pub fn flushed<R>(flush: impl FnOnce() -> R) -> R {
    if !settings().flushes_alone {
        return flush();
    }
    IS_FLUSHED.store(true, Ordering::SeqCst);
    if CALLS.load(Ordering::SeqCst) > 0 {
        die("a flush began during a call");
    }
    std::thread::sleep(LONGER);
    let result = flush();
    IS_FLUSHED.store(false, Ordering::SeqCst);
    result
}

fn die(why: &str) -> ! {
    eprintln!("libcupti: {why}");
    std::process::abort();
}
