//! Durations by kernel, where `--metrics-kernels` asks for them: the kernels with the most time have points
//! of their own, the others share one for each device.
//!
//! A cumulative total must never go down, so a kernel keeps its point. The points are given when metrics are
//! first emitted, by time so far, and points that are left are given later. Deltas are independent of each
//! other, so with them the points are given anew each time.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::label::full_name;
use crate::metrics::page::{Distribution, Exemplar};
use crate::metrics::settings::Temporality;
use crate::model::definitions::Definitions;

/// The most kernels that compete for points; more go to the shared point at once.
const CANDIDATES_MAX: usize = 2048;
/// The most names that are looked up by their text.
const NAMES_MAX: usize = 1 << 14;
/// The longest kernel name of a point.
const NAME_MAX_BYTES: usize = 256;

const OTHER: &str = "other";

/// Index of the device, and the first definition of the kernel's name.
type Key = (usize, u32);

#[derive(Debug)]
pub struct TopKernels {
    most: usize,
    own: FxHashMap<Key, Distribution>,
    candidates: FxHashMap<Key, Distribution>,
    /// By index of the device.
    other: FxHashMap<usize, Distribution>,
    /// The first definition with the same name, by definition.
    names: FxHashMap<u32, u32>,
    by_text: FxHashMap<Arc<str>, u32>,
}

impl TopKernels {
    /// `None` if no kernel may have a point.
    pub fn new(most: usize) -> Option<TopKernels> {
        (most > 0).then(|| TopKernels {
            most,
            own: FxHashMap::default(),
            candidates: FxHashMap::default(),
            other: FxHashMap::default(),
            names: FxHashMap::default(),
            by_text: FxHashMap::default(),
        })
    }

    pub fn add(
        &mut self,
        device: usize,
        name: u32,
        duration_ns: u64,
        is_span: bool,
        exemplar: impl FnOnce() -> Exemplar,
        definitions: &Definitions,
    ) {
        let key = (device, self.first_of_name(name, definitions));
        if let Some(own) = self.own.get_mut(&key) {
            return own.add_span(duration_ns, is_span, exemplar);
        }
        let is_candidate = self.own.len() < self.most
            && (self.candidates.len() < CANDIDATES_MAX || self.candidates.contains_key(&key));
        let to = if is_candidate {
            self.candidates.entry(key).or_insert_with(Distribution::seconds)
        } else {
            self.other.entry(device).or_insert_with(Distribution::seconds)
        };
        to.add_span(duration_ns, is_span, exemplar);
    }

    fn first_of_name(&mut self, name: u32, definitions: &Definitions) -> u32 {
        if let Some(first) = self.names.get(&name) {
            return *first;
        }
        let Some(text) = definitions.name(name) else { return 0 };
        if self.names.len() >= NAMES_MAX {
            return name;
        }
        let first = *self.by_text.entry(text.into()).or_insert(name);
        self.names.insert(name, first);
        first
    }

    /// Gives the points that are left to the candidates with the most time.
    fn rank(&mut self) {
        let mut candidates: Vec<_> = self.candidates.drain().collect();
        candidates.sort_by_key(|(key, of)| (std::cmp::Reverse(of.histogram.sum()), *key));
        for (key, of) in candidates {
            if self.own.len() < self.most {
                self.own.insert(key, of);
            } else {
                self.other.entry(key.0).or_insert_with(Distribution::seconds).merge(&of);
            }
        }
    }

    /// Calls `emit` for every point with the device's index, the kernel's name and the durations.
    pub fn emit(
        &mut self,
        temporality: Temporality,
        definitions: &Definitions,
        mut emit: impl FnMut(usize, &str, &mut Distribution),
    ) {
        self.rank();
        let mut own: Vec<_> = self.own.iter_mut().collect();
        own.sort_by_key(|(key, _)| **key);
        let mut names_emitted = FxHashSet::default();
        for ((device, name), of) in own {
            let name = full_name(*name, Some(definitions));
            let end = name.floor_char_boundary(NAME_MAX_BYTES);
            let mut cut = name.get(..end).unwrap_or_default().to_owned();
            // Long names may begin alike, and points with equal attributes would replace each other.
            while cut == OTHER || !names_emitted.insert((*device, cut.clone())) {
                cut.push('\'');
            }
            emit(*device, &cut, of);
        }
        let mut other: Vec<_> = self.other.iter_mut().collect();
        other.sort_by_key(|(device, _)| **device);
        for (device, of) in other {
            emit(*device, OTHER, of);
        }
        if temporality == Temporality::Delta {
            self.own.clear();
            self.other.clear();
        }
    }
}
