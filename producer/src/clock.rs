//! Ticks, the cheapest clock that can be trusted, and readings of all clocks at one moment.
//!
//! Measured on an H200 machine: a hook pays 30–60 ns with two `clock_gettime` calls; the time-stamp counter
//! saves more than half of it. The counter is used only if the processor reports it as invariant (constant
//! rate, running in all sleep states) and the kernel uses it too: the kernel compares the counters of all
//! sockets and stops using them when they drift apart.

use crate::fork;
use crate::system;
use core::ffi::CStr;
use core::sync::atomic::Ordering;

use gputrace_wire::clock::{Anchor, tick};

/// The clock that the kernel keeps its own time by.
const CLOCKSOURCE: &CStr = c"/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Which clock [`now`] reads. Decided once, at the first session's start, because the decision reads a
/// file.
pub fn kind() -> u32 {
    let known = &fork::of_process().clock_kind;
    match known.load(Ordering::Relaxed) {
        0 => {
            let kind = if has_invariant_tsc() && kernel_trusts_tsc(CLOCKSOURCE) {
                tick::INVARIANT_TSC
            } else {
                tick::MONOTONIC_NS
            };
            known.store(kind, Ordering::Relaxed);
            kind
        }
        kind => kind,
    }
}

/// The current tick.
#[inline(always)]
pub fn now() -> u64 {
    Clock::of_process().now()
}

/// The clock that the process's ticks are read from, for code that reads it more than once.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    has_counter: bool,
}

impl Clock {
    #[inline(always)]
    pub fn of_process() -> Clock {
        Clock { has_counter: has_counter() }
    }

    /// Whether it is the processor's counter.
    #[inline(always)]
    pub fn has_counter(self) -> bool {
        self.has_counter
    }

    /// The current tick.
    #[inline(always)]
    pub fn now(self) -> u64 {
        #[cfg(target_arch = "x86_64")]
        if self.has_counter {
            return counter();
        }
        without_counter()
    }

    /// The current tick if `is_read`, else 0. What follows is the same code either way, so that a hook that
    /// is measured finds in the caches what any other hook finds there.
    #[inline(always)]
    pub fn now_if(self, is_read: bool) -> u64 {
        #[cfg(target_arch = "x86_64")]
        if self.has_counter {
            return counter_if(is_read);
        }
        without_counter_if(is_read)
    }
}

#[cold]
#[inline(never)]
fn without_counter_if(is_read: bool) -> u64 {
    if is_read { without_counter() } else { 0 }
}

/// Whether ticks are known to be those of the processor's counter.
#[inline(always)]
pub fn has_counter() -> bool {
    fork::of_process().clock_kind.load(Ordering::Relaxed) == tick::INVARIANT_TSC
}

/// [`now`], to be called only if [`has_counter`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn counter() -> u64 {
    // SAFETY: RDTSC has no preconditions; the kind says that its rate is constant.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// [`Clock::now_if`], likewise.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn counter_if(is_read: bool) -> u64 {
    counter_if_zero(u32::from(!is_read))
}

/// [`Clock::now_if`] the word is 0, likewise.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn counter_if_zero(word: u32) -> u64 {
    let ticks;
    // SAFETY: as in `counter`.
    unsafe {
        core::arch::asm!(
            "test {word:e}, {word:e}",
            "jnz 2f",
            "rdtsc",
            "shl rdx, 32",
            "or rax, rdx",
            "2:",
            word = in(reg) word,
            inout("rax") 0u64 => ticks,
            out("rdx") _,
            options(nostack),
        );
    }
    ticks
}

/// The lower half of [`counter`] if the word is 0, else 0; to be called only if [`has_counter`]. Less code
/// than reading the whole counter.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn half_counter_if_zero(word: u32) -> u32 {
    let ticks;
    // SAFETY: as in `counter`.
    unsafe {
        core::arch::asm!(
            "test {word:e}, {word:e}",
            "jnz 2f",
            "rdtsc",
            "2:",
            word = in(reg) word,
            inout("eax") 0u32 => ticks,
            out("edx") _,
            options(nostack),
        );
    }
    ticks
}

/// The latest moment, `now` or earlier, at which the counter had that lower half. `None` if that was more
/// than 2^24 ticks (some milliseconds) ago: the thread was stopped, or has come to a processor whose counter
/// is behind. A stop of about a multiple of 2^32 ticks goes unnoticed.
pub fn when_half_was(half: u32, now: u64) -> Option<u64> {
    let since = (now as u32).wrapping_sub(half);
    if since <= 1 << 24 { now.checked_sub(since.into()) } else { None }
}

#[cold]
#[inline(never)]
fn without_counter() -> u64 {
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

/// Whether the file names `tsc`. The paravirtual clocks (`kvm-clock`, `hyperv_clocksource_tsc_page`) prove
/// nothing about the bare counter, so they are not accepted. If the file cannot be read, the processor's
/// report decides.
fn kernel_trusts_tsc(path: &CStr) -> bool {
    let mut name = [0u8; 64];
    match system::read_file(path, &mut name) {
        Some(name) if !name.is_empty() => name.trim_ascii() == b"tsc",
        _ => true,
    }
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

/// Measures the tick rate over a third of a millisecond, to about 1 in 5 000. The collector replaces it as
/// soon as two anchors are known.
pub fn measure_ticks_per_second() -> u64 {
    if kind() == tick::MONOTONIC_NS {
        return 1_000_000_000;
    }
    rate(now, monotonic_ns, 300_000)
}

/// The ticks per second, measured between two moments that are `apart_ns` apart.
fn rate(mut ticks: impl FnMut() -> u64, mut nanoseconds: impl FnMut() -> u64, apart_ns: u64) -> u64 {
    let (start_ticks, start_ns) = both(&mut ticks, &mut nanoseconds);
    while nanoseconds().saturating_sub(start_ns) < apart_ns {
        core::hint::spin_loop();
    }
    let (end_ticks, end_ns) = both(&mut ticks, &mut nanoseconds);
    let elapsed_ns = end_ns.saturating_sub(start_ns).max(1);
    let rate = u128::from(end_ticks.wrapping_sub(start_ticks)) * 1_000_000_000 / u128::from(elapsed_ns);
    u64::try_from(rate).unwrap_or(1_000_000_000).max(1)
}

/// Reads ticks and nanoseconds at nearly the same moment. A thread that is preempted between two readings
/// gets a wide gap around that try; the try with the narrowest gap is used.
fn both(ticks: &mut impl FnMut() -> u64, nanoseconds: &mut impl FnMut() -> u64) -> (u64, u64) {
    let tries = [(); 5].map(|()| {
        let before = ticks();
        let nanoseconds = nanoseconds();
        let gap = ticks().wrapping_sub(before);
        (gap, before.wrapping_add(gap / 2), nanoseconds)
    });
    let [first, ..] = tries;
    let (_, ticks, nanoseconds) = tries.into_iter().min_by_key(|(gap, ..)| *gap).unwrap_or(first);
    (ticks, nanoseconds)
}

/// Reads all clocks at one moment, as nearly as three tries can.
pub fn anchor(device_clock: Option<fn() -> u64>, epoch: u32) -> Anchor {
    nearest([(); 3].map(|()| read_all(device_clock, epoch)))
}

fn read_all(device_clock: Option<fn() -> u64>, epoch: u32) -> Anchor {
    let before = now();
    let monotonic_ns = monotonic_ns();
    let device_ns = device_clock.map_or(0, |clock| clock());
    let after_device = now();
    let monotonic_after = self::monotonic_ns();
    let realtime_ns = realtime_ns();
    let after = now();
    // Each clock's value is that at the middle of the readings around it.
    let device_gap = monotonic_after.saturating_sub(monotonic_ns) / 2;
    Anchor {
        ticks: before.wrapping_add(after_device.wrapping_sub(before) / 2),
        monotonic_ns: monotonic_ns.wrapping_add(device_gap),
        realtime_ns: realtime_ns.wrapping_sub(device_gap),
        device_ns,
        spread_ticks: u32::try_from(after.wrapping_sub(before)).unwrap_or(u32::MAX),
        epoch,
    }
}

/// The anchor whose readings are closest together. One is always returned, however far apart its readings
/// are: a process can be stopped in the middle of every try.
fn nearest(tries: [Anchor; 3]) -> Anchor {
    let [first, ..] = tries;
    tries.into_iter().min_by_key(|anchor| anchor.spread_ticks).unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_run_at_the_measured_rate() {
        kind();
        let measured = measure_ticks_per_second();
        let longer = rate(now, monotonic_ns, 30_000_000);
        let ratio = longer as f64 / measured as f64;
        assert!((0.99..1.01).contains(&ratio), "{ratio}");
    }

    #[test]
    fn clock_that_is_asked_for_is_the_same_one() {
        for _ in 0..2 {
            let before = now();
            let between = Clock::of_process().now_if(true);
            assert!((before..=now()).contains(&between));
            assert_eq!(Clock::of_process().now_if(false), 0);
            kind();
        }
    }

    #[test]
    fn moment_is_known_by_its_lower_half_for_some_milliseconds() {
        let begin = (7 << 32) - 5;
        for since in [0, 4, 5, 6, 1 << 24] {
            assert_eq!(when_half_was(begin as u32, begin + since), Some(begin), "{since}");
        }
        // A thread that was stopped, and a processor whose counter is behind.
        assert_eq!(when_half_was(begin as u32, begin + (1 << 24) + 1), None);
        assert_eq!(when_half_was(begin as u32, begin + (1 << 31)), None);
        assert_eq!(when_half_was(begin as u32, begin - 1), None);
        assert_eq!(when_half_was(u32::MAX, 3), None);
    }

    /// Two clocks that both read `time`, at 3 ticks a nanosecond. Each reading takes 20 ns, and some are
    /// followed by 10 ms in which another thread had the processor.
    #[test]
    fn preemption_between_two_readings_is_not_in_the_rate() {
        use core::cell::Cell;
        for preempted_at in 0..12u64 {
            let time = Cell::new(1_000u64);
            let readings = Cell::new(0);
            let step = || {
                let before = time.get();
                let paused = if readings.get() % 12 == preempted_at { 10_000_000 } else { 0 };
                readings.set(readings.get() + 1);
                time.set(before + 20 + paused);
                before
            };
            let rate = rate(|| step() * 3, step, 300_000);
            assert!(rate.abs_diff(3_000_000_000) < 3_000_000, "{preempted_at}: {rate}");
        }
    }

    #[test]
    fn anchor_is_a_reading_however_wide() {
        let read = |ticks, spread_ticks| Anchor { ticks, spread_ticks, ..Anchor::default() };
        let wide = nearest([read(1, u32::MAX), read(2, u32::MAX), read(3, u32::MAX)]);
        assert_ne!(wide.ticks, 0, "an anchor that nobody read");
        assert_eq!(nearest([read(1, 70), read(2, 50), read(3, 60)]).ticks, 2);
    }

    #[test]
    fn kernel_must_use_the_counter_too() {
        for (text, expected) in [
            (&b"tsc\n"[..], true),
            (b"kvm-clock\n", false),
            (b"hyperv_clocksource_tsc_page\n", false),
            (b"", true),
        ] {
            // SAFETY: the name is a C string; the descriptor is the test's own.
            let path = unsafe {
                let file = libc::memfd_create(c"clocksource".as_ptr(), libc::MFD_CLOEXEC);
                assert_eq!(libc::write(file, text.as_ptr().cast(), text.len()), text.len() as isize);
                format!("/proc/self/fd/{file}\0")
            };
            let path = CStr::from_bytes_with_nul(path.as_bytes()).unwrap();
            assert_eq!(kernel_trusts_tsc(path), expected, "{text:?}");
        }
        assert!(kernel_trusts_tsc(c"/nonexistent/clocksource"));
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
