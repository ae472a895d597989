//! The control block: what the collector asks of the producer while the program runs.
//!
//! The collector writes it, the producer's service thread looks at `flush` at each turn, and who
//! waits for a collector to make room looks at the heartbeat. A hostile collector can at worst have
//! it ask for nothing, twenty times a second.

use crate::atomic::{AtomicU32, AtomicU64};

/// One cache line, at [`crate::segment::CONTROL_OFFSET`].
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Control {
    reserved: [AtomicU32; 5],
    /// Raised by the collector, or by a thread of the program before an exec, to ask for what device
    /// libraries hold; the producer answers in `flushed` once it has asked them.
    pub flush: AtomicU32,
    pub flushed: AtomicU32,
    reserved2: AtomicU32,
    /// CLOCK_MONOTONIC of the collector's last look, so that a producer can tell it is gone.
    pub heartbeat_ns: AtomicU64,
}

#[cfg(not(loom))]
const _: () = assert!(core::mem::size_of::<Control>() == 64);
