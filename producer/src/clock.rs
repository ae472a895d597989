//! Ticks: the cheapest clock that can be trusted, and readings of all clocks at one moment.
//!
//! Measured on an H200 machine: a hook pays 30–60 ns with two `clock_gettime` calls; the
//! time-stamp counter saves more than half of it. It is used only where the processor says
//! that it is invariant (constant rate, running in all sleep states).

use core::sync::atomic::{AtomicU32, Ordering};

use gputrace_wire::clock::{Anchor, tick};

static KIND: AtomicU32 = AtomicU32::new(0);

/// Which clock [`now`] reads; decided once.
pub fn kind() -> u32 {
    match KIND.load(Ordering::Relaxed) {
        0 => {
            let kind = if has_invariant_tsc() { tick::INVARIANT_TSC } else { tick::MONOTONIC_NS };
            KIND.store(kind, Ordering::Relaxed);
            kind
        }
        kind => kind,
    }
}

/// The current tick.
#[inline(always)]
pub fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    if KIND.load(Ordering::Relaxed) == tick::INVARIANT_TSC {
        // SAFETY: RDTSC has no preconditions; the kind says that its rate is constant.
        return unsafe { core::arch::x86_64::_rdtsc() };
    }
    monotonic_ns()
}

#[cfg(target_arch = "x86_64")]
fn has_invariant_tsc() -> bool {
    use core::arch::x86_64::__cpuid;
    __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & (1 << 8) != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn has_invariant_tsc() -> bool {
    false
}

pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

pub fn realtime_ns() -> u64 {
    read(libc::CLOCK_REALTIME)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live timespec. It cannot fail for these clocks.
    unsafe { libc::clock_gettime(clock, &mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// The tick rate as well as a third of a millisecond tells: about 1 in 5 000. The collector
/// replaces it as soon as two anchors are known.
pub fn measure_ticks_per_second() -> u64 {
    if kind() == tick::MONOTONIC_NS {
        return 1_000_000_000;
    }
    let (start_ns, start) = (monotonic_ns(), now());
    loop {
        let (end_ns, end) = (monotonic_ns(), now());
        let elapsed = end_ns.saturating_sub(start_ns);
        if elapsed >= 300_000 {
            let rate = u128::from(end.wrapping_sub(start)) * 1_000_000_000 / u128::from(elapsed);
            return u64::try_from(rate).unwrap_or(1_000_000_000).max(1);
        }
        core::hint::spin_loop();
    }
}

/// Reads all clocks at one moment, as nearly as three tries can.
pub fn anchor(device_clock: Option<fn() -> u64>, epoch: u32) -> Anchor {
    let mut best = Anchor { spread_ticks: u32::MAX, ..Anchor::default() };
    for _ in 0..3 {
        let before = now();
        let monotonic_ns = monotonic_ns();
        let device_ns = device_clock.map_or(0, |clock| clock());
        let after_device = now();
        let monotonic_after = self::monotonic_ns();
        let realtime_ns = realtime_ns();
        let after = now();
        let spread = u32::try_from(after.wrapping_sub(before)).unwrap_or(u32::MAX);
        if spread < best.spread_ticks {
            // Each clock is put at the middle of the readings around it.
            let device_gap = monotonic_after.saturating_sub(monotonic_ns) / 2;
            best = Anchor {
                ticks: before.wrapping_add(after_device.wrapping_sub(before) / 2),
                monotonic_ns: monotonic_ns.wrapping_add(device_gap),
                realtime_ns: realtime_ns.wrapping_sub(device_gap),
                device_ns,
                spread_ticks: spread,
                epoch,
            };
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_run_at_the_measured_rate() {
        kind();
        let rate = measure_ticks_per_second();
        let (t0, n0) = (now(), monotonic_ns());
        std::thread::sleep(std::time::Duration::from_millis(30));
        let (t1, n1) = (now(), monotonic_ns());
        let seconds = (n1 - n0) as f64 / 1e9;
        let ratio = (t1 - t0) as f64 / (rate as f64 * seconds);
        assert!((0.99..1.01).contains(&ratio), "{ratio}");
    }

    #[test]
    fn anchors_advance_together() {
        kind();
        let first = anchor(Some(monotonic_ns), 1);
        std::thread::sleep(std::time::Duration::from_millis(5));
        let second = anchor(None, 1);
        assert!(first.device_ns.abs_diff(first.monotonic_ns) < 5_000_000);
        assert!(second.ticks > first.ticks && second.monotonic_ns > first.monotonic_ns);
        assert_eq!(second.device_ns, 0);
    }
}
