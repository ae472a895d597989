//! Kernels by name: how often each ran, how long, and in which configurations.

use rustc_hash::FxHashMap;

use crate::aggregate::{Durations, LaunchSums, LaunchTimes};
use crate::model::operation::Kernel;

/// Names that have a row; calls of others go into [`Kernels::other`].
const NAMES_MAX: usize = 1 << 14;
/// Configurations kept of one kernel, and of all together.
const CONFIGS_MAX: usize = 512;
const CONFIGS_TOTAL_MAX: usize = 1 << 18;

/// A kernel as a process names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KernelKey {
    pub process: u32,
    /// Name definition; 0 if unknown.
    pub name: u32,
}

/// What a kernel was launched with, on which device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Config {
    /// Index in [`crate::aggregate::Devices`].
    pub device: usize,
    /// With `name` 0.
    pub kernel: Kernel,
}

#[derive(Clone, Debug, Default)]
pub struct KernelAggregate {
    pub calls: u64,
    /// Of the calls with device times.
    pub durations: Durations,
    pub launches: LaunchSums,
    pub configs: FxHashMap<Config, u64>,
    /// Calls in configurations that did not fit.
    pub other_config_calls: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Kernels {
    /// In order of first appearance.
    entries: Vec<(KernelKey, KernelAggregate)>,
    indices: FxHashMap<KernelKey, usize>,
    configs: usize,
    other: KernelAggregate,
}

/// The kernel's entry; `None` if it has none and there are too many.
#[inline]
fn entry<'a>(
    entries: &'a mut Vec<(KernelKey, KernelAggregate)>,
    indices: &mut FxHashMap<KernelKey, usize>,
    key: KernelKey,
) -> Option<&'a mut KernelAggregate> {
    let index = match indices.get(&key) {
        Some(index) => *index,
        None if entries.len() < NAMES_MAX => {
            indices.insert(key, entries.len());
            entries.push((key, KernelAggregate::default()));
            entries.len() - 1
        }
        None => return None,
    };
    entries.get_mut(index).map(|(_, entry)| entry)
}

impl Kernels {
    #[inline]
    pub fn add(
        &mut self,
        process: u32,
        kernel: &Kernel,
        device: usize,
        duration_ns: Option<u64>,
        launch: Option<LaunchTimes>,
    ) {
        let key = KernelKey { process, name: kernel.name };
        let config = Config { device, kernel: Kernel { name: 0, ..*kernel } };
        let Some(entry) = entry(&mut self.entries, &mut self.indices, key) else {
            self.other.count(duration_ns);
            self.other.other_config_calls += 1;
            return;
        };
        entry.count(duration_ns);
        if let Some(launch) = launch {
            entry.launches.add(launch);
        }
        if let Some(calls) = entry.configs.get_mut(&config) {
            *calls += 1;
        } else if entry.configs.len() < CONFIGS_MAX && self.configs < CONFIGS_TOTAL_MAX {
            entry.configs.insert(config, 1);
            self.configs += 1;
        } else {
            entry.other_config_calls += 1;
        }
    }

    /// Adds launches that were only counted: their configuration is not known.
    pub fn add_counted(&mut self, process: u32, name: u32, launches: u64) {
        let key = KernelKey { process, name };
        let entry = entry(&mut self.entries, &mut self.indices, key).unwrap_or(&mut self.other);
        entry.calls = entry.calls.saturating_add(launches);
        entry.other_config_calls = entry.other_config_calls.saturating_add(launches);
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

    /// Adds the same kernel of another process.
    pub fn merge(&mut self, other: &KernelAggregate) {
        self.calls += other.calls;
        self.durations.merge(&other.durations);
        self.launches.merge(&other.launches);
        self.other_config_calls += other.other_config_calls;
        for (config, calls) in &other.configs {
            *self.configs.entry(*config).or_default() += calls;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(name: u32, threads: u32) -> Kernel {
        Kernel { name, grid: [8, 1, 1], block: [threads, 1, 1], ..Kernel::default() }
    }

    #[test]
    fn kernels_and_configurations_are_counted_with_and_without_times() {
        let mut kernels = Kernels::default();
        kernels.add(0, &kernel(7, 128), 0, Some(1_000), None);
        kernels.add(0, &kernel(7, 128), 0, None, None);
        kernels.add(0, &kernel(7, 256), 0, Some(3_000), None);
        kernels.add(1, &kernel(7, 256), 0, Some(5), None);
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
    fn kernels_without_a_row_are_counted_together() {
        let mut kernels = Kernels::default();
        for name in 0..NAMES_MAX as u32 + 10 {
            kernels.add(0, &kernel(name, 32), 0, Some(2), None);
        }
        assert_eq!(kernels.iter().count(), NAMES_MAX);
        assert_eq!((kernels.other().calls, kernels.other().durations.total_ns()), (10, 20));

        let mut kernels = Kernels::default();
        for threads in 0..CONFIGS_MAX as u32 + 3 {
            kernels.add(0, &kernel(1, threads), 0, None, None);
        }
        let (_, one) = kernels.iter().next().unwrap();
        assert_eq!(
            (one.configs.len(), one.other_config_calls, one.calls),
            (CONFIGS_MAX, 3, CONFIGS_MAX as u64 + 3)
        );
    }
}
