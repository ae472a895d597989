//! What a recording lacks, a line each: the command warns about it, and formats that have a place for a text
//! contain it.

use crate::model::Totals;

/// What was lost or left out before this export.
pub(super) fn missing(totals: &Totals) -> Vec<String> {
    let mut lines = Vec::new();
    let losses: Vec<String> =
        totals.losses().iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    if !losses.is_empty() {
        lines.push(format!("the recording is incomplete; it lost: {}", losses.join(", ")));
    }
    let (timed, all) = (totals.counts.timed, totals.counts.on_devices());
    if totals.any_in_windows || totals.counts.switched_off > 0 {
        let of = format!("{timed} of {all} operations");
        lines.push(format!("device times were taken for a part of the time: {of} have them"));
    }
    let counts = &totals.counts;
    if counts.unstacked > 0 {
        lines.push(format!("launches without a stack, to keep the budget: {}", counts.unstacked));
    }
    if counts.counted > 0 {
        lines.push(format!(
            "launches left out because they were only counted, to keep the budget: {}",
            counts.counted
        ));
    }
    if let count @ 1.. = totals.unrecorded.len() {
        lines.push(format!("processes that could not be recorded: {count}"));
    }
    let series = || totals.sessions.iter().filter_map(|session| session.series);
    if let count @ 1.. = series().map(|series| u64::from(series.missing)).sum::<u64>() {
        lines.push(format!("earlier files of a rotated trace that were not read: {count}"));
    }
    if series().any(|series| series.goes_on) {
        lines.push("a rotated trace goes on in a file that was not read".to_owned());
    }
    lines
}

/// The same, and the traces that end early, about which the reader of the files warns by itself.
pub(super) fn missing_or_damaged(totals: &Totals) -> Vec<String> {
    let damaged = match totals.damages.len() {
        0 => None,
        count => Some(format!("traces that could be read in part only, or not at all: {count}")),
    };
    damaged.into_iter().chain(missing(totals)).collect()
}
