//! The virtual clock of all simulated devices.
//!
//! It runs with the host's CLOCK_MONOTONIC. Where waiting is switched off
//! (`GPUTRACE_SIM_PACE=off`) a wait moves the clock forward instead, so virtual
//! time then runs ahead of the host's and never goes back.

use crate::settings::settings;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// How far virtual time runs ahead of the host's, in ns. Only grows.
static AHEAD_NS: AtomicU64 = AtomicU64::new(0);

/// Below this, a wait spins: the kernel's timers are not finer than some 60 µs.
const SPIN_NS: u64 = 80_000;

fn read_clock(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec of this frame; the clock ids used here always exist on Linux.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The host's CLOCK_MONOTONIC in ns.
pub fn host_now_ns() -> u64 {
    read_clock(libc::CLOCK_MONOTONIC)
}

/// Virtual time in ns.
pub fn now_ns() -> u64 {
    host_now_ns() + AHEAD_NS.load(Ordering::Relaxed)
}

/// What has to be added to virtual time to get the time of day, fixed at first use.
pub fn time_of_day_offset_ns() -> u64 {
    static OFFSET_NS: OnceLock<u64> = OnceLock::new();
    *OFFSET_NS.get_or_init(|| read_clock(libc::CLOCK_REALTIME).wrapping_sub(host_now_ns()))
}

/// Moves virtual time forward to `at_ns`, if it is not there yet.
pub fn jump_to(at_ns: u64) {
    let wanted = at_ns.saturating_sub(host_now_ns());
    AHEAD_NS.fetch_max(wanted, Ordering::Relaxed);
}

/// Returns when virtual time has reached `at_ns`.
pub fn wait_until(at_ns: u64) {
    if !settings().paced {
        return jump_to(at_ns);
    }
    loop {
        let now = now_ns();
        if now >= at_ns {
            return;
        }
        let left = at_ns - now;
        if left > SPIN_NS {
            std::thread::sleep(std::time::Duration::from_nanos(left - SPIN_NS));
        } else {
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_reaches_the_time() {
        let at = now_ns() + 300_000;
        wait_until(at);
        assert!(now_ns() >= at);
    }
}
