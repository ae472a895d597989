//! A table with a bound on its rows. Its owner counts what finds no row.

use std::collections::hash_map::Entry;
use std::hash::Hash;

use rustc_hash::FxHashMap;

#[derive(Clone, Debug)]
pub(super) struct Bounded<K, V, const ROWS_MAX: usize>(FxHashMap<K, V>);

impl<K, V, const ROWS_MAX: usize> Default for Bounded<K, V, ROWS_MAX> {
    fn default() -> Self {
        Bounded(FxHashMap::default())
    }
}

impl<K: Copy + Eq + Hash + Ord, V, const ROWS_MAX: usize> Bounded<K, V, ROWS_MAX> {
    /// The key's row, made if there is none so far; `None` if the table is full.
    #[inline]
    pub fn row(&mut self, key: K, make: impl FnOnce() -> V) -> Option<&mut V> {
        let is_full = self.0.len() >= ROWS_MAX;
        match self.0.entry(key) {
            Entry::Occupied(row) => Some(row.into_mut()),
            Entry::Vacant(_) if is_full => None,
            Entry::Vacant(vacant) => Some(vacant.insert(make())),
        }
    }

    pub fn get(&self, key: &K) -> Option<&V> {
        self.0.get(key)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(key)
    }

    /// In no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter()
    }

    /// By key.
    pub fn sorted(&self) -> Vec<(K, &V)> {
        let mut all: Vec<_> = self.0.iter().map(|(key, row)| (*key, row)).collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all
    }
}
