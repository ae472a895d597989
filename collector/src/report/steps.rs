//! Steps: what a program's busiest thread does again and again, such as the steps of a training or the tokens
//! of a decode.
//!
//! They are found by what is launched: in a loop, most stacks are passed equally often, once a step. Stacks
//! of an inner loop are passed a multiple of that. What PyTorch's threads launch for a backward pass is left
//! out: the thread that calls `backward()` is the one that makes steps.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::aggregate::{Aggregates, Leaf, Rhythm, StackKey};
use crate::label::units::{count, duration};
use crate::label::{Labels, is_backward};
use crate::names::line_safe;
use crate::report::CodeLocation;
use crate::report::json::tenths;
use crate::report::lines::charged_location;

/// Processes with steps in the report: those with the most launches.
const PROCESSES_SHOWN: usize = 16;
/// Fewer are no rhythm.
const STEPS_MIN: u64 = 5;
/// So many stacks are passed once a step.
const STACKS_MIN: usize = 3;
/// An outer loop has at least this part of the stacks that its inner loop has.
const OUTER_MIN: f64 = 0.05;
/// The part of the time from the thread's first launch to its last that the steps take. The first use of
/// everything takes long, so that a short run of many steps is a small part.
const SPAN_MIN: f64 = 0.25;

/// The steps of a process.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StepsReport {
    pub pid: u32,
    pub steps: u64,
    /// Mean and standard deviation of a step, without the longest one.
    pub mean_ns: f64,
    pub deviation_ns: f64,
    pub longest_ns: u64,
    /// When the longest one began, after the begin of the first session.
    pub longest_at_ns: u64,
    /// The line of the first launch of a step.
    pub first_line: Option<CodeLocation>,
}

impl StepsReport {
    /// For people. `processes` is how many have steps.
    pub(super) fn line(&self, processes: usize) -> String {
        let (mean, deviation) = (duration(self.mean_ns as u64), duration(self.deviation_ns as u64));
        let (longest, at) = (duration(self.longest_ns), duration(self.longest_at_ns));
        let from = self.first_line.as_ref().map(|line| format!(", from {}", line_safe(&line.text())));
        let of = if processes > 1 { format!(" of process {}", self.pid) } else { String::new() };
        format!(
            "{}{of}{}, {mean} each (deviation {deviation}); the longest {longest}, after {at}",
            count(self.steps),
            from.unwrap_or_default()
        )
    }
}

struct StackLaunches {
    count: u64,
    rhythm: Rhythm,
    stack: u32,
}

/// Of the processes with the most launches first.
pub(super) fn steps(aggregates: &Aggregates, begin_ns: u64, labels: &mut Labels<'_>) -> Vec<StepsReport> {
    let mut threads: BTreeMap<(u32, u32), Vec<StackLaunches>> = BTreeMap::new();
    for (key, count, rhythm) in aggregates.host_stacks.rhythms() {
        let StackKey { process, thread, stack, leaf, .. } = *key;
        if matches!(leaf, Leaf::Function(_) | Leaf::Call)
            && rhythm.first_ns() > 0
            && !is_backward(&labels.stacks.frames(process, stack))
        {
            threads.entry((process, thread)).or_default().push(StackLaunches {
                count,
                rhythm: *rhythm,
                stack,
            });
        }
    }
    let mut busiest: BTreeMap<u32, (u64, Vec<StackLaunches>)> = BTreeMap::new();
    for ((process, _), launches) in threads {
        let all = launches.iter().fold(0, |sum: u64, launches| sum.saturating_add(launches.count));
        let known = busiest.entry(process).or_default();
        if all > known.0 {
            *known = (all, launches);
        }
    }
    let mut processes: Vec<_> = busiest.into_iter().collect();
    processes.sort_by_key(|(_, (all, _))| std::cmp::Reverse(*all));
    let report = |(process, (_, launches)): (u32, (u64, Vec<StackLaunches>))| {
        let first = first_of_step(&launches)?;
        let (mean_ns, deviation_ns) = first.rhythm.usual(first.count)?;
        let (longest_ns, longest_from_ns) = first.rhythm.longest();
        Some(StepsReport {
            pid: labels.processes.process(process).map_or(0, |process| process.begin.pid),
            steps: first.count,
            mean_ns: tenths(mean_ns),
            deviation_ns: tenths(deviation_ns),
            longest_ns,
            longest_at_ns: longest_from_ns.saturating_sub(begin_ns),
            first_line: charged_location(&mut labels.stacks, process, first.stack),
        })
    };
    processes.into_iter().filter_map(report).take(PROCESSES_SHOWN).collect()
}

/// What a step launches first, if the thread has steps.
fn first_of_step(launches: &[StackLaunches]) -> Option<&StackLaunches> {
    let ends = |launches: &StackLaunches| {
        (launches.rhythm.first_ns(), launches.rhythm.first_ns() + launches.rhythm.span_ns())
    };
    let (from, to) = launches.iter().map(ends).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
    let mut by_count: BTreeMap<u64, Vec<&StackLaunches>> = BTreeMap::new();
    for launches in launches.iter().filter(|launches| launches.count >= STEPS_MIN) {
        if launches.rhythm.span_ns() as f64 >= (to - from) as f64 * SPAN_MIN {
            by_count.entry(launches.count).or_default().push(launches);
        }
    }
    let (most, stacks) = by_count.iter().max_by_key(|(count, stacks)| (stacks.len(), **count))?;
    let outer = by_count.iter().find(|(count, of)| {
        most % **count == 0 && of.len() as f64 >= stacks.len() as f64 * OUTER_MIN && of.len() >= STACKS_MIN
    });
    let (_, of_step) = outer?;
    of_step.iter().min_by_key(|launches| (launches.rhythm.first_ns(), launches.stack)).copied()
}

#[cfg(test)]
#[path = "steps_tests.rs"]
mod tests;
