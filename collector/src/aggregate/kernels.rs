//! Kernels by name: how often each ran, how long, and in which configurations.

use rustc_hash::FxHashMap;

use crate::aggregate::Durations;
use crate::aggregate::room::Room;
use crate::model::namesakes::Renumbering;
use crate::model::operation::Kernel;

/// Names kept; calls of more go into [`Kernels::other`].
const NAMES_MAX: usize = 1 << 14;
/// Names from which on processes that ended are told together, whenever there are so many more again.
const TOGETHER_FROM: usize = NAMES_MAX / 4 * 3;
const TOGETHER_STEP: usize = NAMES_MAX / 32;
/// Configurations kept of one kernel, and of all together.
const CONFIGS_MAX: usize = 512;
const CONFIGS_TOTAL_MAX: usize = 1 << 18;

/// A kernel as a process names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KernelKey {
    pub process: u32,
    /// Name definition; 0 where nobody said.
    pub name: u32,
}

/// What a kernel was launched with, on which device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Config {
    /// Place in [`crate::aggregate::Devices`].
    pub device: usize,
    /// With `name` 0.
    pub kernel: Kernel,
}

#[derive(Clone, Debug, Default)]
pub struct KernelAggregate {
    pub calls: u64,
    /// Of the calls with device times.
    pub durations: Durations,
    pub configs: FxHashMap<Config, u64>,
    /// Calls in configurations that did not fit.
    pub other_config_calls: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Kernels {
    /// In order of first appearance.
    entries: Vec<(KernelKey, KernelAggregate)>,
    places: FxHashMap<KernelKey, usize>,
    configs: usize,
    other: KernelAggregate,
    room: Room,
}

impl Kernels {
    #[inline]
    pub fn add(&mut self, process: u32, kernel: &Kernel, device: usize, duration_ns: Option<u64>) {
        let key = KernelKey { process, name: kernel.name };
        let config = Config { device, kernel: Kernel { name: 0, ..*kernel } };
        let entry = match self.places.get(&key) {
            Some(place) => self.entries.get_mut(*place).map(|(_, entry)| entry),
            None if self.entries.len() < NAMES_MAX => {
                self.places.insert(key, self.entries.len());
                self.entries.push((key, KernelAggregate::default()));
                self.entries.last_mut().map(|(_, entry)| entry)
            }
            None => None,
        };
        let Some(entry) = entry else {
            self.room.turn_away();
            self.other.count(duration_ns);
            self.other.other_config_calls += 1;
            return;
        };
        entry.count(duration_ns);
        if let Some(calls) = entry.configs.get_mut(&config) {
            *calls += 1;
        } else if entry.configs.len() < CONFIGS_MAX && self.configs < CONFIGS_TOTAL_MAX {
            entry.configs.insert(config, 1);
            self.configs += 1;
        } else {
            entry.other_config_calls += 1;
        }
    }

    /// Whether kernels of processes that ended should be told together.
    pub fn is_short_of_room(&self) -> bool {
        self.room.is_short(self.entries.len(), TOGETHER_FROM, TOGETHER_STEP)
    }

    pub fn tell_together(&mut self, together: &mut Renumbering<'_>) {
        let entries = std::mem::take(&mut self.entries);
        (self.places, self.configs) = (FxHashMap::default(), 0);
        for (key, entry) in entries {
            let to = match together.process(key.process) {
                None => Some(key),
                Some(process) => {
                    together.definition(key.process, key.name).map(|name| KernelKey { process, name })
                }
            };
            let known =
                to.and_then(|key| self.places.get(&key)).and_then(|place| self.entries.get_mut(*place));
            match (to, known) {
                (Some(_), Some((_, known))) => {
                    self.configs += known.take_in(entry, CONFIGS_TOTAL_MAX.saturating_sub(self.configs));
                }
                (Some(key), None) => {
                    self.configs += entry.configs.len();
                    self.places.insert(key, self.entries.len());
                    self.entries.push((key, entry));
                }
                (None, _) => _ = self.other.take_in(entry, 0),
            }
        }
        self.room.told(self.entries.len());
    }

    /// In order of first appearance.
    pub fn iter(&self) -> impl Iterator<Item = &(KernelKey, KernelAggregate)> {
        self.entries.iter()
    }

    /// Kernels whose names did not fit, together.
    pub fn other(&self) -> &KernelAggregate {
        &self.other
    }
}

impl KernelAggregate {
    #[inline]
    fn count(&mut self, duration_ns: Option<u64>) {
        self.calls += 1;
        if let Some(duration_ns) = duration_ns {
            self.durations.add(duration_ns);
        }
    }

    /// Takes in the same kernel of another process, and as many configurations more as there is room for: how many.
    fn take_in(&mut self, other: KernelAggregate, room: usize) -> usize {
        let before = self.configs.len();
        self.calls += other.calls;
        self.durations.merge(&other.durations);
        self.other_config_calls += other.other_config_calls;
        // In an order that does not depend on the table's, since they may not all fit.
        let mut configs: Vec<(Config, u64)> = other.configs.into_iter().collect();
        configs.sort_unstable_by_key(|(config, calls)| {
            let kernel = config.kernel;
            (std::cmp::Reverse(*calls), config.device, kernel.grid, kernel.block, kernel.dynamic_shared_bytes)
        });
        for (config, calls) in configs {
            let is_room = self.configs.len() < CONFIGS_MAX && self.configs.len() - before < room;
            match self.configs.get_mut(&config) {
                Some(known) => *known += calls,
                None if is_room => {
                    self.configs.insert(config, calls);
                }
                None => self.other_config_calls += calls,
            }
        }
        self.configs.len() - before
    }

    /// Takes in the same kernel as another process names it.
    pub fn merge(&mut self, other: &KernelAggregate) {
        self.calls += other.calls;
        self.durations.merge(&other.durations);
        self.other_config_calls += other.other_config_calls;
        for (config, calls) in &other.configs {
            *self.configs.entry(*config).or_default() += calls;
        }
    }
}

#[cfg(test)]
mod tests {
    use gputrace_wire::definition::kind;

    use super::*;
    use crate::batch::Definition;
    use crate::model::Process;
    use crate::model::namesakes::Namesakes;

    fn kernel(name: u32, threads: u32) -> Kernel {
        Kernel { name, grid: [8, 1, 1], block: [threads, 1, 1], ..Kernel::default() }
    }

    #[test]
    fn calls_and_configurations_are_counted_with_and_without_times() {
        let mut kernels = Kernels::default();
        kernels.add(0, &kernel(7, 128), 0, Some(1_000));
        kernels.add(0, &kernel(7, 128), 0, None);
        kernels.add(0, &kernel(7, 256), 0, Some(3_000));
        kernels.add(1, &kernel(7, 256), 0, Some(5));
        let all: Vec<_> = kernels.iter().collect();
        assert_eq!(all.len(), 2);
        let (key, first) = all[0];
        assert_eq!(*key, KernelKey { process: 0, name: 7 });
        assert_eq!((first.calls, first.durations.count(), first.durations.total_ns()), (3, 2, 4_000));
        let mut counts: Vec<u64> = first.configs.values().copied().collect();
        counts.sort_unstable();
        assert_eq!(counts, [1, 2]);
        let mut merged = first.clone();
        merged.merge(&all[1].1);
        assert_eq!((merged.calls, merged.configs.len(), merged.durations.min_ns()), (4, 2, 5));
    }

    #[test]
    fn what_does_not_fit_is_counted_together() {
        let mut kernels = Kernels::default();
        for name in 0..NAMES_MAX as u32 + 10 {
            kernels.add(0, &kernel(name, 32), 0, Some(2));
        }
        assert_eq!(kernels.iter().count(), NAMES_MAX);
        assert_eq!((kernels.other().calls, kernels.other().durations.total_ns()), (10, 20));

        let mut kernels = Kernels::default();
        for threads in 0..CONFIGS_MAX as u32 + 3 {
            kernels.add(0, &kernel(1, threads), 0, None);
        }
        let (_, one) = kernels.iter().next().unwrap();
        assert_eq!(
            (one.configs.len(), one.other_config_calls, one.calls),
            (CONFIGS_MAX, 3, CONFIGS_MAX as u64 + 3)
        );
    }

    #[test]
    fn kernels_of_what_ended_give_their_room_up_also_where_what_ran_took_all_of_it() {
        let process = |number, names: std::ops::Range<u32>| {
            let mut process = Process { number, ..Process::default() };
            for id in names {
                let text = format!("kernel {id}").into_bytes();
                process.definitions.add(&Definition { kind: kind::NAME, id, fields: Vec::new(), text });
            }
            process
        };
        let mut namesakes = Namesakes::default();
        let mut kernels = Kernels::default();
        let launch = |kernels: &mut Kernels, process: &Process, name| {
            kernels.add(process.number, &kernel(name, 32), 0, Some(2));
        };
        // The last ones find no room.
        let all = NAMES_MAX as u32;
        let [short, long, twin] = [process(0, 1..10), process(1, 1..all), process(2, 1..all)];
        (1..10).for_each(|name| launch(&mut kernels, &short, name));
        (1..all).for_each(|name| launch(&mut kernels, &long, name));
        assert!(kernels.is_short_of_room());
        kernels.tell_together(&mut namesakes.take([&short].into_iter()));
        assert!(!kernels.is_short_of_room());
        (1..all).for_each(|name| launch(&mut kernels, &twin, name));
        assert!(kernels.is_short_of_room(), "what ran has ended, and nobody has room");
        kernels.tell_together(&mut namesakes.take([&long].into_iter()));
        let before = kernels.other().calls;
        (1..9).for_each(|name| launch(&mut kernels, &twin, name));
        assert_eq!((kernels.other().calls - before, before), (0, 8 + u64::from(all) - 1));
        let told: u64 = kernels.iter().map(|(_, kernel)| kernel.calls).sum();
        assert_eq!(told + before, 9 + 2 * (u64::from(all) - 1) + 8);
    }
}
