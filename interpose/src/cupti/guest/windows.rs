//! The launches during which the guest had the tracer's kinds enabled.
//!
//! The tracer's kinds are always on, so CUPTI makes records that the guest would not get from CUPTI alone.
//! CUPTI decides at the launch whether there will be a record, and correlation ids increase with the
//! launches. So each change of the guest's kinds is a boundary, and the first launch after it gives the
//! boundary its id. For that, a launch pays a load and a compare once a guest was present, and takes no lock.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Number of remembered boundaries. A record comes at most a few deliveries after its launch, and a guest
/// changes its kinds a few times a second at most.
const BOUNDARIES: usize = 128;

struct Boundary {
    /// The kinds that are on from here, one bit each.
    kinds: AtomicU64,
    /// The id of the first launch after it; 0 if there was none.
    first: AtomicU32,
    /// CUPTI's time at the boundary, for a library that calls back for no launch.
    at_ns: AtomicU64,
}

static BOUNDARY: [Boundary; BOUNDARIES] =
    [const { Boundary { kinds: AtomicU64::new(0), first: AtomicU32::new(0), at_ns: AtomicU64::new(0) } };
        BOUNDARIES];
/// The number of boundaries so far; the last one is at index COUNT - 1, modulo the array's length.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Whether a launch callback has ever come, so that ids are reliable.
static IDS_COME: AtomicBool = AtomicBool::new(false);

fn boundary(number: usize) -> Option<&'static Boundary> {
    BOUNDARY.get(number % BOUNDARIES)
}

/// To be called when a launch with that id begins.
#[inline]
pub fn launched(correlation: u32) {
    let count = COUNT.load(Ordering::Acquire);
    if count == 0 {
        return;
    }
    if let Some(last) = boundary(count - 1)
        && last.first.load(Ordering::Relaxed) == 0
    {
        IDS_COME.store(true, Ordering::Relaxed);
        let _ = last.first.compare_exchange(0, correlation, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Sets the guest's kinds from now on. Only one thread of a guest may change kinds at a time; otherwise the
/// order of its changes is undefined.
pub fn change(kinds: u64, at_ns: u64) {
    let count = COUNT.load(Ordering::Acquire);
    if count > 0
        && let Some(last) = boundary(count - 1)
        && last.first.load(Ordering::Relaxed) == 0
        && IDS_COME.load(Ordering::Relaxed)
    {
        // No launch came since the last change, so both changes share one boundary.
        last.kinds.store(kinds, Ordering::Release);
        return;
    }
    if let Some(next) = boundary(count) {
        next.kinds.store(kinds, Ordering::Relaxed);
        next.at_ns.store(at_ns, Ordering::Relaxed);
        next.first.store(0, Ordering::Relaxed);
        COUNT.store(count + 1, Ordering::Release);
    }
}

/// The kinds that are on now.
pub fn kinds() -> u64 {
    let count = COUNT.load(Ordering::Acquire);
    count.checked_sub(1).and_then(boundary).map_or(0, |last| last.kinds.load(Ordering::Acquire))
}

/// Whether the guest had the kind on when that launch was made. `start_ns` is the record's.
pub fn had(kind: u32, correlation: u32, start_ns: u64) -> bool {
    let count = COUNT.load(Ordering::Acquire);
    let oldest = count.saturating_sub(BOUNDARIES);
    let ids_come = IDS_COME.load(Ordering::Relaxed);
    for number in (oldest..count).rev() {
        let Some(boundary) = boundary(number) else { return false };
        let first = boundary.first.load(Ordering::Relaxed);
        let is_after = match (first, ids_come) {
            (0, true) => false,
            (0, false) => start_ns >= boundary.at_ns.load(Ordering::Relaxed),
            // Ids wrap around.
            (first, _) => correlation.wrapping_sub(first).cast_signed() >= 0,
        };
        if is_after {
            return boundary.kinds.load(Ordering::Acquire) >> kind & 1 != 0;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The statics are the process's, so one test covers all cases in order.
    #[test]
    fn record_belongs_to_the_kinds_of_its_launch() {
        launched(7);
        assert!(!had(10, 7, 0), "no guest, no window");
        change(1 << 10, 100);
        assert!(had(10, 3, 100) && !had(10, 3, 99), "by time while no launch was seen");
        launched(20);
        launched(21);
        change(0, 300);
        change(1 << 1, 310);
        change(1 << 1 | 1 << 2, 320);
        assert!(!had(10, 19, 0), "launched before");
        assert!(had(10, 20, 0) && had(10, 25, 0), "launched within; nothing after it yet");
        launched(30);
        assert!(had(10, 29, 0) && !had(10, 30, 0));
        assert!(had(1, 30, 0) && had(2, 31, 0) && !had(1, 29, 0), "three changes in a row are one");
        assert_eq!(kinds(), 0b110);
        for round in 0..2 * BOUNDARIES as u32 {
            change(if round % 2 == 0 { 0 } else { 1 << 10 }, 0);
            launched(100 + round);
        }
        assert!(had(10, 101 + 2 * BOUNDARIES as u32 - 2, 0), "round the array");
        assert!(!had(10, 101, 0), "forgotten");
        change(1 << 10, 0);
        launched(u32::MAX - 1);
        change(0, 0);
        launched(5);
        assert!(had(10, u32::MAX, 0) && had(10, 4, 0) && !had(10, 5, 0), "ids wrap round");
    }
}
