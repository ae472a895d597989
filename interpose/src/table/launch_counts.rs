//! How often each kernel was launched on each stream, where launches are counted instead of recorded.
//!
//! A table without a lock, of a session: any thread adds, and the service thread takes what has come. A pair
//! is found by the handles that the launch has, so that no other table is read. Their definitions are looked
//! up when the pair gets its entry; when a handle is forgotten, its entries are retired, and freed once their
//! launches were taken.
//!
//! Programs may not launch a kernel, or on a stream, that another thread destroys at that moment. Such a
//! launch may be counted for the handle's next meaning or for the next pair in its entry, or lose its name.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gputrace_producer::memory::{self, Zeroed, prefetch_to_write};

use crate::symbols::driver::Handle;

/// 128 KiB. Launches touch only their pairs' entries.
const ENTRIES: usize = 1 << 12;
/// How many entries are tried for a pair: those of two cache lines.
const TRIES: usize = 4;

/// Values of `function` that are no handle: the entry is free, is being written, or takes no more launches.
const FREE: u64 = 0;
const BUSY: u64 = 1;
const RETIRED: u64 = 2;

/// What a launch call was given.
#[derive(Clone, Copy, Debug)]
pub struct Launched {
    pub function: Handle,
    pub stream: Handle,
    /// Whether the default stream means that of the thread.
    pub per_thread: bool,
}

/// The launches of a pair.
#[derive(Debug)]
#[repr(C, align(32))]
pub struct Count {
    /// The kernel's handle, and the stream's key as `Tables` has it.
    function: AtomicU64,
    stream: AtomicU64,
    /// The definitions of the kernel, in the upper half, and of the stream.
    definitions: AtomicU64,
    launches: AtomicU64,
}

// SAFETY: zeroed atomics; an entry of zeros is free.
unsafe impl Zeroed for Count {}

impl Count {
    /// Counts a launch, and returns the kernel's definition.
    #[inline(always)]
    pub fn add(&self) -> u32 {
        self.launches.fetch_add(1, Ordering::Relaxed);
        (self.definitions.load(Ordering::Relaxed) >> 32) as u32
    }
}

#[derive(Debug)]
pub struct LaunchCounts {
    counts: &'static [Count; ENTRIES],
    /// Whether there was ever an entry.
    is_used: AtomicBool,
}

/// The entries in which a pair may be found.
#[derive(Clone, Copy, Debug)]
pub struct Bucket<'c> {
    tries: &'c [Count],
    function: u64,
    stream: u64,
}

impl<'c> Bucket<'c> {
    /// The entry of the pair, if it has one.
    #[inline(always)]
    pub fn find(self) -> Option<&'c Count> {
        // Nearly every pair is in its first entry: one comparison, without the search.
        match self.tries.first() {
            Some(first) if self.is_of(first) => Some(first),
            _ => self.search(),
        }
    }

    #[cold]
    #[inline(never)]
    fn search(self) -> Option<&'c Count> {
        self.tries.iter().find(|count| self.is_of(count))
    }

    #[inline(always)]
    fn is_of(self, count: &Count) -> bool {
        // SYNC: pairs with the Release store in `insert`, which follows the stream's.
        count.function.load(Ordering::Acquire) == self.function
            && count.stream.load(Ordering::Relaxed) == self.stream
    }
}

impl LaunchCounts {
    pub fn new() -> Option<LaunchCounts> {
        let counts = memory::map(ENTRIES)?.try_into().ok()?;
        Some(LaunchCounts { counts, is_used: AtomicBool::new(false) })
    }

    /// Where the pair's entry is, if it has one. To be called early: it prefetches the entry, to add to it.
    #[inline(always)]
    pub fn bucket(&self, function: u64, stream: u64) -> Bucket<'_> {
        let hash = (function ^ stream.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let first = (hash >> 54) as usize * TRIES;
        let tries = self.counts.get(first..first + TRIES).unwrap_or_default();
        if let Some(first) = tries.first() {
            prefetch_to_write(first);
        }
        Bucket { tries, function, stream }
    }

    /// A new entry for the pair; `None` if there is no space for it. Two threads may each make one, which are
    /// both taken.
    pub fn insert<'c>(&self, bucket: Bucket<'c>, definitions: (u32, u32)) -> Option<&'c Count> {
        let Bucket { tries, function, stream } = bucket;
        let claim = |count: &&Count| {
            count.function.compare_exchange(FREE, BUSY, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let count = tries.iter().find(claim)?;
        self.is_used.store(true, Ordering::Relaxed);
        count.stream.store(stream, Ordering::Relaxed);
        let definitions = u64::from(definitions.0) << 32 | u64::from(definitions.1);
        count.definitions.store(definitions, Ordering::Relaxed);
        // SYNC: publishes the entry: pairs with the Acquire loads in `is_of`, `retire` and `take`.
        count.function.store(function, Ordering::Release);
        Some(count)
    }

    /// Entries of such a kernel and stream get no more launches: their handles stand for nothing, or for
    /// something else, from here on.
    pub fn retire(&self, is_gone: impl Fn(u64, u64) -> bool) {
        if !self.is_used.load(Ordering::Relaxed) {
            return;
        }
        for count in self.counts {
            let function = count.function.load(Ordering::Acquire);
            if function > RETIRED && is_gone(function, count.stream.load(Ordering::Relaxed)) {
                _ = count.function.compare_exchange(function, RETIRED, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }

    /// Takes what was counted since the last time: the definitions of the kernel and of the stream, launches.
    pub fn take(&self, mut each: impl FnMut(u32, u32, u64)) {
        for count in self.counts {
            let function = count.function.load(Ordering::Acquire);
            if function < RETIRED {
                continue;
            }
            if count.launches.load(Ordering::Relaxed) != 0 {
                let launches = count.launches.swap(0, Ordering::Relaxed);
                let definitions = count.definitions.load(Ordering::Relaxed);
                each((definitions >> 32) as u32, definitions as u32, launches);
            }
            if function == RETIRED {
                // At a session's end two threads may take: only one of them may free the entry.
                _ = count.function.compare_exchange(RETIRED, FREE, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }
}

const _: () = assert!(ENTRIES == (1 << (64 - 54)) * TRIES);
const _: () = assert!(size_of::<Count>() * TRIES == 128);

#[cfg(test)]
mod tests {
    use super::*;

    /// Where handles begin in these tests.
    const KERNEL: u64 = 0x5550_0000_0000;

    /// Counts a launch as a hook does; false if there is no space for the pair.
    fn add(counts: &LaunchCounts, function: u32, stream: u32) -> bool {
        let (handle, key) = (KERNEL + u64::from(function) * 0x40, u64::from(stream));
        let bucket = counts.bucket(handle, key);
        let found = bucket.find().or_else(|| counts.insert(bucket, (function, stream)));
        found.is_some_and(|count| {
            count.add();
            true
        })
    }

    fn taken(counts: &LaunchCounts) -> Vec<(u32, u32, u64)> {
        let mut taken = Vec::new();
        counts.take(|function, stream, launches| taken.push((function, stream, launches)));
        taken.sort_unstable();
        taken
    }

    #[test]
    fn launches_of_many_threads_are_taken_once_each() {
        let counts = LaunchCounts::new().unwrap();
        let mut sums = [0u64; 8];
        std::thread::scope(|scope| {
            let threads = [0u32; 4].map(|_| {
                scope.spawn(|| {
                    for number in 0..80_000u32 {
                        assert!(add(&counts, number % 8 + 1, 7));
                    }
                })
            });
            while threads.iter().any(|thread| !thread.is_finished()) {
                counts.take(|function, stream, launches| {
                    assert_eq!(stream, 7);
                    sums[function as usize - 1] += launches;
                });
            }
        });
        counts.take(|function, _, launches| sums[function as usize - 1] += launches);
        assert_eq!(sums, [40_000; 8]);
    }

    #[test]
    fn pair_that_does_not_fit_is_refused_and_known_ones_go_on() {
        let counts = LaunchCounts::new().unwrap();
        let known: Vec<u32> = (1..=100_000).filter(|function| add(&counts, *function, 1)).collect();
        assert!((ENTRIES / 2..=ENTRIES).contains(&known.len()), "{}", known.len());
        assert!(known.iter().all(|function| add(&counts, *function, 1)));
        assert_eq!(taken(&counts), known.iter().map(|function| (*function, 1, 2)).collect::<Vec<_>>());
    }

    #[test]
    fn launches_of_a_forgotten_handle_are_taken_and_its_next_life_has_an_entry_of_its_own() {
        let counts = LaunchCounts::new().unwrap();
        for stream in [1, 9] {
            assert!(add(&counts, 5, stream));
        }
        counts.retire(|_, stream| stream == 9);
        let (handle, key) = (KERNEL + 5 * 0x40, 9);
        let is_found = |stream| counts.bucket(handle, stream).find().is_some();
        assert!(!is_found(key) && is_found(1));
        let bucket = counts.bucket(handle, key);
        counts.insert(bucket, (5, 10)).unwrap().add();
        assert_eq!(taken(&counts), [(5, 1, 1), (5, 9, 1), (5, 10, 1)]);
        // What was retired is free again: as often as one likes.
        for _ in 0..10 * ENTRIES {
            counts.retire(|_, stream| stream == key);
            assert_eq!(counts.insert(bucket, (5, 11)).map(Count::add), Some(5));
            counts.take(|_, _, _| ());
        }
    }
}
