//! The control block: what the collector asks of the producer while the program runs.
//!
//! The collector writes it, the producer's service thread reads it a few times a second. A
//! hostile collector can at worst turn tracing off or on.

use crate::atomic::{AtomicU32, AtomicU64};

/// One cache line, at [`crate::segment::CONTROL_OFFSET`].
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Control {
    /// One of [`mode`].
    pub mode: AtomicU32,
    /// Raised by the collector after a change of any other field.
    pub sequence: AtomicU32,
    /// Device-time windows: on for this long in every period; 0 means always on.
    pub window_us: AtomicU32,
    pub period_us: AtomicU32,
    /// Share of run time that tracing may cost, in parts per million; 0 means no limit.
    pub budget_ppm: AtomicU32,
    /// Raised by the collector to ask for a flush; the producer answers in `flushed`.
    pub flush: AtomicU32,
    pub flushed: AtomicU32,
    reserved: AtomicU32,
    /// CLOCK_MONOTONIC of the collector's last look, so that a producer can tell it is gone.
    pub heartbeat_ns: AtomicU64,
}

/// What to record.
pub mod mode {
    /// As the options said at the start.
    pub const DEFAULT: u32 = 0;
    pub const STOPPED: u32 = 1;
    pub const HOOKS: u32 = 2;
    pub const FULL: u32 = 3;
}

#[cfg(not(loom))]
const _: () = assert!(core::mem::size_of::<Control>() == 64);
