//! The control block: what the collector asks of the producer while the program runs.
//!
//! The collector writes `heartbeat_ns`, `recording_wanted` and `settings_wanted`, and raises `flush`; a
//! thread of the program may raise `flush` too, and the producer stores the other words. The service thread
//! reads the orders at each turn, and a thread that waits for space in its ring reads the heartbeat. A
//! hostile collector can at worst cause a flush, a pause, a start or a change of settings without need,
//! twenty times a second.

use crate::atomic::{AtomicU32, AtomicU64};

/// One cache line, at [`crate::segment::CONTROL_OFFSET`].
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Control {
    reserved: AtomicU32,
    /// What the process does with its calls now, and why: a [`crate::reported::Reported`].
    pub recording_now: AtomicU32,
    /// The settings that the collector wants: a number that grows with each change, times 256, plus a
    /// [`crate::run_settings::RunSettings`]. 0: as the process was started.
    pub settings_wanted: AtomicU32,
    /// The last `settings_wanted` that the service thread has put into effect, as far as the process can.
    pub settings_done: AtomicU32,
    /// The settings in force; 0 until they are known.
    pub settings_now: AtomicU32,
    /// Raised to ask for the records that device libraries hold: by the collector, or by a thread of the
    /// program before an exec. The producer stores the number in `flushed` once it has flushed them.
    pub flush: AtomicU32,
    pub flushed: AtomicU32,
    /// Set to 1 by the producer once the last of its capture ranges has ended.
    pub capture_over: AtomicU32,
    /// CLOCK_MONOTONIC of the collector's last reading of the rings, so that a producer can detect that the
    /// collector is gone.
    pub heartbeat_ns: AtomicU64,
    /// Whether the session records, as the collector wants it: a number that grows with each change, times
    /// two, plus 1 to pause. 0: as the process was started.
    pub recording_wanted: AtomicU32,
    /// The last `recording_wanted` that the service thread has put into effect.
    pub recording_done: AtomicU32,
}

#[cfg(not(loom))]
const _: () = assert!(core::mem::size_of::<Control>() == 64);
