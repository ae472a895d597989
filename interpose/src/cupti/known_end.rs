//! Whether CUPTI's end time of a kernel is its own.
//!
//! A kernel under way when its kind goes off gets the time at which the kind goes on again
//! (kineto#1105). So the end is not known of a record that began before such a time and ends at it or later.
//! A kernel that was launched after that time begins after it. The kinds of copies and fills never go off.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Windows of device times switch ten times a second; a record comes seconds late at most.
const KEPT: usize = 256;

/// When the kinds went on again, by CUPTI's clock, in a circle.
pub struct Enables {
    times_ns: [AtomicU64; KEPT],
    count: AtomicUsize,
}

/// Those of the process.
pub static ENABLES: Enables = Enables::new();

impl Enables {
    pub const fn new() -> Enables {
        Enables { times_ns: [const { AtomicU64::new(0) }; KEPT], count: AtomicUsize::new(0) }
    }

    /// To be called before the kinds go on, by one thread at a time.
    pub fn note(&self, now_ns: u64) {
        let count = self.count.load(Ordering::Relaxed);
        if let Some(time_ns) = self.times_ns.get(count % KEPT) {
            time_ns.store(now_ns, Ordering::Relaxed);
            // SYNC: pairs with the Acquire below: who sees the count sees the time.
            self.count.store(count + 1, Ordering::Release);
        }
    }

    pub fn is_end_known(&self, start_ns: u64, end_ns: u64) -> bool {
        let count = self.count.load(Ordering::Acquire);
        // From the newest one back to the first that the operation did not see.
        let newest_first = (count.saturating_sub(KEPT)..count).rev();
        let times_ns = newest_first.filter_map(|number| self.times_ns.get(number % KEPT));
        times_ns
            .map(|time_ns| time_ns.load(Ordering::Relaxed))
            .take_while(|time_ns| *time_ns > start_ns)
            .all(|time_ns| end_ns < time_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_at_or_after_an_enable_is_not_known_of_what_began_before() {
        let enables = Enables::new();
        assert!(enables.is_end_known(10, 20));
        for at_ns in [100, 200, 300] {
            enables.note(at_ns);
        }
        for (start_ns, end_ns, is_known) in [
            (10, 99, true),
            (10, 100, false),
            // Delivered two windows later.
            (150, 200, false),
            (150, 260, false),
            (150, 199, true),
            (100, 199, true),
            (250, 299, true),
            (250, 301, false),
            (301, 900, true),
        ] {
            assert_eq!(enables.is_end_known(start_ns, end_ns), is_known, "{start_ns} {end_ns}");
        }
        for at_ns in 301..1000 {
            enables.note(at_ns);
        }
        assert!(!enables.is_end_known(250, 900) && enables.is_end_known(999, 1005));
    }
}
