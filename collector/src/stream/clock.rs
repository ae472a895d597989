//! The recorder's clocks.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds on CLOCK_MONOTONIC, the clock that all times are put on.
pub fn monotonic_ns() -> u64 {
    to_ns(clock_gettime(ClockId::Monotonic))
}

pub fn realtime_ns() -> u64 {
    to_ns(clock_gettime(ClockId::Realtime))
}

fn to_ns(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}
