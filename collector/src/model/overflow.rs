//! The overflow table: calls that lost their slot in the join's window to a later call before their records
//! came. A full table evicts its oldest call.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::model::key::JoinKey;
use crate::model::operation::HostCall;
use crate::model::pending_call::PendingCall;

/// 1 MiB: enough for two hundred threads with some twenty delayed calls each.
const CALLS_MAX: usize = 4096;

#[derive(Debug, Default)]
pub struct OverflowTable {
    calls: FxHashMap<JoinKey, OverflowCall>,
    /// Keys with the number of their insertion, oldest first. Entries of removed or replaced calls are
    /// skipped.
    ages: VecDeque<(JoinKey, u64)>,
    put: u64,
}

#[derive(Debug)]
struct OverflowCall {
    number: u64,
    pending: PendingCall,
}

impl OverflowTable {
    /// Adds a call; returns the call that was evicted for it.
    pub fn put(&mut self, key: JoinKey, pending: PendingCall) -> Option<(JoinKey, PendingCall)> {
        self.put += 1;
        let twin = self.calls.insert(key, OverflowCall { number: self.put, pending });
        if self.ages.len() >= 2 * CALLS_MAX {
            let calls = &self.calls;
            self.ages.retain(|(key, number)| calls.get(key).is_some_and(|kept| kept.number == *number));
        }
        self.ages.push_back((key, self.put));
        if let Some(twin) = twin {
            return Some((key, twin.pending));
        }
        while self.calls.len() > CALLS_MAX {
            let (oldest, number) = self.ages.pop_front()?;
            if self.calls.get(&oldest).is_some_and(|kept| kept.number == number) {
                return self.calls.remove(&oldest).map(|kept| (oldest, kept.pending));
            }
        }
        None
    }

    #[inline]
    pub fn get(&mut self, key: JoinKey) -> Option<&mut PendingCall> {
        if self.calls.is_empty() { None } else { self.calls.get_mut(&key).map(|kept| &mut kept.pending) }
    }

    pub fn remove(&mut self, key: JoinKey) {
        self.calls.remove(&key);
    }

    /// Moves the calls for which `is_after` is true to an epoch that began before them and was read after
    /// them.
    pub fn move_to_epoch(&mut self, epoch: u32, is_after: impl Fn(&HostCall) -> bool) {
        for (key, number) in &mut self.ages {
            let is_moved = self.calls.get(key).is_some_and(|kept| {
                kept.number == *number && !kept.pending.matched && is_after(&kept.pending.call)
            });
            // A call that already has the new key must not be replaced.
            let to = JoinKey { epoch, ..*key };
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

impl IntoIterator for OverflowTable {
    type Item = (JoinKey, PendingCall);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    /// In arbitrary order.
    fn into_iter(self) -> Self::IntoIter {
        self.calls.into_iter().map(|(key, kept)| (key, kept.pending)).collect::<Vec<_>>().into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(correlation: u32) -> JoinKey {
        JoinKey { epoch: 1, correlation }
    }

    fn pending(start_ns: u64) -> PendingCall {
        let call = HostCall { start_ns, ..HostCall::default() };
        PendingCall { call, matched: false, many: false, form: Default::default(), nodes_ns: 0 }
    }

    fn put(overflow: &mut OverflowTable, correlation: u32) -> Option<u32> {
        overflow.put(key(correlation), pending(correlation.into())).map(|(key, _)| key.correlation)
    }

    #[test]
    fn oldest_call_leaves_a_full_table() {
        let mut overflow = OverflowTable::default();
        let most = u32::try_from(CALLS_MAX).unwrap();
        assert!((0..most).all(|id| put(&mut overflow, id).is_none()));
        assert_eq!(put(&mut overflow, most), Some(0));
        assert!(overflow.get(key(0)).is_none());
        assert_eq!(overflow.get(key(1)).map(|pending| pending.call.start_ns), Some(1));
        overflow.remove(key(1));
        assert_eq!(put(&mut overflow, most + 1), None);
        assert_eq!(put(&mut overflow, most + 2), Some(2), "1 is gone already");
        assert_eq!(put(&mut overflow, most + 2), Some(most + 2), "a twin goes at once");
        assert_eq!(overflow.into_iter().count(), CALLS_MAX);
    }

    #[test]
    fn calls_that_come_and_go_take_no_memory() {
        let mut overflow = OverflowTable::default();
        for _ in 0..10 * CALLS_MAX {
            put(&mut overflow, 7);
            overflow.remove(key(7));
            put(&mut overflow, 7);
            assert!(overflow.ages.len() <= 2 * CALLS_MAX);
        }
        assert_eq!(put(&mut overflow, 8), None);
        assert!(overflow.get(key(7)).is_some());
    }

    #[test]
    fn calls_of_a_later_epoch_are_found_in_it() {
        let mut overflow = OverflowTable::default();
        (1..=3).for_each(|id| assert_eq!(put(&mut overflow, id), None));
        overflow.move_to_epoch(2, |call| call.start_ns >= 2);
        assert!(overflow.get(key(1)).is_some() && overflow.get(key(2)).is_none());
        assert!(overflow.get(JoinKey { epoch: 2, correlation: 3 }).is_some());
        // A call with the same key is not replaced.
        assert_eq!(put(&mut overflow, 3), None);
        overflow.move_to_epoch(2, |_| true);
        assert_eq!(overflow.into_iter().count(), 4);
    }
}
