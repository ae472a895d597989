//! Kernels by name, with the launch configurations of each.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::aggregate::{Aggregates, KernelAggregate, occupancy};
use crate::label::{KernelName, KernelNames};
use crate::report::EstimatedTime;
use crate::report::estimated::ReportEstimates;
use crate::report::json::{
    ConfigReport, KernelReport, LaunchesReport, OtherKernels, SourceReport, Spread, share,
};
use crate::report::occupancy::OccupancyReport;
use crate::source::NamedSources;

/// The kernel with the most device time first; without times, the one with the most calls. The second value
/// is the sum of kernels without a row.
pub(super) fn kernels(
    aggregates: &Aggregates,
    names: &mut KernelNames<'_>,
    estimates: Option<&ReportEstimates>,
) -> (Vec<KernelReport>, OtherKernels) {
    let other = aggregates.kernels.other();
    let mut other = OtherKernels { calls: other.calls, total_ns: other.durations.total_ns() };
    let mut merged: Vec<(KernelName, KernelAggregate)> = Vec::new();
    let mut written: FxHashMap<Arc<str>, NamedSources> = FxHashMap::default();
    let mut positions: FxHashMap<Arc<str>, usize> = FxHashMap::default();
    for (key, entry) in aggregates.kernels.iter() {
        if !names.has_process(key.process) {
            other.calls += entry.calls;
            other.total_ns = other.total_ns.saturating_add(entry.durations.total_ns());
            continue;
        }
        let name = names.name(key.process, key.name);
        written.entry(name.full.clone()).or_default().merge(names.sources(key.process, key.name));
        match positions.get(&name.full).and_then(|position| merged.get_mut(*position)) {
            Some((_, known)) => known.merge(entry),
            None => {
                positions.insert(name.full.clone(), merged.len());
                merged.push((name, entry.clone()));
            }
        }
    }
    let all_ns: u64 = merged
        .iter()
        .map(|(_, entry)| entry.durations.total_ns())
        .chain([other.total_ns])
        .fold(0, u64::saturating_add);
    let sums = estimates.map(|estimates| estimates.kernels(names));
    let estimate_of = |name: &KernelName, entry: &KernelAggregate| {
        let estimate = sums.as_ref()?.get(&name.full).copied().unwrap_or_default();
        Some(EstimatedTime::new(entry.durations.total_ns(), &estimate))
    };
    let time_of = |name: &KernelName, entry: &KernelAggregate| {
        estimate_of(name, entry).map_or(entry.durations.total_ns(), |estimate| estimate.total_ns)
    };
    let all_estimated_ns = merged
        .iter()
        .map(|(name, entry)| time_of(name, entry))
        .chain([other.total_ns])
        .fold(0, u64::saturating_add);
    merged.sort_by(|(a_name, a), (b_name, b)| {
        let by_time = time_of(b_name, b).cmp(&time_of(a_name, a));
        by_time.then(b.calls.cmp(&a.calls)).then(a_name.full.cmp(&b_name.full))
    });
    let report = |(name, entry): &(KernelName, KernelAggregate)| {
        let written = written.get(&name.full);
        let mut sources = written
            .into_iter()
            .flat_map(NamedSources::known)
            .map(|source| SourceReport { file: source.path.to_string(), line: source.line });
        // A row stands for all kernels of its name, so it has a source only if that of each is known.
        let is_known = written.is_some_and(|written| !written.is_some_unknown());
        KernelReport {
            source: is_known.then(|| sources.next()).flatten(),
            other_sources: sources.collect(),
            share: match estimate_of(name, entry) {
                Some(estimate) => share(estimate.known_ns(), all_estimated_ns),
                None => share(Spread::new(&entry.durations).total_ns, all_ns),
            },
            estimate: estimate_of(name, entry),
            ..kernel_report(name, entry, aggregates)
        }
    };
    (merged.iter().map(report).collect(), other)
}

fn kernel_report(name: &KernelName, entry: &KernelAggregate, aggregates: &Aggregates) -> KernelReport {
    let mut configs: Vec<ConfigReport> = entry
        .configs
        .iter()
        .map(|(config, calls)| {
            let kernel = &config.kernel;
            let device = aggregates.devices.get(config.device);
            ConfigReport {
                device: config.device,
                grid: kernel.grid,
                block: kernel.block,
                cluster: kernel.cluster,
                shared_bytes: u64::from(kernel.static_shared_bytes) + u64::from(kernel.dynamic_shared_bytes),
                static_shared_bytes: kernel.static_shared_bytes,
                dynamic_shared_bytes: kernel.dynamic_shared_bytes,
                registers: (kernel.registers > 0).then_some(kernel.registers),
                occupancy: device.and_then(|d| occupancy(kernel, &d.device)).map(|o| o.share),
                limited: device.map(|d| OccupancyReport::of_launch(kernel, &d.device)).unwrap_or_default(),
                calls: *calls,
            }
        })
        .collect();
    configs.sort_by(|a, b| {
        let key = |c: &ConfigReport| (c.device, c.grid, c.block, c.cluster, c.shared_bytes, c.registers);
        b.calls
            .cmp(&a.calls)
            .then_with(|| (key(a), a.dynamic_shared_bytes).cmp(&(key(b), b.dynamic_shared_bytes)))
    });
    let known = configs.iter().filter_map(|config| Some((config.occupancy?, config.calls as f64)));
    let (weighted, weight) =
        known.fold((0.0, 0.0), |(sum, all), (occupancy, calls)| (sum + occupancy * calls, all + calls));
    let spread = Spread::new(&entry.durations);
    KernelReport {
        name: name.short.to_string(),
        full_name: name.full.to_string(),
        source: None,
        other_sources: Vec::new(),
        calls: entry.calls,
        timed_calls: entry.durations.count(),
        spread,
        share: None,
        estimate: None,
        launches: LaunchesReport::new(&entry.launches),
        occupancy: (weight > 0.0).then(|| weighted / weight),
        limited: OccupancyReport::of_most(&configs, entry.calls),
        configs,
        other_config_calls: entry.other_config_calls,
    }
}

#[cfg(test)]
#[path = "kernels_tests.rs"]
mod tests;
