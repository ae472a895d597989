//! A cache of unwind rules, by code address. Each address has two possible entries, and the older one is
//! overwritten. There is no lock: an entry's two words are checked against each other, and a torn entry
//! matches nothing.

use core::sync::atomic::{AtomicU64, Ordering};

use gputrace_producer::memory::{self, Zeroed};

use super::rule::Rule;

/// 512 KiB, touched where used.
const ENTRIES: usize = 1 << 15;
/// Addresses have 47 bits; the bits above contain the epoch, which changes when a library is closed.
const ADDRESS_BITS: u32 = 47;
/// After so many closed libraries all rules are discarded, and counting begins again.
const EPOCHS: u32 = 1 << (64 - ADDRESS_BITS);

struct RuleEntry {
    /// The key xor the rule: an entry whose halves belong to different rules has a key that is never looked
    /// up.
    check: AtomicU64,
    rule: AtomicU64,
}

// SAFETY: zeroed atomics; an entry of zeros has the key 0, which no address has.
unsafe impl Zeroed for RuleEntry {}

pub struct Rules {
    entries: &'static [RuleEntry],
}

#[inline(always)]
fn key_of(address: u64, epoch: u32) -> u64 {
    address | u64::from(epoch) << ADDRESS_BITS
}

impl Rules {
    pub fn new() -> Option<Rules> {
        Some(Rules { entries: memory::map(ENTRIES)? })
    }

    #[inline(always)]
    fn first(address: u64) -> usize {
        (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - ENTRIES.trailing_zeros())) as usize
    }

    #[inline(always)]
    fn at(&self, index: usize, key: u64) -> Option<Rule> {
        let entry = self.entries.get(index)?;
        let rule = entry.rule.load(Ordering::Relaxed);
        (entry.check.load(Ordering::Relaxed) ^ rule == key).then(|| Rule::from_word(rule))
    }

    /// The rule of a code address, if it was stored in that epoch.
    #[inline(always)]
    pub fn get(&self, address: u64, epoch: u32) -> Option<Rule> {
        let (first, key) = (Rules::first(address), key_of(address, epoch));
        match self.at(first, key) {
            None => self.at(first ^ 1, key),
            found => found,
        }
    }

    pub fn keep(&self, address: u64, epoch: u32, rule: Rule) {
        let (first, key) = (Rules::first(address), key_of(address, epoch));
        // The old entry moves to the second slot, and the entry there is evicted.
        if let (Some(entry), Some(second)) = (self.entries.get(first), self.entries.get(first ^ 1)) {
            let (check, old) = (entry.check.load(Ordering::Relaxed), entry.rule.load(Ordering::Relaxed));
            // If the old entry's own first slot is the other one, the old entry stays there.
            if old != 0 && Rules::first((check ^ old) & ((1 << ADDRESS_BITS) - 1)) == first {
                second.rule.store(old, Ordering::Relaxed);
                second.check.store(check, Ordering::Relaxed);
            }
            entry.rule.store(rule.word(), Ordering::Relaxed);
            entry.check.store(key ^ rule.word(), Ordering::Relaxed);
        }
    }

    /// The epoch as part of a key. All rules are discarded when it wraps; otherwise an old rule would be
    /// taken for a current one.
    pub fn epoch_of(count: u32) -> u32 {
        count % EPOCHS
    }

    pub fn forget_all(&self) {
        for entry in self.entries {
            entry.check.store(0, Ordering::Relaxed);
            entry.rule.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rule::{Kind, SavedBp};
    use super::*;

    fn rule(offset: i64) -> Rule {
        Rule::new(Kind::Sp, offset * 8, SavedBp::Unchanged).unwrap()
    }

    #[test]
    fn rules_are_found_by_address_and_epoch() {
        let rules = Rules::new().unwrap();
        assert_eq!(rules.get(0x1000, 0), None);
        rules.keep(0x1000, 3, rule(7));
        assert_eq!(rules.get(0x1000, 3), Some(rule(7)));
        assert_eq!((rules.get(0x1000, 4), rules.get(0x1001, 3)), (None, None));
        rules.keep(0x1000, 4, rule(9));
        assert_eq!(rules.get(0x1000, 4), Some(rule(9)));
        rules.forget_all();
        assert_eq!((rules.get(0x1000, 3), rules.get(0x1000, 4)), (None, None));
    }

    #[test]
    fn rule_is_found_or_forgotten_and_never_another() {
        let rules = Rules::new().unwrap();
        let addresses = || (0..100_000u64).map(|index| 0x7f00_0000_0000 + index * 13);
        for address in addresses() {
            rules.keep(address, 0, rule((address % 1_000) as i64 + 1));
            assert_eq!(rules.get(address, 0), Some(rule((address % 1_000) as i64 + 1)));
        }
        let found = addresses().filter_map(|address| rules.get(address, 0).map(|found| (address, found)));
        let found: Vec<_> = found.collect();
        assert!(found.iter().all(|(address, found)| *found == rule((address % 1_000) as i64 + 1)));
        assert!(found.len() > ENTRIES / 2 && found.len() <= ENTRIES, "{}", found.len());
    }
}
