//! The stack cache: maps a recent fingerprint to its stack id. It evicts old entries, so it is never full.
//!
//! A fingerprint selects a cache line of five entries; a new entry replaces them in turn. No thread waits
//! for another. An entry consists of the id and of the fingerprint mixed with that id, so an entry whose
//! halves come from two threads matches no fingerprint.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use gputrace_producer::memory::{self, Zeroed};

/// 1 MiB, touched where used: enough for some eighty thousand stacks.
const LINES: usize = 1 << 14;
const ENTRIES: usize = 5;

#[repr(C, align(64))]
#[derive(Debug)]
struct Line {
    fingerprints: [AtomicU64; ENTRIES],
    ids: [AtomicU32; ENTRIES],
}

// SAFETY: all of it is numbers.
unsafe impl Zeroed for Line {}

/// A stack that was found in the cache or put there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cached {
    /// The number of its entry, counted from 1; 0 if it is not in the cache.
    pub entry: u32,
    /// The stack's id; 0 for none.
    pub stack: u32,
}

impl Cached {
    pub const NONE: Cached = Cached { entry: 0, stack: 0 };
}

#[derive(Debug)]
pub struct Recent {
    lines: &'static [Line],
    /// How many entries replaced another one.
    replaced: AtomicU32,
}

impl Recent {
    pub fn new() -> Option<Recent> {
        Recent::of_lines(LINES)
    }

    /// `lines` is a power of two.
    fn of_lines(lines: usize) -> Option<Recent> {
        Some(Recent { lines: memory::map(lines)?, replaced: AtomicU32::new(0) })
    }

    #[inline(always)]
    fn index(&self, fingerprint: u64) -> usize {
        // Every bit of a fingerprint depends on the whole stack.
        fingerprint as usize & self.lines.len().wrapping_sub(1)
    }

    /// The stack that is stored for the fingerprint, which is not 0; `None` if it is not in the cache.
    #[inline(always)]
    pub fn get(&self, fingerprint: u64) -> Option<Cached> {
        let index = self.index(fingerprint);
        let line = self.lines.get(index)?;
        line.fingerprints.iter().zip(&line.ids).enumerate().find_map(|(way, (mixed, id))| {
            // SYNC: pairs with the Release store in `put`, for the id. The mixture shows that both halves
            // are of one entry.
            let stack = id.load(Ordering::Acquire);
            let is_it = mixed.load(Ordering::Relaxed) == mixture(fingerprint, stack);
            is_it.then_some(Cached { entry: entry(index, way), stack })
        })
    }

    /// Stores the stack id for the fingerprint; neither is 0.
    pub fn put(&self, fingerprint: u64, stack: u32) -> Option<Cached> {
        let index = self.index(fingerprint);
        let line = self.lines.get(index)?;
        let free = line.ids.iter().position(|id| id.load(Ordering::Relaxed) == 0);
        let way = free.unwrap_or_else(|| self.replaced.fetch_add(1, Ordering::Relaxed) as usize % ENTRIES);
        line.ids.get(way)?.store(stack, Ordering::Release);
        line.fingerprints.get(way)?.store(mixture(fingerprint, stack), Ordering::Relaxed);
        Some(Cached { entry: entry(index, way), stack })
    }
}

#[inline(always)]
fn entry(index: usize, way: usize) -> u32 {
    (index * ENTRIES + way + 1) as u32
}

/// With id 0 the result is 0 for fingerprint 0 only, so an unwritten entry matches no fingerprint. The
/// halves of two entries match a third fingerprint with a chance of 2^-64.
#[inline(always)]
fn mixture(fingerprint: u64, id: u32) -> u64 {
    fingerprint ^ u64::from(id).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

const _: () = assert!(size_of::<Line>() == 64);

#[cfg(test)]
mod tests {
    use super::*;

    fn get(recent: &Recent, fingerprint: u64) -> Option<u32> {
        recent.get(fingerprint).map(|found| found.stack)
    }

    #[test]
    fn recent_stacks_are_known_and_the_oldest_are_forgotten() {
        let recent = Recent::of_lines(4).unwrap();
        assert_eq!(get(&recent, 4), None);
        for of in 1..=5u32 {
            let put = recent.put(u64::from(of) * 4, of);
            assert_eq!((put, put.unwrap().stack), (recent.get(u64::from(of) * 4), of));
        }
        let all = [4, 8, 12, 16, 20];
        assert_eq!(all.map(|fingerprint| get(&recent, fingerprint)), [1, 2, 3, 4, 5].map(Some));
        let entries = all.map(|fingerprint| recent.get(fingerprint).unwrap().entry);
        assert!((1..5).all(|at| !entries[at..].contains(&entries[at - 1])), "{entries:?}");
        recent.put(24, 6);
        recent.put(28, 7);
        assert_eq!(
            [4, 8, 12, 24, 28].map(|fingerprint| get(&recent, fingerprint)),
            [None, None, Some(3), Some(6), Some(7)]
        );
        assert_eq!(get(&recent, 5), None, "another line");
    }

    #[test]
    fn half_written_entry_is_never_found() {
        let recent = Recent::of_lines(1).unwrap();
        recent.put(7, 1);
        recent.lines[0].ids[0].store(2, Ordering::Relaxed);
        assert_eq!(get(&recent, 7), None);
        recent.lines[0].ids[0].store(0, Ordering::Relaxed);
        assert_eq!(get(&recent, 7), None);
    }

    #[test]
    fn threads_that_replace_each_others_entries_find_their_own_or_none() {
        let recent = Recent::of_lines(1).unwrap();
        let found: u32 = std::thread::scope(|scope| {
            let of_thread = |thread: u64| {
                let recent = &recent;
                move || {
                    let fingerprints = (0..200_000u64).map(|round| 1 + round % 8 + 8 * thread);
                    fingerprints
                        .map(|fingerprint| {
                            recent.put(fingerprint, fingerprint as u32);
                            let found = get(recent, 1 + fingerprint * 5 % 24);
                            assert!(found.is_none_or(|id| u64::from(id) == 1 + fingerprint * 5 % 24));
                            u32::from(found.is_some())
                        })
                        .sum::<u32>()
                }
            };
            let threads: Vec<_> = (0..3).map(|thread| scope.spawn(of_thread(thread))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert!(found > 0);
    }
}
