//! The thread that hands finished buffers back to the client.

use crate::buffers::{Buffer, Buffers};
use crate::driver::driver;
use crate::result::{CuptiResult, INVALID_OPERATION, NOT_INITIALIZED};
use crate::state::{self, CHANGED};
use std::cell::Cell;
use std::ffi::c_void;
use std::time::{Duration, Instant};

thread_local! {
    static IS_DELIVERING: Cell<bool> = const { Cell::new(false) };
}

/// How often the thread checks whether the operations of a full buffer have ended.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Starts the thread if there is none. It calls the C library's pthread_create, not Rust's `std::thread`:
/// that one calls dlsym, which clears a dlerror message that the launching thread may not have read yet.
pub fn start(buffers: &mut Buffers) {
    if buffers.delivers {
        return;
    }
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are memory of this frame; each is initialised by the call before it is read.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
    }
    // Restore errno, also if the thread cannot be started: the caller made a launch, which leaves errno
    // alone.
    // SAFETY: the pointer is to this thread's errno; `before` was initialised by the call above; the thread
    // gets no argument and is never joined.
    unsafe {
        let errno = *libc::__errno_location();
        let mut thread = 0;
        let (attributes, argument) = (std::ptr::null(), std::ptr::null_mut());
        buffers.delivers = libc::pthread_create(&raw mut thread, attributes, deliver, argument) == 0;
        *libc::__errno_location() = errno;
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
    }
}

extern "C" fn deliver(_: *mut c_void) -> *mut c_void {
    // SAFETY: the name is a C string within the length limit, and the thread is the calling one.
    unsafe { libc::pthread_setname_np(libc::pthread_self(), c"cupti-sim".as_ptr()) };
    IS_DELIVERING.set(true);
    let mut last_period = Instant::now();
    let mut state = state::lock();
    loop {
        let now_ns = driver().map_or(0, |driver| (driver.now_ns)());
        let buffers = &mut state.buffers;
        let period = Duration::from_millis(buffers.period_ms.into());
        let period_is_over = buffers.period_ms > 0 && last_period.elapsed() >= period;
        if period_is_over {
            last_period = Instant::now();
        }
        let (asked, forced) = (buffers.asked, buffers.forced);
        let flush = asked > buffers.done;
        let finished = buffers.take_finished(now_ns, flush || period_is_over, flush && forced);
        let complete = buffers.complete;
        if !finished.is_empty() {
            drop(state);
            for buffer in finished {
                let Buffer { base, bytes, used, .. } = buffer;
                if let Some(complete) = complete {
                    complete(std::ptr::null_mut(), 0, base, bytes, used);
                }
            }
            state = state::lock();
        }
        if flush {
            let buffers = &mut state.buffers;
            buffers.done = asked;
            if buffers.asked == asked {
                buffers.forced = false;
            }
            CHANGED.notify_all();
        }
        if state.buffers.asked > state.buffers.done {
            continue;
        }
        let pause = match (state.buffers.full.is_empty(), state.buffers.period_ms) {
            (false, _) => Some(LOOK_AGAIN),
            (true, 0) => None,
            (true, _) => Some(period.saturating_sub(last_period.elapsed()).max(LOOK_AGAIN)),
        };
        state = match pause {
            None => CHANGED.wait(state),
            Some(pause) => CHANGED.wait_timeout(state, pause),
        };
    }
}

/// Waits until the thread has handed back every buffer whose operations have ended; with `forced`, every
/// buffer.
pub fn flush(forced: bool) -> CuptiResult {
    if !(driver()?.initialised)() {
        return Err(NOT_INITIALIZED);
    }
    if IS_DELIVERING.get() {
        return Err(INVALID_OPERATION);
    }
    let mut state = state::lock();
    if !state.buffers.delivers {
        return Ok(());
    }
    state.buffers.asked += 1;
    state.buffers.forced |= forced;
    let ticket = state.buffers.asked;
    CHANGED.notify_all();
    while state.buffers.done < ticket {
        state = CHANGED.wait(state);
    }
    Ok(())
}
