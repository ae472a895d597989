//! Stream captures: whether a call's work is executed or becomes a graph's.

use core::sync::atomic::{AtomicU32, Ordering};

use gputrace_producer::fork;
use gputrace_producer::stderr::KeepErrno;

use crate::symbols::driver::{self, Handle, SUCCESS};

/// Number of stream captures under way in the process. While it is 0, no launch asks whether its stream
/// is capturing. With a count that is too high, launches take the longer way of all other calls, with one
/// look-up each, and none is only counted.
#[inline(always)]
fn captures() -> &'static AtomicU32 {
    &fork::of_process().vendor_count
}

pub fn begins() {
    captures().fetch_add(1, Ordering::Relaxed);
}

pub fn ends() {
    let _ = captures().fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1));
}

/// Whether any capture is under way.
#[inline(always)]
pub fn are_any() -> bool {
    captures().load(Ordering::Relaxed) > 0
}

/// Whether the work that a call put on the stream went into a capture.
#[inline(always)]
pub fn takes(stream: Handle, per_thread: bool) -> bool {
    are_any() && is_capturing(stream, per_thread)
}

/// Whether the stream is capturing. The legacy default stream cannot be captured, and
/// querying it during another stream's capture is itself an error.
#[cold]
fn is_capturing(stream: Handle, per_thread: bool) -> bool {
    let _errno = KeepErrno::new();
    let mut status = 0;
    let asked = match (stream as usize, per_thread) {
        (0, false) | (1, _) => return false,
        (_, true) => driver::stream_is_capturing_per_thread(stream, &mut status),
        (_, false) => driver::stream_is_capturing(stream, &mut status),
    };
    // 1 is CU_STREAM_CAPTURE_STATUS_ACTIVE.
    asked == Some(SUCCESS) && status == 1
}
