//! Counts the kernel records of the last window's launches, by CUPTI's correlation ids: those after the last
//! one before it, up to the last one in it.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

static DELIVERED: AtomicU64 = AtomicU64::new(0);
static AFTER: AtomicU32 = AtomicU32::new(0);
/// 0: the window is open.
static UP_TO: AtomicU32 = AtomicU32::new(0);

pub fn begin(after: u32) {
    UP_TO.store(0, Ordering::Relaxed);
    AFTER.store(after, Ordering::Relaxed);
    DELIVERED.store(0, Ordering::Relaxed);
}

pub fn end(up_to: u32) {
    UP_TO.store(up_to, Ordering::Relaxed);
}

pub fn delivered() -> u64 {
    DELIVERED.load(Ordering::Relaxed)
}

/// A kernel that no graph launched was delivered.
#[inline]
pub fn note(correlation: u32) {
    let (after, up_to) = (AFTER.load(Ordering::Relaxed), UP_TO.load(Ordering::Relaxed));
    // Ids grow and wrap around.
    let is_past = |id: u32| correlation.wrapping_sub(id).cast_signed() > 0;
    if correlation != 0 && is_past(after) && (up_to == 0 || !is_past(up_to)) {
        DELIVERED.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_the_window_are_counted_across_the_wrap_of_ids() {
        begin(u32::MAX - 2);
        (u32::MAX - 4..=u32::MAX).for_each(note);
        assert_eq!(delivered(), 2);
        end(3);
        (0..9).for_each(note);
        assert_eq!(delivered(), 5);
        begin(9);
        assert_eq!(delivered(), 0);
    }
}
