//! Host calls by driver entry, and by class of entry.

use std::collections::BTreeMap;

use crate::aggregate::{Aggregates, CallClass, CallKey, Durations};
use crate::label::ProcessNames;
use crate::model::definitions::UNKNOWN_CALL;
use crate::report::json::{CallReport, Spread};

/// By driver entry, the one with the most time first.
pub(super) fn calls(aggregates: &Aggregates, processes: &ProcessNames<'_>) -> Vec<CallReport> {
    let mut merged = merged(aggregates, |key| {
        let name = processes.definitions(key.process).map_or(UNKNOWN_CALL, |known| known.call_name(key.api));
        (name.to_owned(), key.class)
    });
    let other = aggregates.calls.other();
    if other.durations.count() > 0 {
        let key = ("(other)".to_owned(), CallClass::Other);
        merged.insert(key, (other.durations.clone(), other.failed));
    }
    let mut calls: Vec<CallReport> = merged
        .into_iter()
        .map(|((name, class), (durations, failed))| call_report(name, class, &durations, failed))
        .collect();
    calls.sort_by_key(|call| std::cmp::Reverse(call.spread.total_ns));
    calls
}

pub(super) fn call_classes(aggregates: &Aggregates) -> Vec<CallReport> {
    merged(aggregates, |key| key.class)
        .into_iter()
        .map(|(class, (durations, failed))| call_report(class.name().to_owned(), class, &durations, failed))
        .collect()
}

/// Durations and the number of failed calls, by `group`.
fn merged<K: Ord>(aggregates: &Aggregates, group: impl Fn(&CallKey) -> K) -> BTreeMap<K, (Durations, u64)> {
    let mut merged: BTreeMap<K, (Durations, u64)> = BTreeMap::new();
    for (key, entry) in aggregates.calls.iter() {
        let (durations, failed) = merged.entry(group(key)).or_default();
        durations.merge(&entry.durations);
        *failed += entry.failed;
    }
    merged
}

fn call_report(name: String, class: CallClass, durations: &Durations, failed: u64) -> CallReport {
    CallReport { name, class: class.name(), calls: durations.count(), failed, spread: Spread::new(durations) }
}
