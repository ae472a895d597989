//! Operations whose device times were wanted and are missing: how many, and why.

use crate::label::units::count;
use crate::model::Totals;
use crate::model::untimed::{Missing, Untimed};

/// Counts operations of processes that took device times throughout. For other processes a notice already
/// says why there are no times, or only some.
pub fn untimed_operations(totals: &Totals) -> u64 {
    totals.untimed.values().map(|missing| missing.operations).sum()
}

/// One sentence for each cause that applies.
pub fn explanations(totals: &Totals) -> Vec<String> {
    let executed = totals.counts.on_devices();
    let lost_records = lost_records(totals);
    let is_cut = totals.sessions.iter().any(|session| session.size_limit.is_some());
    let goes_on = totals.sessions.iter().any(|session| session.series.is_some_and(|series| series.goes_on));
    totals
        .untimed
        .iter()
        .map(|(cause, missing)| {
            let operations = if executed == 1 { "operation" } else { "operations" };
            let (operations_missing, executed) = (count(missing.operations), count(executed));
            let why = match cause {
                cause if is_cut && *cause != Untimed::Unusable => {
                    "the trace's limit of size came before them, or CUPTI had not delivered them".to_owned()
                }
                Untimed::Running if goes_on => "their records are in the next file of the trace".to_owned(),
                Untimed::NoRecord if !lost_records.is_empty() => {
                    format!("their records came too late or were lost ({})", lost_records.join(", "))
                }
                cause => cause.explain(&who(missing)),
            };
            format!("device times are missing for {operations_missing} of {executed} {operations}: {why}")
        })
        .collect()
}

/// The counters of records that were made and did not reach their operations.
fn lost_records(totals: &Totals) -> Vec<String> {
    let kinds = ["late_records", "cupti_dropped", "records_ring_full", "buffers_exhausted"];
    let counted = kinds.iter().filter_map(|kind| Some((kind, totals.losses().get(kind)?)));
    counted.map(|(kind, number)| format!("{kind} {}", count(*number))).collect()
}

fn who(missing: &Missing) -> String {
    match missing.processes {
        1 => format!("process {}", missing.pid),
        many => format!("{} processes", count(many)),
    }
}

impl Untimed {
    fn explain(self, who: &str) -> String {
        match self {
            Untimed::Vanished => {
                format!("{who} ended without exit handlers, and CUPTI had not delivered them")
            }
            Untimed::Running => {
                format!("{who} still ran at the recording's end, and CUPTI had not delivered them")
            }
            Untimed::Exec => {
                format!("{who} replaced itself by another program, and CUPTI had not delivered them")
            }
            Untimed::Cut => format!("the trace ends before they came from {who}"),
            Untimed::Unusable => "CUPTI delivered records with times that cannot be used".to_owned(),
            Untimed::NoRecord => "CUPTI delivered no record for them".to_owned(),
        }
    }
}
