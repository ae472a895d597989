//! Operations whose device times were wanted and never came: how many, and why.

use std::collections::BTreeMap;

use gputrace_wire::definition::rung;

use crate::batch::ProcessEnd;
use crate::model::{Process, Totals};
use crate::report::units::count;

/// By what is known of the cause; the order is that of the notices.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Cause {
    Vanished,
    Running,
    Exec,
    /// The trace ends before the process does.
    Cut,
    Unusable,
    NoRecord,
}

/// The operations of processes that took device times throughout. Elsewhere a notice says already
/// that, and why, times are not taken or only now and then.
pub fn untimed_operations(totals: &Totals) -> u64 {
    totals.processes.iter().map(untimed).sum()
}

fn untimed(process: &Process) -> u64 {
    match process.definitions.rung() {
        rung::HOOKS | rung::WINDOWS => 0,
        _ => process.counts.executed.saturating_sub(process.counts.timed),
    }
}

/// A sentence for each cause that applies.
pub fn explanations(totals: &Totals) -> Vec<String> {
    let mut causes: BTreeMap<Cause, (u64, Vec<u32>)> = BTreeMap::new();
    let mut add = |cause, operations: u64, pid| {
        if operations > 0 {
            let (sum, pids) = causes.entry(cause).or_default();
            *sum += operations;
            pids.push(pid);
        }
    };
    for process in &totals.processes {
        let missing = untimed(process);
        let unusable = process.counts.invalid_timing.min(missing);
        let cause = match process.end {
            Some((ProcessEnd::Vanished, _)) => Cause::Vanished,
            Some((ProcessEnd::Running, _)) => Cause::Running,
            Some((ProcessEnd::Exec, _)) => Cause::Exec,
            Some((ProcessEnd::Exit, _)) => Cause::NoRecord,
            None => Cause::Cut,
        };
        add(Cause::Unusable, unusable, process.begin.pid);
        add(cause, missing - unusable, process.begin.pid);
    }
    let executed = totals.counts.executed;
    let lost_records = lost_records(totals);
    causes
        .iter()
        .map(|(cause, (missing, pids))| {
            let operations = if executed == 1 { "operation" } else { "operations" };
            let (missing, executed) = (count(*missing), count(executed));
            let why = match cause {
                Cause::NoRecord if !lost_records.is_empty() => {
                    format!("their records came too late or were lost ({})", lost_records.join(", "))
                }
                cause => cause.explain(&who(pids)),
            };
            format!("device times are missing for {missing} of {executed} {operations}: {why}")
        })
        .collect()
}

/// What was counted of records that were made and did not come to their operations.
fn lost_records(totals: &Totals) -> Vec<String> {
    let kinds = ["late_records", "cupti_dropped", "records_ring_full", "buffers_exhausted"];
    let counted = kinds.iter().filter_map(|kind| Some((kind, totals.losses().get(kind)?)));
    counted.map(|(kind, number)| format!("{kind} {}", count(*number))).collect()
}

fn who(pids: &[u32]) -> String {
    match pids {
        [pid] => format!("process {pid}"),
        many => format!("{} processes", count(many.len() as u64)),
    }
}

impl Cause {
    fn explain(self, who: &str) -> String {
        match self {
            Cause::Vanished => {
                format!("{who} ended without exit handlers, and CUPTI had not delivered them")
            }
            Cause::Running => {
                format!("{who} still ran at the recording's end, and CUPTI had not delivered them")
            }
            Cause::Exec => {
                format!("{who} replaced itself by another program, and CUPTI had not delivered them")
            }
            Cause::Cut => format!("the trace ends before they came from {who}"),
            Cause::Unusable => "CUPTI delivered records with times that cannot be used".to_owned(),
            Cause::NoRecord => "CUPTI delivered no record for them".to_owned(),
        }
    }
}
