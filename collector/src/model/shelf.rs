//! Calls whose slot in the window went to a later one before their records came: the latest few of
//! them, found by their key. The oldest goes when there are too many.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::model::key::Key;
use crate::model::operation::HostCall;
use crate::model::waiting::Waiting;

/// As many as two hundred threads may be held up with, some twenty each: 1 MiB.
const CALLS_MAX: usize = 4096;

#[derive(Debug, Default)]
pub struct Shelf {
    calls: FxHashMap<Key, Kept>,
    /// The oldest first, and some that are gone or there anew under another number.
    ages: VecDeque<(Key, u64)>,
    put: u64,
}

#[derive(Debug)]
struct Kept {
    number: u64,
    waiting: Waiting,
}

impl Shelf {
    /// Keeps the call; returns the one that has to go for it.
    pub fn put(&mut self, key: Key, waiting: Waiting) -> Option<(Key, Waiting)> {
        self.put += 1;
        let twin = self.calls.insert(key, Kept { number: self.put, waiting });
        if self.ages.len() >= 2 * CALLS_MAX {
            let calls = &self.calls;
            self.ages.retain(|(key, number)| calls.get(key).is_some_and(|kept| kept.number == *number));
        }
        self.ages.push_back((key, self.put));
        if let Some(twin) = twin {
            return Some((key, twin.waiting));
        }
        while self.calls.len() > CALLS_MAX {
            let (oldest, number) = self.ages.pop_front()?;
            if self.calls.get(&oldest).is_some_and(|kept| kept.number == number) {
                return self.calls.remove(&oldest).map(|kept| (oldest, kept.waiting));
            }
        }
        None
    }

    #[inline]
    pub fn get(&mut self, key: Key) -> Option<&mut Waiting> {
        if self.calls.is_empty() { None } else { self.calls.get_mut(&key).map(|kept| &mut kept.waiting) }
    }

    pub fn remove(&mut self, key: Key) {
        self.calls.remove(&key);
    }

    /// Calls from a moment on belong to another epoch than was thought.
    pub fn move_to_epoch(&mut self, epoch: u32, is_after: impl Fn(&HostCall) -> bool) {
        for (key, number) in &mut self.ages {
            let is_moved = self.calls.get(key).is_some_and(|kept| {
                kept.number == *number && !kept.waiting.matched && is_after(&kept.waiting.call)
            });
            // A call of that key that is there already is not one to lose.
            let to = Key { epoch, ..*key };
            if is_moved
                && !self.calls.contains_key(&to)
                && let Some(kept) = self.calls.remove(key)
            {
                *key = to;
                self.calls.insert(*key, kept);
            }
        }
    }
}

impl IntoIterator for Shelf {
    type Item = (Key, Waiting);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    /// In no order.
    fn into_iter(self) -> Self::IntoIter {
        self.calls.into_iter().map(|(key, kept)| (key, kept.waiting)).collect::<Vec<_>>().into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(correlation: u32) -> Key {
        Key { epoch: 1, correlation }
    }

    fn waiting(start_ns: u64) -> Waiting {
        let call = HostCall { start_ns, ..HostCall::default() };
        Waiting { call, matched: false, many: false, form: Default::default(), nodes_ns: 0 }
    }

    fn put(shelf: &mut Shelf, correlation: u32) -> Option<u32> {
        shelf.put(key(correlation), waiting(correlation.into())).map(|(key, _)| key.correlation)
    }

    #[test]
    fn the_oldest_goes_and_what_was_taken_makes_room() {
        let mut shelf = Shelf::default();
        let most = u32::try_from(CALLS_MAX).unwrap();
        assert!((0..most).all(|id| put(&mut shelf, id).is_none()));
        assert_eq!(put(&mut shelf, most), Some(0));
        assert!(shelf.get(key(0)).is_none());
        assert_eq!(shelf.get(key(1)).map(|waiting| waiting.call.start_ns), Some(1));
        shelf.remove(key(1));
        assert_eq!(put(&mut shelf, most + 1), None);
        assert_eq!(put(&mut shelf, most + 2), Some(2), "1 is gone already");
        assert_eq!(put(&mut shelf, most + 2), Some(most + 2), "a twin goes at once");
        assert_eq!(shelf.into_iter().count(), CALLS_MAX);
    }

    #[test]
    fn one_that_comes_and_goes_takes_no_memory() {
        let mut shelf = Shelf::default();
        for _ in 0..10 * CALLS_MAX {
            put(&mut shelf, 7);
            shelf.remove(key(7));
            put(&mut shelf, 7);
            assert!(shelf.ages.len() <= 2 * CALLS_MAX);
        }
        assert_eq!(put(&mut shelf, 8), None);
        assert!(shelf.get(key(7)).is_some());
    }

    #[test]
    fn calls_of_a_later_epoch_are_found_in_it() {
        let mut shelf = Shelf::default();
        (1..=3).for_each(|id| assert_eq!(put(&mut shelf, id), None));
        shelf.move_to_epoch(2, |call| call.start_ns >= 2);
        assert!(shelf.get(key(1)).is_some() && shelf.get(key(2)).is_none());
        assert!(shelf.get(Key { epoch: 2, correlation: 3 }).is_some());
        // None is lost over another of its key.
        assert_eq!(put(&mut shelf, 3), None);
        shelf.move_to_epoch(2, |_| true);
        assert_eq!(shelf.into_iter().count(), 4);
    }
}
