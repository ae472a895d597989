//! Host calls by driver entry, and by class of entry.

use std::collections::BTreeMap;

use crate::aggregate::{Aggregates, CallAggregate, CallClass};
use crate::label::ProcessNames;
use crate::report::json::{CallReport, Spread};

/// By driver entry, the one with the most time first.
pub(super) fn calls(aggregates: &Aggregates, processes: &ProcessNames<'_>) -> Vec<CallReport> {
    let mut merged: BTreeMap<(String, CallClass), CallAggregate> = BTreeMap::new();
    // Calls of evicted processes, and of entries that did not fit.
    let other = || ("(other)".to_owned(), CallClass::Other);
    for (key, entry) in aggregates.calls.iter() {
        let name = match processes.definitions(key.process) {
            Some(definitions) => (definitions.call_name(key.api).to_owned(), key.class),
            None => other(),
        };
        merged.entry(name).or_default().merge(entry);
    }
    for (_, entry) in aggregates.calls.other() {
        merged.entry(other()).or_default().merge(entry);
    }
    let mut calls: Vec<CallReport> =
        merged.into_iter().map(|((name, class), calls)| call_report(name, class, &calls)).collect();
    calls.sort_by_key(|call| std::cmp::Reverse(call.spread.total_ns));
    calls
}

pub(super) fn call_classes(aggregates: &Aggregates) -> Vec<CallReport> {
    let mut merged: BTreeMap<CallClass, CallAggregate> = BTreeMap::new();
    let entries = aggregates.calls.iter().map(|(key, entry)| (&key.class, entry));
    for (class, entry) in entries.chain(aggregates.calls.other()) {
        merged.entry(*class).or_default().merge(entry);
    }
    merged.into_iter().map(|(class, calls)| call_report(class.name().to_owned(), class, &calls)).collect()
}

fn call_report(name: String, class: CallClass, all: &CallAggregate) -> CallReport {
    CallReport {
        name,
        class: class.name(),
        calls: all.durations.count(),
        failed: all.failed,
        spread: Spread::new(&all.durations),
    }
}
