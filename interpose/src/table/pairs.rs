//! The pairs of a kernel and a stream that were launched: their definitions, and how many launches were
//! counted where launches are counted instead of recorded.
//!
//! A table without a lock, of a session. A pair is found by the handles that the launch has, so that a hook
//! reads one line of it and no other table. Any thread adds to a count, and the service thread takes what has
//! come. The definitions are looked up when the pair gets its entry; when a handle is forgotten, its entries
//! are retired, and freed once their launches were taken.
//!
//! Programs may not launch a kernel, or on a stream, that another thread destroys at that moment. Such a
//! launch may be recorded or counted for the handle's next meaning or for the next pair in its entry, or lose
//! its name.

use core::hint::cold_path;
use core::sync::atomic::{AtomicU64, Ordering};

use gputrace_producer::fork;
use gputrace_producer::memory::{self, Zeroed, prefetch, prefetch_to_write};

use crate::symbols::driver::Handle;

/// 128 KiB. Launches touch only their pairs' entries.
pub type Buckets = [[Pair; TRIES]; BUCKETS];
/// How many entries are tried for a pair: those of two cache lines.
const TRIES: usize = 4;
/// How many groups of that many entries there are.
const BUCKETS: usize = 1 << 10;

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

#[derive(Debug)]
#[repr(C, align(32))]
pub struct Pair {
    /// The kernel's handle, and the stream's key as `Tables` has it.
    function: AtomicU64,
    stream: AtomicU64,
    /// The definitions of the kernel, in the upper half, and of the stream.
    definitions: AtomicU64,
    /// The launches that were counted and not taken yet.
    launches: AtomicU64,
}

// SAFETY: zeroed atomics; an entry of zeros is free.
unsafe impl Zeroed for Pair {}

impl Pair {
    /// The definitions of the kernel and of the stream.
    #[inline(always)]
    pub fn definitions(&self) -> (u32, u32) {
        let definitions = self.definitions.load(Ordering::Relaxed);
        ((definitions >> 32) as u32, definitions as u32)
    }

    #[inline(always)]
    fn is_of(&self, function: u64, stream: u64) -> bool {
        // SYNC: both pair with the Release stores in `insert`.
        self.function.load(Ordering::Acquire) == function && self.stream.load(Ordering::Acquire) == stream
    }

    /// Counts a launch, and returns the kernel's definition.
    #[inline(always)]
    pub fn add(&self) -> u32 {
        self.launches.fetch_add(1, Ordering::Relaxed);
        self.definitions().0
    }
}

#[derive(Debug)]
pub struct Pairs {
    pairs: &'static Buckets,
    /// A bit for each bucket that ever had an entry: most have none, and are passed over.
    used: &'static [AtomicU64],
}

/// The entries in which a pair may be found.
#[derive(Clone, Copy, Debug)]
pub struct Bucket<'c> {
    tries: &'c [Pair; TRIES],
    function: u64,
    stream: u64,
}

impl<'c> Bucket<'c> {
    /// Where the pair's entry is, if it has one.
    #[inline(always)]
    pub fn of(pairs: &'c Buckets, function: u64, stream: u64) -> Bucket<'c> {
        // The number is that of a bucket: ten bits.
        #[allow(clippy::indexing_slicing)]
        Bucket { tries: &pairs[Pairs::number(function, stream)], function, stream }
    }

    /// Prefetches the pair's entry, to be read.
    #[inline(always)]
    pub fn expect(self) {
        prefetch(&self.tries[0]);
    }

    /// Prefetches the pair's entry, to count in it.
    #[inline(always)]
    pub fn expect_to_add(self) {
        prefetch_to_write(&self.tries[0]);
    }

    /// The entry of the pair, if it has one.
    #[inline(always)]
    pub fn find(self) -> Option<&'c Pair> {
        // Nearly every pair is in its first entry: one comparison, without the search.
        if self.tries[0].is_of(self.function, self.stream) {
            Some(&self.tries[0])
        } else {
            cold_path();
            search(self.tries, self.function, self.stream)
        }
    }
}

#[cold]
#[inline(never)]
fn search(tries: &[Pair], function: u64, stream: u64) -> Option<&Pair> {
    tries.iter().find(|pair| pair.is_of(function, stream))
}

/// The pairs of the session that this process started last, without its tables; `None` before they are made,
/// and in a forked child.
#[inline(always)]
pub fn of_process() -> Option<&'static Buckets> {
    let pairs = fork::of_process().vendor_launches.load(Ordering::Acquire);
    // SAFETY: null, or what `publish` stored: a mapping of zeros or of pairs, which is never unmapped.
    unsafe { pairs.cast::<Buckets>().as_ref() }
}

impl Pairs {
    pub fn new() -> Option<Pairs> {
        let pairs = memory::map(BUCKETS)?.try_into().ok()?;
        Some(Pairs { pairs, used: memory::map(BUCKETS / 64)? })
    }

    #[inline(always)]
    fn number(function: u64, stream: u64) -> usize {
        let hash = (function ^ stream.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 54) as usize
    }

    /// The entries of all buckets that were used.
    fn of_used(&self) -> impl Iterator<Item = &'static Pair> {
        let numbers = self.used.iter().zip(0usize..).flat_map(|(word, at)| {
            // SYNC: pairs with the Release in `insert`.
            let bits = word.load(Ordering::Acquire);
            (0..64).filter(move |bit| bits >> bit & 1 != 0).map(move |bit| at * 64 + bit)
        });
        let pairs = self.pairs;
        numbers.filter_map(move |number| pairs.get(number)).flatten()
    }

    /// Makes them the process's.
    pub fn publish(&self) {
        let pairs = core::ptr::from_ref(self.pairs).cast_mut().cast();
        fork::of_process().vendor_launches.store(pairs, Ordering::Release);
    }

    /// All of them, without the note of which buckets were used.
    #[inline(always)]
    pub fn buckets(&self) -> &'static Buckets {
        self.pairs
    }

    /// A new entry for the pair; `None` if there is no space for it. Two threads may each make one, which are
    /// both taken.
    pub fn insert<'c>(&self, bucket: Bucket<'c>, definitions: (u32, u32)) -> Option<&'c Pair> {
        let Bucket { tries, function, stream } = bucket;
        let claim = |pair: &&Pair| {
            pair.function.load(Ordering::Relaxed) == FREE
                && pair.function.compare_exchange(FREE, BUSY, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let pair = tries.iter().find(claim)?;
        let number = Pairs::number(function, stream);
        if let Some(word) = self.used.get(number / 64) {
            // SYNC: pairs with the Acquire in `of_used`.
            word.fetch_or(1 << (number % 64), Ordering::Release);
        }
        let definitions = u64::from(definitions.0) << 32 | u64::from(definitions.1);
        pair.definitions.store(definitions, Ordering::Relaxed);
        // SYNC: pairs with the Acquire load in `is_of`: who sees the stream sees its definitions, also where
        // the entry had the same kernel before.
        pair.stream.store(stream, Ordering::Release);
        // SYNC: publishes the entry: pairs with the Acquire loads in `is_of`, `retire` and `take`.
        pair.function.store(function, Ordering::Release);
        Some(pair)
    }

    /// Entries of such a kernel and stream get no more launches: their handles stand for nothing, or for
    /// something else, from here on.
    pub fn retire(&self, is_gone: impl Fn(u64, u64) -> bool) {
        for pair in self.of_used() {
            let function = pair.function.load(Ordering::Acquire);
            if function > RETIRED && is_gone(function, pair.stream.load(Ordering::Relaxed)) {
                let next = if pair.launches.load(Ordering::Relaxed) == 0 { FREE } else { RETIRED };
                _ = pair.function.compare_exchange(function, next, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }

    /// Takes what was counted since the last time: the definitions of the kernel and of the stream, launches.
    pub fn take(&self, mut each: impl FnMut(u32, u32, u64)) {
        for pair in self.of_used() {
            let function = pair.function.load(Ordering::Acquire);
            if function < RETIRED {
                continue;
            }
            if pair.launches.load(Ordering::Relaxed) != 0 {
                let launches = pair.launches.swap(0, Ordering::Relaxed);
                let (function, stream) = pair.definitions();
                each(function, stream, launches);
            }
            if function == RETIRED {
                // At a session's end two threads may take: only one of them may free the entry.
                _ = pair.function.compare_exchange(RETIRED, FREE, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }
}

const _: () = assert!(BUCKETS == 1 << (64 - 54));
const _: () = assert!(size_of::<Pair>() * TRIES == 128);

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRIES: usize = BUCKETS * TRIES;
    /// Where handles begin in these tests.
    const KERNEL: u64 = 0x5550_0000_0000;

    /// Counts a launch as a hook does; false if there is no space for the pair.
    fn add(pairs: &Pairs, function: u32, stream: u32) -> bool {
        let (handle, key) = (KERNEL + u64::from(function) * 0x40, u64::from(stream));
        let bucket = Bucket::of(pairs.buckets(), handle, key);
        let found = bucket.find().or_else(|| pairs.insert(bucket, (function, stream)));
        found.is_some_and(|pair| {
            pair.add();
            true
        })
    }

    fn taken(pairs: &Pairs) -> Vec<(u32, u32, u64)> {
        let mut taken = Vec::new();
        pairs.take(|function, stream, launches| taken.push((function, stream, launches)));
        taken.sort_unstable();
        taken
    }

    #[test]
    fn launches_of_many_threads_are_taken_once_each() {
        let pairs = Pairs::new().unwrap();
        let mut sums = [0u64; 8];
        std::thread::scope(|scope| {
            let threads = [0u32; 4].map(|_| {
                scope.spawn(|| {
                    for number in 0..80_000u32 {
                        assert!(add(&pairs, number % 8 + 1, 7));
                    }
                })
            });
            while threads.iter().any(|thread| !thread.is_finished()) {
                pairs.take(|function, stream, launches| {
                    assert_eq!(stream, 7);
                    sums[function as usize - 1] += launches;
                });
            }
        });
        pairs.take(|function, _, launches| sums[function as usize - 1] += launches);
        assert_eq!(sums, [40_000; 8]);
    }

    #[test]
    fn pair_that_does_not_fit_is_refused_and_known_ones_go_on() {
        let pairs = Pairs::new().unwrap();
        let known: Vec<u32> = (1..=100_000).filter(|function| add(&pairs, *function, 1)).collect();
        assert!((ENTRIES / 2..=ENTRIES).contains(&known.len()), "{}", known.len());
        assert!(known.iter().all(|function| add(&pairs, *function, 1)));
        assert_eq!(taken(&pairs), known.iter().map(|function| (*function, 1, 2)).collect::<Vec<_>>());
    }

    #[test]
    fn launches_of_a_forgotten_handle_are_taken_and_its_next_life_has_an_entry_of_its_own() {
        let pairs = Pairs::new().unwrap();
        for stream in [1, 9] {
            assert!(add(&pairs, 5, stream));
        }
        pairs.retire(|_, stream| stream == 9);
        let (handle, key) = (KERNEL + 5 * 0x40, 9);
        let is_found = |stream| Bucket::of(pairs.buckets(), handle, stream).find().is_some();
        assert!(!is_found(key) && is_found(1));
        let bucket = Bucket::of(pairs.buckets(), handle, key);
        pairs.insert(bucket, (5, 10)).unwrap().add();
        assert_eq!(taken(&pairs), [(5, 1, 1), (5, 9, 1), (5, 10, 1)]);
        // What was retired is free again: as often as one likes.
        for _ in 0..10 * ENTRIES {
            pairs.retire(|_, stream| stream == key);
            assert_eq!(pairs.insert(bucket, (5, 11)).map(Pair::add), Some(5));
            pairs.take(|_, _, _| ());
        }
    }
}
