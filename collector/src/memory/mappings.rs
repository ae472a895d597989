//! The virtual memory interface: physical memory, which is there as long as a handle or a mapping of it is.
//!
//! Programs may release a handle right after mapping it. The driver may then give the same handle again.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

/// Physical memory of which more than the first handle is known.
#[derive(Clone, Copy, Debug, Default)]
struct References {
    mappings: u32,
    /// Handles that are not released, without the first.
    retained: u32,
    /// The first handle is released.
    is_released: bool,
}

#[derive(Clone, Copy, Debug)]
struct MappedRange {
    key: u64,
    /// 0 if it is not known.
    bytes: u64,
}

/// Keys of physical memory. The key is the first handle, unless that handle was given again while what it
/// stood for before is still mapped.
#[derive(Clone, Debug, Default)]
pub struct Mappings {
    /// What is mapped where.
    by_address: BTreeMap<u64, MappedRange>,
    references: FxHashMap<u64, References>,
    /// Handles that are not their memory's key.
    others: FxHashMap<u64, u64>,
    made_keys: u64,
}

/// The driver gives the first handle again, so other ones are rare. All are looked through when memory goes.
const OTHERS_MAX: usize = 1 << 10;
/// No handle has this bit, for addresses of programs have at most 57.
const MADE_KEY: u64 = 1 << 63;

impl Mappings {
    /// The key of new physical memory.
    pub fn created(&mut self, handle: u64) -> u64 {
        self.others.remove(&handle);
        if !self.references.contains_key(&handle) {
            return handle;
        }
        self.made_keys += 1;
        let key = MADE_KEY | self.made_keys;
        self.others.insert(handle, key);
        key
    }

    /// A handle was released. Returns the key of the memory if it is freed with it.
    pub fn released(&mut self, handle: u64) -> Option<u64> {
        let key = self.key(handle);
        let Some(references) = self.references.get_mut(&key) else {
            self.others.remove(&handle);
            return Some(key);
        };
        if references.retained > 0 {
            references.retained -= 1;
        } else {
            references.is_released = true;
        }
        self.if_unused(key)
    }

    /// Returns whether one mapping more is known.
    pub fn mapped(&mut self, address: u64, handle: u64, bytes: u64) -> bool {
        let key = self.key(handle);
        self.references.entry(key).or_default().mappings += 1;
        let before = self.by_address.insert(address, MappedRange { key, bytes });
        if let Some(before) = before {
            // What was mapped there before was unmapped by a call that is not known.
            self.unmap(before.key);
        }
        before.is_none()
    }

    /// The keys of what was mapped in a range, and of it those that are freed with the mapping.
    pub fn unmapped(&mut self, address: u64, bytes: u64) -> (usize, Vec<u64>) {
        let end = address.saturating_add(bytes.max(1));
        // The driver unmaps whole mappings only. Of one that it cuts all the same, the end stays mapped.
        let last = self.by_address.range(address..end).next_back().map(|(at, mapping)| (*at, *mapping));
        let left = last.filter(|(at, mapping)| {
            at.saturating_add(mapping.bytes) > end && !self.by_address.contains_key(&end)
        });
        let all: Vec<(u64, u64)> =
            self.by_address.range(address..end).map(|(at, mapping)| (*at, mapping.key)).collect();
        if let Some((at, mapping)) = left {
            let bytes = at.saturating_add(mapping.bytes) - end;
            self.by_address.remove(&at);
            self.by_address.insert(end, MappedRange { bytes, ..mapping });
        }
        let whole = all.get(..all.len() - usize::from(left.is_some())).unwrap_or_default();
        let freed = whole.iter().filter_map(|(at, key)| {
            self.by_address.remove(at);
            self.unmap(*key)
        });
        (whole.len(), freed.collect())
    }

    /// One more handle of what is mapped at an address.
    pub fn retained(&mut self, address: u64, handle: u64) {
        let Some((at, mapping)) = self.by_address.range(..=address).next_back() else { return };
        if mapping.bytes > 0 && address - at >= mapping.bytes {
            return;
        }
        let key = mapping.key;
        let references = self.references.entry(key).or_default();
        references.retained = references.retained.saturating_add(1);
        if handle != key && self.others.len() < OTHERS_MAX {
            self.others.insert(handle, key);
        }
    }

    /// The addresses at which something is mapped, in their order, with what and its length, 0 for all of it.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        self.by_address.iter().map(|(address, mapped)| (*address, mapped.key, mapped.bytes))
    }

    /// Known mappings.
    pub fn count(&self) -> usize {
        self.by_address.len()
    }

    fn key(&self, handle: u64) -> u64 {
        self.others.get(&handle).copied().unwrap_or(handle)
    }

    fn unmap(&mut self, key: u64) -> Option<u64> {
        let references = self.references.get_mut(&key)?;
        references.mappings = references.mappings.saturating_sub(1);
        self.if_unused(key)
    }

    /// Forgets memory that only its first handle keeps, or nothing. Returns its key in the second case.
    fn if_unused(&mut self, key: u64) -> Option<u64> {
        let References { mappings, retained, is_released } = *self.references.get(&key)?;
        if mappings > 0 || retained > 0 {
            return None;
        }
        self.references.remove(&key);
        // Of memory that is still there its first handle is left, which may be among the others.
        if is_released || key & MADE_KEY == 0 {
            self.others.retain(|_, of| *of != key);
        }
        is_released.then_some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_with_its_last_handle_or_mapping() {
        let mut mappings = Mappings::default();
        assert_eq!((mappings.created(7), mappings.released(7)), (7, Some(7)));
        assert_eq!(mappings.created(7), 7);
        assert!(mappings.mapped(0x1000, 7, 0x1000) && mappings.mapped(0x9000, 7, 0));
        assert_eq!(mappings.released(7), None);
        assert_eq!(mappings.unmapped(0x1000, 0x1000), (1, vec![]));
        assert_eq!(mappings.unmapped(0x8000, 0x4000), (1, vec![7]));
        assert_eq!((mappings.count(), mappings.unmapped(0, u64::MAX)), (0, (0, vec![])));
        // Unmapped first, as allocators do.
        mappings.created(8);
        mappings.mapped(0x1000, 8, 0x1000);
        assert_eq!(mappings.unmapped(0x1000, 0x1000), (1, vec![]));
        assert_eq!(mappings.released(8), Some(8));
    }

    #[test]
    fn reused_handle_is_of_other_memory() {
        let mut mappings = Mappings::default();
        mappings.created(7);
        mappings.mapped(0x1000, 7, 0x1000);
        mappings.released(7);
        let second = mappings.created(7);
        assert_ne!(second, 7);
        mappings.mapped(0x2000, 7, 0x1000);
        assert_eq!(mappings.released(7), None);
        assert_eq!(mappings.unmapped(0x1000, 0x1000), (1, vec![7]));
        assert_eq!(mappings.unmapped(0x2000, 0x1000), (1, vec![second]));
        assert_eq!(mappings.created(7), 7);
        assert!(mappings.others.is_empty() && mappings.references.is_empty());
    }

    #[test]
    fn retained_memory_needs_one_more_release() {
        for other in [7, 9] {
            let mut mappings = Mappings::default();
            mappings.created(7);
            mappings.mapped(0x1000, 7, 0x1000);
            mappings.retained(0x1800, other);
            assert_eq!(mappings.released(other), None);
            assert_eq!(mappings.unmapped(0x1000, 0x1000), (1, vec![]));
            assert_eq!(mappings.released(7), Some(7));
            assert!(mappings.others.is_empty() && mappings.references.is_empty());
        }
        // Of an address at which nothing is known to be mapped.
        let mut mappings = Mappings::default();
        mappings.retained(0x1000, 3);
        assert_eq!(mappings.released(3), Some(3));
    }

    #[test]
    fn end_of_a_mapping_that_was_cut_keeps_its_memory() {
        let mut mappings = Mappings::default();
        mappings.created(7);
        mappings.mapped(0x1000, 7, 0x4000);
        mappings.created(8);
        mappings.mapped(0x8000, 8, 0x1000);
        assert_eq!((mappings.released(7), mappings.released(8)), (None, None));
        assert_eq!(mappings.unmapped(0x1000, 0x2000), (0, vec![]));
        // Beyond its end nothing is mapped.
        mappings.retained(0x6000, 9);
        assert_eq!(mappings.unmapped(0, 0x9000), (2, vec![7, 8]));
        assert!(mappings.count() == 0 && mappings.references.is_empty() && mappings.others.is_empty());
    }

    #[test]
    fn address_that_is_mapped_again_was_unmapped_before() {
        let mut mappings = Mappings::default();
        mappings.created(7);
        mappings.mapped(0x1000, 7, 0x1000);
        mappings.created(8);
        assert!(!mappings.mapped(0x1000, 8, 0x1000));
        assert_eq!((mappings.count(), mappings.released(7)), (1, Some(7)));
    }
}
