//! The stack cache: maps a recent fingerprint to its stack id. It evicts old entries, so it is never full.
//!
//! A fingerprint selects a cache line of four entries; a new entry replaces them in turn. No thread waits
//! for another. An entry consists of the id and of the fingerprint mixed with that id, so an entry whose
//! halves come from two threads matches no fingerprint.
//!
//! Between two launches a program touches more memory than a core's caches hold, so the line must be
//! fetched from memory. That wait was the longest in a hook (400 of 800 ns in a training step). Programs
//! launch from the same call sites in the same order over and over. Each entry therefore records which
//! entry the thread used after it, and the line of that one is [prefetched](Recent::expect) before the
//! driver is called. A wrong guess costs the wait, and a write to the previous entry's line.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use gputrace_producer::memory::{self, Zeroed, prefetch};

/// 1 MiB, touched where used: enough for some sixty thousand stacks.
const LINES: usize = 1 << 14;
const ENTRIES: usize = 4;

#[repr(C, align(64))]
#[derive(Debug)]
struct Line {
    fingerprints: [AtomicU64; ENTRIES],
    ids: [AtomicU32; ENTRIES],
    /// The entry that a thread used next, encoded as in [`CachePosition`].
    next: [AtomicU32; ENTRIES],
}

// SAFETY: all of it is numbers.
unsafe impl Zeroed for Line {}

/// A thread's position in the cache. Valid for any cache: a position outside of it counts as none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CachePosition {
    /// The thread's last entry, counted from 1; 0 is none.
    last: u32,
    /// The entry that followed it the previous time.
    next: u32,
}

impl CachePosition {
    /// The entry that the thread will probably use next; 0 if none is known.
    #[inline(always)]
    pub fn expected(self) -> u32 {
        self.next
    }

    /// The entry that the thread came to last; 0 if none.
    pub fn last(self) -> u32 {
        self.last
    }
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

    /// The thread's position after it has come to the entry that was expected.
    #[inline(always)]
    pub fn follow(&self, position: CachePosition) -> CachePosition {
        let next = self.entry(position.next).and_then(|(line, way)| line.next.get(way));
        CachePosition { last: position.next, next: next.map_or(0, |next| next.load(Ordering::Relaxed)) }
    }

    /// Prefetches the line that the thread will probably ask for next.
    #[inline(always)]
    pub fn expect(&self, position: CachePosition) {
        if let Some((line, _)) = self.entry(position.next) {
            prefetch(line);
        }
    }

    /// The stack id stored for the fingerprint, which is not 0; `None` if it is not in the cache. Moves the
    /// thread's position to the entry.
    #[inline(always)]
    pub fn get(&self, fingerprint: u64, position: &mut CachePosition) -> Option<u32> {
        let index = self.index(fingerprint);
        let line = self.lines.get(index)?;
        for (way, (mixed, id)) in line.fingerprints.iter().zip(&line.ids).enumerate() {
            // SYNC: pairs with the Release store in `put`, for the id. The mixture shows that both halves
            // are of one entry.
            let id = id.load(Ordering::Acquire);
            if mixed.load(Ordering::Relaxed) == mixture(fingerprint, id) {
                self.come_to(index, way, position);
                return Some(id);
            }
        }
        None
    }

    /// Stores the stack id for the fingerprint; neither is 0. Moves the thread's position to the entry.
    pub fn put(&self, fingerprint: u64, id: u32, position: &mut CachePosition) {
        let index = self.index(fingerprint);
        let Some(line) = self.lines.get(index) else { return };
        let free = line.ids.iter().position(|id| id.load(Ordering::Relaxed) == 0);
        let way = free.unwrap_or_else(|| self.replaced.fetch_add(1, Ordering::Relaxed) as usize % ENTRIES);
        if let (Some(to_fingerprint), Some(to_id)) = (line.fingerprints.get(way), line.ids.get(way)) {
            to_id.store(id, Ordering::Release);
            to_fingerprint.store(mixture(fingerprint, id), Ordering::Relaxed);
        }
        self.come_to(index, way, position);
    }

    /// Moves the thread's position from its last entry to this one.
    #[inline(always)]
    fn come_to(&self, index: usize, way: usize, position: &mut CachePosition) {
        let here = (index * ENTRIES + way + 1) as u32;
        if position.next != here
            && let Some((line, way)) = self.entry(position.last)
            && let Some(next) = line.next.get(way)
        {
            next.store(here, Ordering::Relaxed);
        }
        *position = self.follow(CachePosition { last: position.last, next: here });
    }

    #[inline(always)]
    fn entry(&self, of: u32) -> Option<(&Line, usize)> {
        let index = of.checked_sub(1)? as usize;
        Some((self.lines.get(index / ENTRIES)?, index % ENTRIES))
    }
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
        let mut position = CachePosition::default();
        recent.get(fingerprint, &mut position)
    }

    fn put(recent: &Recent, fingerprint: u64, id: u32) {
        let mut position = CachePosition::default();
        recent.put(fingerprint, id, &mut position);
    }

    #[test]
    fn recent_stacks_are_known_and_the_oldest_are_forgotten() {
        let recent = Recent::of_lines(4).unwrap();
        assert_eq!(get(&recent, 4), None);
        for of in 1..=4u32 {
            put(&recent, u64::from(of) * 4, of);
        }
        assert_eq!([4, 8, 12, 16].map(|fingerprint| get(&recent, fingerprint)), [1, 2, 3, 4].map(Some));
        put(&recent, 20, 5);
        put(&recent, 24, 6);
        assert_eq!(
            [4, 8, 12, 20, 24].map(|fingerprint| get(&recent, fingerprint)),
            [None, None, Some(3), Some(5), Some(6)]
        );
        assert_eq!(get(&recent, 5), None, "another line");
    }

    #[test]
    fn half_written_entry_is_never_found() {
        let recent = Recent::of_lines(1).unwrap();
        put(&recent, 7, 1);
        recent.lines[0].ids[0].store(2, Ordering::Relaxed);
        assert_eq!(get(&recent, 7), None);
        recent.lines[0].ids[0].store(0, Ordering::Relaxed);
        assert_eq!(get(&recent, 7), None);
    }

    #[test]
    fn successor_is_expected_to_follow_again() {
        let recent = Recent::of_lines(16).unwrap();
        let mut position = CachePosition::default();
        let step = [3, 9, 12, 3, 13];
        for fingerprint in step {
            if recent.get(fingerprint, &mut position).is_none() {
                recent.put(fingerprint, fingerprint as u32 + 100, &mut position);
            }
        }
        let line_of = |of: u32| recent.entry(of).map(|(line, _)| core::ptr::from_ref(line));
        let mut right = 0;
        for fingerprint in step.iter().chain(&step) {
            let expected = line_of(position.next);
            assert_eq!(recent.get(*fingerprint, &mut position), Some(*fingerprint as u32 + 100));
            right += usize::from(expected == line_of(position.last));
        }
        // What follows 13 is seen once before. Both 9 and 13 follow 3, and it is the other one that was last.
        assert_eq!(right, 10 - 1 - 4);
        // A position of another table, or of none.
        for last in [1, 64, 65, u32::MAX] {
            let mut position = CachePosition { last, next: last };
            recent.expect(position);
            assert_eq!(recent.get(12, &mut position), Some(112));
        }
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
                            put(recent, fingerprint, fingerprint as u32);
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
