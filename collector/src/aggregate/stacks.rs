//! Stacks: where device time, or host time, came from.
//!
//! A key holds ids only; frames are made of them when a flamegraph is drawn. The stack's frames
//! are the program's, between thread and call.

use rustc_hash::FxHashMap;

use crate::aggregate::Rhythm;
use crate::model::operation::{Direction, PAGEABLE, memory_name};

/// Stacks that have a row; the weight of others goes to one row a process.
const STACKS_MAX: usize = 1 << 18;
/// From so many rows on, a new stack gets one row for all its streams: a server with a stream a request has
/// few lines, and its streams must not take their rows.
const FINE_MAX: usize = STACKS_MAX / 2;

/// From so many rows on, the stacks of further processes that have no row share one.
const OTHERS_MAX: usize = STACKS_MAX + (1 << 16);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StackKey {
    pub process: u32,
    /// Thread definition; 0 where no host call is known.
    pub thread: u32,
    /// Stack definition, 0 for none.
    pub stack: u32,
    /// The ranges that were open, a node of the process's tree; 0 for none.
    pub ranges: u32,
    /// Whose stack and ranges these are.
    pub owner: Owner,
    /// API definition; 0 where no host call is known.
    pub api: u32,
    /// Stream definition; 0 where no host call is known, or it names none; or [`MANY_STREAMS`].
    pub stream: u32,
    /// The process's ordinal of the device, or [`NO_DEVICE`].
    pub device: u32,
    pub leaf: Leaf,
}

/// Stands for processes that share a row.
const NO_PROCESS: u32 = u32::MAX;

/// Stands for a device that is not known.
pub const NO_DEVICE: u32 = u32::MAX;

/// Stands for all streams of a stack.
pub const MANY_STREAMS: u32 = u32::MAX;

/// Whose stack and ranges a key has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Owner {
    /// Those of the call itself.
    #[default]
    Call,
    /// Those of the call that captured or built the node of a graph, which this launch replayed.
    Capture { replay_stack: u32, replay_ranges: u32 },
    /// Those of a launch whose stack was not taken. At the stream's end such launches are put where they
    /// probably were made.
    Unstacked,
    /// Those of the launch that replayed a node; it is not known where the node was captured.
    Replay,
}

impl StackKey {
    /// Where no host call is known.
    pub fn without_call(process: u32, device: u32, leaf: Leaf) -> StackKey {
        let (thread, stack, ranges, api, stream) = (0, 0, 0, 0, 0);
        StackKey { process, thread, stack, ranges, owner: Owner::Call, api, stream, device, leaf }
    }

    /// The same, with a node of a graph under the launch that replayed it.
    pub fn by_replay(self) -> StackKey {
        match self.owner {
            Owner::Capture { replay_stack, replay_ranges } => {
                StackKey { stack: replay_stack, ranges: replay_ranges, owner: Owner::Call, ..self }
            }
            Owner::Call | Owner::Unstacked | Owner::Replay => StackKey { owner: Owner::Call, ..self },
        }
    }
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
    Copy {
        direction: Direction,
        is_pageable: bool,
    },
    Fill,
    /// A launch that was recorded as a whole, by the graph's number in device records.
    Graph(u32),
    /// Of stacks that have no row.
    Other,
}

impl Leaf {
    /// The memories are CUPTI's numbers of where the bytes come from and go to.
    #[inline]
    pub fn of_copy(direction: Direction, memories: [u8; 2]) -> Leaf {
        Leaf::Copy { direction, is_pageable: memories.map(memory_name).contains(&PAGEABLE) }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Weight {
    /// Of those with times.
    pub ns: u64,
    pub count: u64,
    /// How many of them have times.
    pub timed: u64,
}

impl Weight {
    pub fn add(&mut self, other: Weight) {
        self.ns = self.ns.saturating_add(other.ns);
        self.count = self.count.saturating_add(other.count);
        self.timed = self.timed.saturating_add(other.timed);
    }
}

#[derive(Clone, Debug, Default)]
pub struct Stacks {
    weights: FxHashMap<StackKey, (Weight, RhythmNumber)>,
    /// Of those that have begins, by their numbers.
    rhythms: Vec<Rhythm>,
    timed: bool,
}

/// One more than an index; 0 for none.
type RhythmNumber = u32;

impl Stacks {
    #[inline]
    pub fn add(&mut self, key: StackKey, ns: Option<u64>) {
        self.add_at(key, ns, None);
    }

    /// The same, of what began at that time.
    #[inline]
    pub fn add_at(&mut self, key: StackKey, ns: Option<u64>, start_ns: Option<u64>) {
        let kept = self.weights.len();
        let (weight, number) = match self.weights.get_mut(&key) {
            Some(known) => known,
            None if kept < FINE_MAX => self.weights.entry(key).or_default(),
            None if key.stream != MANY_STREAMS => {
                return self.add_at(StackKey { stream: MANY_STREAMS, ..key }, ns, start_ns);
            }
            None if kept < STACKS_MAX => self.weights.entry(key).or_default(),
            None => {
                let other = |process| StackKey::without_call(process, NO_DEVICE, Leaf::Other);
                // `contains_key` here would keep the lookup above from being inlined.
                match self.weights.get_mut(&other(key.process)) {
                    Some(known) => known,
                    None if kept < OTHERS_MAX => self.weights.entry(other(key.process)).or_default(),
                    None => self.weights.entry(other(NO_PROCESS)).or_default(),
                }
            }
        };
        weight.count += 1;
        if let Some(start_ns) = start_ns {
            if *number == 0 {
                self.rhythms.push(Rhythm::default());
                *number = self.rhythms.len() as RhythmNumber;
            }
            if let Some(rhythm) = self.rhythms.get_mut(*number as usize - 1) {
                rhythm.add(start_ns);
            }
        }
        if let Some(ns) = ns {
            weight.ns = weight.ns.saturating_add(ns);
            weight.timed += 1;
            self.timed = true;
        }
    }

    /// Adds operations without times.
    pub fn add_untimed(&mut self, key: StackKey, count: u64) {
        if count == 0 {
            return;
        }
        let kept = self.weights.len();
        let coarse = StackKey { stream: MANY_STREAMS, ..key };
        let other = StackKey::without_call(key.process, NO_DEVICE, Leaf::Other);
        let fits = |key: &StackKey, max| kept < max || self.weights.contains_key(key);
        let to = match () {
            () if fits(&key, FINE_MAX) => key,
            () if fits(&coarse, STACKS_MAX) => coarse,
            () if fits(&other, OTHERS_MAX) => other,
            () => StackKey { process: NO_PROCESS, ..other },
        };
        self.weights.entry(to).or_default().0.add(Weight { ns: 0, count, timed: 0 });
    }

    /// Removes operations of launches whose stack was not taken, and returns how many.
    pub fn take_unstacked(&mut self) -> u64 {
        let mut taken: u64 = 0;
        self.weights.retain(|key, (weight, _)| {
            let is_taken = key.owner == Owner::Unstacked;
            taken = taken.saturating_add(if is_taken { weight.count } else { 0 });
            !is_taken
        });
        taken
    }

    /// Charges nodes of graphs to the launches that replayed them.
    pub fn by_replay(&mut self) {
        for (key, (weight, _)) in std::mem::take(&mut self.weights) {
            self.weights.entry(key.by_replay()).or_default().0.add(weight);
        }
    }

    /// In no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&StackKey, &Weight)> {
        self.weights.iter().map(|(key, (weight, _))| (key, weight))
    }

    /// When what is below each stack began. In no particular order.
    pub fn rhythms(&self) -> impl Iterator<Item = (&StackKey, u64, &Rhythm)> {
        self.weights.iter().filter_map(|(key, (weight, number))| {
            let index = (*number as usize).checked_sub(1)?;
            Some((key, weight.count, self.rhythms.get(index)?))
        })
    }

    /// By key.
    pub fn sorted(&self) -> Vec<(StackKey, Weight)> {
        let mut all: Vec<_> = self.iter().map(|(key, weight)| (*key, *weight)).collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all
    }

    pub fn total_ns(&self) -> u64 {
        self.weights.values().fold(0, |sum: u64, (weight, _)| sum.saturating_add(weight.ns))
    }

    /// Whether any time is known.
    pub fn has_times(&self) -> bool {
        self.timed
    }

    /// The weight of stacks that have no row.
    pub fn beyond(&self) -> Weight {
        let mut beyond = Weight::default();
        let others = self.iter().filter(|(key, _)| key.leaf == Leaf::Other);
        others.for_each(|(_, weight)| beyond.add(*weight));
        beyond
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_do_not_take_the_rows_of_lines() {
        let mut stacks = Stacks::default();
        let key = |stack, stream| StackKey {
            process: 1,
            thread: 2,
            stack,
            ranges: 0,
            owner: Owner::Call,
            api: 3,
            stream,
            device: 0,
            leaf: Leaf::Kernel(4),
        };
        // A stream for each request, three lines.
        for request in 1..=FINE_MAX as u32 {
            (1..=3).for_each(|stack| stacks.add(key(stack, request), Some(10)));
        }
        assert_eq!(stacks.beyond(), Weight::default());
        assert!(stacks.sorted().len() <= FINE_MAX + 3);
        let mut by_line = [0; 4];
        for (key, weight) in stacks.sorted() {
            by_line[key.stack as usize] += weight.ns;
        }
        assert_eq!(by_line[1..], [FINE_MAX as u64 * 10; 3]);
        // Stacks that had a row of their own keep it.
        stacks.add(key(1, 1), Some(5));
        assert!(stacks.sorted().contains(&(key(1, 1), Weight { ns: 15, count: 2, timed: 2 })));
    }

    #[test]
    fn stacks_without_a_row_are_counted_together() {
        let mut stacks = Stacks::default();
        let owner = Owner::Call;
        let leaf = Leaf::Kernel(4);
        let key = |stack| StackKey {
            process: 1,
            thread: 2,
            stack,
            ranges: 0,
            owner,
            api: 3,
            stream: 4,
            device: 0,
            leaf,
        };
        for stack in 0..STACKS_MAX as u32 + 5 {
            stacks.add(key(stack), (stack % 2 == 0).then_some(10));
        }
        stacks.add(key(0), Some(7));
        assert_eq!(stacks.sorted().len(), STACKS_MAX + 1);
        assert_eq!(stacks.beyond(), Weight { ns: 30, count: 5, timed: 3 });
        let sorted = stacks.sorted();
        let kept = sorted.iter().find(|(known, _)| *known == key(0)).unwrap();
        assert_eq!(kept.1, Weight { ns: 17, count: 2, timed: 2 });
    }

    #[test]
    fn stacks_of_very_many_processes_share_a_row() {
        let mut stacks = Stacks::default();
        let key = |process| StackKey::without_call(process, 0, Leaf::Fill);
        (0..OTHERS_MAX as u32 + 9).for_each(|process| stacks.add(key(process), Some(1)));
        // A process that has a row for its other stacks keeps it.
        stacks.add(StackKey { stack: 1, ..key(STACKS_MAX as u32) }, Some(1));
        assert_eq!((stacks.weights.len(), stacks.total_ns()), (OTHERS_MAX + 1, OTHERS_MAX as u64 + 10));
        let shared = StackKey::without_call(NO_PROCESS, NO_DEVICE, Leaf::Other);
        assert_eq!(
            (stacks.weights[&shared].0.ns, stacks.beyond().ns),
            (9, OTHERS_MAX as u64 + 10 - STACKS_MAX as u64)
        );
    }
}
