//! Calls that came while another thread was starting the session: nothing recorded them, so they are counted.
//!
//! The count is kept with its process, since a forked child inherits it with the memory.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::system;

/// The process in the upper half, its number of calls in the lower.
static CALLS: AtomicU64 = AtomicU64::new(0);

fn of_this_process(word: u64, process: u64) -> u64 {
    if word >> 32 == process { word & u64::from(u32::MAX) } else { 0 }
}

/// Counts one call.
pub fn count() {
    let process = u64::from(system::getpid().cast_unsigned());
    let add = |word| Some(process << 32 | (of_this_process(word, process) + 1).min(u32::MAX.into()));
    let _ = CALLS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
}

/// The calls since the last take.
pub fn take() -> u64 {
    // Seldom more than 0, and then only once: most callers see it without a write.
    if CALLS.load(Ordering::Relaxed) == 0 {
        return 0;
    }
    of_this_process(CALLS.swap(0, Ordering::Relaxed), system::getpid().cast_unsigned().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_taken_once_and_a_parents_are_not_the_childs() {
        count();
        count();
        assert_eq!((take(), take()), (2, 0));
        CALLS.store(1 << 32 | 5, Ordering::Relaxed);
        count();
        assert_eq!(take(), 1);
    }
}
