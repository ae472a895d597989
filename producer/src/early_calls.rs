//! Counts calls that came while another thread was starting the session, because nothing recorded them.
//!
//! The count is stored with its process id, since a forked child inherits the memory.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::system;

/// The upper half is the process id, the lower half its number of calls.
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

/// Returns the number of calls since the last take, and resets it.
pub fn take() -> u64 {
    // The number is almost always 0; most callers return without a write.
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
