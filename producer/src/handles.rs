//! Handle → definition id, without a lock: open addressing over atomics, in its own mapping.
//!
//! A handle's first slots are in the table's beginning, which is large enough for most programs' handles, so
//! that few pages are touched: a page's first touch takes longer than all else that is done for a new handle.
//! Where these slots are taken, the handle has others in the rest of the table.
//!
//! A handle is defined at first sight and forgotten when it is destroyed. A handle made again at the same
//! address gets a new id in the same slot. If the table is full, or another thread is defining the handle
//! and takes long, the answer is 0, "undefined", which the caller counts. A caller that would rather define
//! the handle once more asks [`Handles::get_or_define_now`].
//!
//! Known gaps:
//!
//! * A thread that forgets a handle while another thread is defining it forgets nothing, and a handle made
//!   again at that address keeps the old id. A [`Handles::redefine`] during a definition at first sight
//!   takes that definition, without the facts that only the creating call knew. Both cases need a program
//!   that creates or destroys a handle while another thread uses it.
//! * A slot belongs to its address for good, forgotten or not. A program that uses ever new addresses fills
//!   the table; from then on new handles are undefined, and counted.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::memory::{self, Zeroed, prefetch};

#[derive(Debug)]
pub struct Handles {
    /// The table's beginning, and the rest.
    slots: &'static [HandleSlot],
    /// How many slots the beginning has: a power of two.
    near: usize,
}

/// A handle and its id, in one cache line: a look-up finds them cold.
#[derive(Debug)]
#[repr(C)]
struct HandleSlot {
    key: AtomicU64,
    id: AtomicU32,
    unused: AtomicU32,
}

// SAFETY: zeroed atomics; the key 0 is no handle.
unsafe impl Zeroed for HandleSlot {}

/// The id while a thread defines the handle.
const BUSY: u32 = u32::MAX;
/// The beginning is this part of a table's slots, and one slot at least.
const NEAR_PART: usize = 32;
/// How many slots of the beginning are tried for a handle: those of two or three cache lines.
const NEAR_PROBES: usize = 8;
/// How many slots of the rest are tried before the table counts as full.
const PROBES: usize = 64;

impl Handles {
    /// A table for about `slots / 2` handles; `slots` is a power of two.
    pub fn new(slots: usize) -> Option<Handles> {
        debug_assert!(slots.is_power_of_two());
        Some(Handles { slots: memory::map(slots)?, near: (slots / NEAR_PART).max(1) })
    }

    #[inline(always)]
    fn first_slot(&self, key: u64) -> usize {
        spread(key) & self.near.wrapping_sub(1)
    }

    /// All slots in which the handle may be, in the order in which they are tried.
    fn probe(&self, key: u64) -> impl Iterator<Item = (&AtomicU64, &AtomicU32)> {
        let (near, rest) = self.slots.split_at_checked(self.near).unwrap_or_default();
        let first_of_rest = spread(key).checked_rem(rest.len()).unwrap_or(0);
        let from = |slots: &'static [HandleSlot], first: usize, probes: usize| {
            slots.iter().skip(first).chain(slots).take(probes.min(slots.len()))
        };
        let near = from(near, self.first_slot(key), NEAR_PROBES);
        near.chain(from(rest, first_of_rest, PROBES)).map(|slot| (&slot.key, &slot.id))
    }

    /// Prefetches the handle's slot.
    #[inline(always)]
    pub fn expect(&self, key: u64) {
        if let Some(slot) = self.slots.get(self.first_slot(key)) {
            prefetch(slot);
        }
    }

    /// The handle's id, if it is defined.
    #[inline(always)]
    pub fn get(&self, key: u64) -> Option<u32> {
        // Nearly every handle is in its first slot: one comparison, without the search.
        if let Some(slot) = self.slots.get(self.first_slot(key))
            && slot.key.load(Ordering::Acquire) == key
        {
            // SYNC: pairs with the Release store in `get_or_else`. The definition was published by its
            // own word; this load only orders the id.
            return Some(slot.id.load(Ordering::Acquire)).filter(|id| *id != 0 && *id != BUSY);
        }
        self.search(key)
    }

    #[cold]
    #[inline(never)]
    fn search(&self, key: u64) -> Option<u32> {
        for (slot, id) in self.probe(key) {
            match slot.load(Ordering::Acquire) {
                0 => return None,
                // SYNC: as above.
                found if found == key => {
                    return Some(id.load(Ordering::Acquire)).filter(|id| *id != 0 && *id != BUSY);
                }
                _ => {}
            }
        }
        None
    }

    /// The handle's id; at first sight the result of `define`. 0 if the table is full, or if another thread
    /// is defining the handle and takes long.
    #[inline]
    pub fn get_or_define(&self, key: u64, define: impl FnOnce() -> u32) -> u32 {
        self.get_or_else(key, define).unwrap_or(0)
    }

    /// The same, but where another thread takes long, the result of a `define` of this thread's, unless the
    /// other one is done by then. The handle then has two definitions; the table keeps the other thread's.
    pub fn get_or_define_now(&self, key: u64, define: impl Fn() -> u32) -> u32 {
        self.get_or_else(key, &define).unwrap_or_else(|| {
            let own = define();
            self.get(key).unwrap_or(own)
        })
    }

    /// The handle's id; at first sight the result of `define`. 0 if the table is full, and `None` if another
    /// thread is defining the handle and takes long.
    #[inline]
    fn get_or_else(&self, key: u64, define: impl FnOnce() -> u32) -> Option<u32> {
        if let Some(id) = self.get(key) {
            return Some(id);
        }
        if key == 0 {
            return Some(0);
        }
        for (slot, id) in self.probe(key) {
            let found = match slot.compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => key,
                Err(found) => found,
            };
            if found != key {
                continue;
            }
            return match id.compare_exchange(0, BUSY, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    let new = define();
                    id.store(new, Ordering::Release);
                    Some(new)
                }
                Err(BUSY) => wait_for(id),
                Err(known) => Some(known),
            };
        }
        Some(0)
    }

    /// Replaces the handle's id, because the handle was just created.
    pub fn redefine(&self, key: u64, define: impl FnOnce() -> u32) -> u32 {
        self.forget(key);
        self.get_or_define(key, define)
    }

    /// Calls `each` with every defined handle and its id.
    pub fn for_each(&self, mut each: impl FnMut(u64, u32)) {
        for slot in self.slots {
            let (key, id) = (slot.key.load(Ordering::Acquire), slot.id.load(Ordering::Acquire));
            if key != 0 && id != 0 && id != BUSY {
                each(key, id);
            }
        }
    }

    /// Forgets a handle that was destroyed: if it is seen again, it is a new object.
    pub fn forget(&self, key: u64) {
        for (slot, id) in self.probe(key) {
            match slot.load(Ordering::Acquire) {
                0 => return,
                found if found == key => {
                    let known = id.load(Ordering::Acquire);
                    if known != BUSY {
                        let _ = id.compare_exchange(known, 0, Ordering::AcqRel, Ordering::Relaxed);
                    }
                    return;
                }
                _ => {}
            }
        }
    }
}

/// Fibonacci hashing: handles are addresses, and their low bits are alike. A bit of the product depends on
/// the key's bits up to that one, so high ones are taken.
#[inline(always)]
fn spread(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize
}

/// Waits for another thread's definition of the handle, mostly a few hundred nanoseconds. `None` after
/// 2,000 tries, which are up to some 100 µs: the thread has lost its processor, or its `define` takes long.
fn wait_for(id: &AtomicU32) -> Option<u32> {
    for _ in 0..2_000 {
        match id.load(Ordering::Acquire) {
            BUSY => core::hint::spin_loop(),
            id => return Some(id),
        }
    }
    None
}

/// A key for a name: a 64-bit hash of its bytes, never 0. Two names of one program collide with a chance of
/// about n²/2^65, 10^-12 for ten thousand names.
pub fn key_of(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64 ^ bytes.len() as u64;
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let word = u64::from_le_bytes(chunk.try_into().unwrap_or([0; 8]));
        hash = mix(hash ^ word);
    }
    let mut last = [0u8; 8];
    for (to, from) in last.iter_mut().zip(chunks.remainder()) {
        *to = *from;
    }
    mix(hash ^ u64::from_le_bytes(last)).max(1)
}

fn mix(value: u64) -> u64 {
    let product = u128::from(value ^ 0x2d35_8dcc_aa6c_78a5) * u128::from(0x8bb8_4b93_962e_acc9u64);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn handles_keep_their_id_until_forgotten() {
        let table = Handles::new(64).unwrap();
        assert_eq!(table.get(0x1000), None);
        assert_eq!(table.get_or_define(0x1000, || 5), 5);
        assert_eq!(table.get_or_define(0x1000, || 6), 5);
        table.forget(0x1000);
        assert_eq!(table.get(0x1000), None);
        assert_eq!(table.get_or_define(0x1000, || 7), 7);
        assert_eq!(table.redefine(0x1000, || 8), 8);
        assert_eq!(table.get(0x1000), Some(8));
    }

    #[test]
    fn full_table_answers_undefined() {
        let table = Handles::new(16).unwrap();
        let answers: Vec<u32> = (1..=32u64).map(|key| table.get_or_define(key << 8, || key as u32)).collect();
        assert!(answers.iter().filter(|id| **id != 0).count() <= 16);
        assert!(answers.contains(&0));
    }

    #[test]
    fn the_whole_table_is_used_once_its_beginning_is_full() {
        let table = Handles::new(1 << 13).unwrap();
        let keys: Vec<u64> = (1..=1u64 << 12).map(|number| number << 8).collect();
        for key in &keys {
            assert_eq!(table.get_or_define(*key, || (key >> 8) as u32), (key >> 8) as u32);
        }
        for key in &keys {
            assert_eq!(table.get(*key), Some((key >> 8) as u32));
        }
        let mut listed = Vec::new();
        table.for_each(|key, _| listed.push(key));
        listed.sort_unstable();
        assert_eq!(listed, keys);
    }

    #[test]
    fn few_handles_are_in_few_pages() {
        let table = Handles::new(1 << 17).unwrap();
        for number in 1..=1_000u64 {
            table.get_or_define(number * 0x280, || 1);
        }
        let last = table.slots.iter().rposition(|slot| slot.key.load(Ordering::Relaxed) != 0);
        assert!(last.unwrap() < (1 << 17) / NEAR_PART, "{last:?}");
    }

    #[test]
    fn threads_agree_on_ids() {
        let table = Handles::new(4096).unwrap();
        let next = AtomicU32::new(1);
        let seen: Vec<HashMap<u64, u32>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        (1..1000u64)
                            .map(|key| {
                                (key, table.get_or_define(key * 64, || next.fetch_add(1, Ordering::Relaxed)))
                            })
                            .collect()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for map in &seen {
            for (key, id) in map {
                assert!(*id == 0 || *id == seen[0][key] || seen[0][key] == 0);
            }
        }
    }

    #[test]
    fn handle_whose_definition_takes_long_is_defined_by_who_needs_it_now() {
        let table = Handles::new(64).unwrap();
        let in_definition = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| {
                table.get_or_define(0x1000, || {
                    in_definition.wait();
                    in_definition.wait();
                    5
                })
            });
            in_definition.wait();
            assert_eq!(table.get_or_define(0x1000, || 6), 0);
            assert_eq!(table.get_or_define_now(0x1000, || 7), 7);
            in_definition.wait();
            assert_eq!(slow.join().unwrap(), 5);
        });
        assert_eq!(table.get_or_define_now(0x1000, || 8), 5);
    }

    #[test]
    fn handles_of_a_full_table_are_not_defined_at_each_sight() {
        let table = Handles::new(16).unwrap();
        let undefined = (1..=32u64).rfind(|key| table.get_or_define(key << 8, || 5) == 0).unwrap();
        assert_eq!(table.get_or_define_now(undefined << 8, || 99), 0);
    }

    #[test]
    fn name_keys_differ() {
        let mut keys: Vec<u64> = (0..20_000).map(|i| key_of(format!("kernel_{i}").as_bytes())).collect();
        keys.push(key_of(b""));
        keys.push(key_of(b"\0"));
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 20_002);
    }
}
