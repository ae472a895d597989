//! Stacks: where device time, or host time, came from.
//!
//! A key holds ids only; frames are made of them when a flamegraph is drawn. The stack id, 0 for
//! none, leaves the place for the frames of the program between thread and call.

use rustc_hash::FxHashMap;

use crate::model::operation::Direction;

/// Stacks kept; the weight of more goes to one stack a process.
const STACKS_MAX: usize = 1 << 18;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StackKey {
    pub process: u32,
    /// Thread definition; 0 where no host call is known.
    pub thread: u32,
    /// Stack definition, 0 for none.
    pub stack: u32,
    /// API definition; 0 where no host call is known.
    pub api: u32,
    pub leaf: Leaf,
}

/// What is at the end of a stack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Leaf {
    /// The call itself (host time only).
    Call,
    /// Name definition.
    Kernel(u32),
    /// Function definition, whose name the kernel has (host time only).
    Function(u32),
    Copy(Direction),
    Fill,
    Graph,
    /// Whatever did not fit.
    Other,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Weight {
    pub ns: u64,
    pub count: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Stacks {
    weights: FxHashMap<StackKey, Weight>,
}

impl Stacks {
    #[inline]
    pub fn add(&mut self, key: StackKey, ns: u64) {
        let full = self.weights.len() >= STACKS_MAX;
        let weight = match self.weights.get_mut(&key) {
            Some(weight) => weight,
            None if !full => self.weights.entry(key).or_default(),
            None => {
                let other = StackKey { process: key.process, thread: 0, stack: 0, api: 0, leaf: Leaf::Other };
                self.weights.entry(other).or_default()
            }
        };
        weight.ns = weight.ns.saturating_add(ns);
        weight.count += 1;
    }

    /// By key.
    pub fn sorted(&self) -> Vec<(StackKey, Weight)> {
        let mut all: Vec<_> = self.weights.iter().map(|(key, weight)| (*key, *weight)).collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all
    }

    pub fn total_ns(&self) -> u64 {
        self.weights.values().fold(0, |sum: u64, weight| sum.saturating_add(weight.ns))
    }

    pub fn is_empty(&self) -> bool {
        self.weights.is_empty()
    }
}
