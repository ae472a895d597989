//! How often each kernel was launched on each stream, where launches are counted instead of recorded.
//!
//! A table without a lock, of a session: any thread adds, and the service thread takes what has come. An
//! entry is its pair's for ever. A launch whose pair finds no entry is recorded instead.

use core::sync::atomic::{AtomicU64, Ordering};

use gputrace_producer::memory::{self, Zeroed};

/// 64 KiB, touched where used.
const ENTRIES: usize = 1 << 12;
/// Entries that a pair may have: those of one cache line.
const TRIES: usize = 4;

#[repr(C)]
struct Count {
    /// The definitions of the kernel, in the upper half, and of the stream; 0 while the entry is free.
    pair: AtomicU64,
    launches: AtomicU64,
}

// SAFETY: zeroed atomics; an entry of zeros is free.
unsafe impl Zeroed for Count {}

pub struct LaunchCounts {
    counts: &'static [Count],
}

impl LaunchCounts {
    pub fn new() -> Option<LaunchCounts> {
        Some(LaunchCounts { counts: memory::map(ENTRIES)? })
    }

    /// Counts a launch. False if the pair has no entry and can have none.
    #[inline(always)]
    pub fn add(&self, function: u32, stream: u32) -> bool {
        let pair = u64::from(function) << 32 | u64::from(stream);
        let line = (pair.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize * TRIES;
        for count in self.counts.get(line..line + TRIES).into_iter().flatten() {
            let mut found = count.pair.load(Ordering::Relaxed);
            if found == 0 {
                let taken = count.pair.compare_exchange(0, pair, Ordering::Relaxed, Ordering::Relaxed);
                found = taken.map_or_else(|other| other, |_| pair);
            }
            if found == pair {
                count.launches.fetch_add(1, Ordering::Relaxed);
                return true;
            }
        }
        false
    }

    /// Takes what was counted since the last time: kernel, stream, launches.
    pub fn take(&self, mut each: impl FnMut(u32, u32, u64)) {
        for count in self.counts {
            let pair = count.pair.load(Ordering::Relaxed);
            if pair != 0 && count.launches.load(Ordering::Relaxed) != 0 {
                let launches = count.launches.swap(0, Ordering::Relaxed);
                each((pair >> 32) as u32, pair as u32, launches);
            }
        }
    }
}

const _: () = assert!(ENTRIES == (1 << (64 - 54)) * TRIES);
const _: () = assert!(size_of::<Count>() * TRIES == 64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_of_many_threads_are_taken_once_each() {
        let counts = LaunchCounts::new().unwrap();
        let mut taken = [0u64; 8];
        std::thread::scope(|scope| {
            let threads = [0u32; 4].map(|_| {
                scope.spawn(|| {
                    for number in 0..80_000u32 {
                        assert!(counts.add(number % 8 + 1, 7));
                    }
                })
            });
            while threads.iter().any(|thread| !thread.is_finished()) {
                counts.take(|function, stream, launches| {
                    assert_eq!(stream, 7);
                    taken[function as usize - 1] += launches;
                });
            }
        });
        counts.take(|function, _, launches| taken[function as usize - 1] += launches);
        assert_eq!(taken, [40_000; 8]);
    }

    #[test]
    fn pair_that_does_not_fit_is_refused_and_known_ones_go_on() {
        let counts = LaunchCounts::new().unwrap();
        let known: Vec<u32> = (1..=100_000).filter(|function| counts.add(*function, 1)).collect();
        assert!((ENTRIES / 2..=ENTRIES).contains(&known.len()), "{}", known.len());
        assert!(known.iter().all(|function| counts.add(*function, 1)));
        let mut sums = Vec::new();
        counts.take(|function, _, launches| sums.push((function, launches)));
        sums.sort_unstable();
        assert_eq!(sums, known.iter().map(|function| (*function, 2)).collect::<Vec<_>>());
    }
}
