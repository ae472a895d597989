//! Steps: what a program's busiest thread does again and again, such as the steps of a training or the tokens
//! of a decode; and what differs in the slowest of them.
//!
//! What PyTorch's threads launch for a backward pass is left out where steps are looked for: the thread that
//! calls `backward()` is the one that makes steps.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::aggregate::{Aggregates, Leaf, StackKey, StackLaunches, first_of_step};
use crate::label::units::{count, duration};
use crate::label::{Labels, is_backward};
use crate::names::line_safe;
use crate::report::CodeLocation;
use crate::report::json::tenths;
use crate::report::lines::charged_location;
use crate::report::slow_steps::{SlowStepReport, slow_steps};

/// Processes with steps in the report: those with the most launches.
const PROCESSES_SHOWN: usize = 16;

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
    /// At most five steps that took a tenth longer than the others, the slowest first, of those that were
    /// made since steps were found. Absent if there are none, and for a session that was paused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slowest: Vec<SlowStepReport>,
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

    /// What differs in the slowest step, for people, if that is more than chance.
    pub(super) fn slowest_line(&self) -> Option<String> {
        self.slowest.first()?.line(self)
    }
}

/// Of the processes with the most launches first. With `is_whole`, all was recorded: time without calls is
/// the program's own.
pub(super) fn steps(
    aggregates: &Aggregates,
    begin_ns: u64,
    is_whole: bool,
    labels: &mut Labels<'_>,
) -> Vec<StepsReport> {
    let mut threads: BTreeMap<(u32, u32), Vec<StackLaunches>> = BTreeMap::new();
    for (key, count, rhythm) in aggregates.host_stacks.rhythms() {
        let StackKey { process, thread, stack, leaf, .. } = *key;
        if matches!(leaf, Leaf::Function(_) | Leaf::Call)
            && rhythm.first_ns() > 0
            && !is_backward(&labels.stacks.frames(process, stack))
        {
            let launches = StackLaunches { key: *key, count, rhythm: *rhythm };
            threads.entry((process, thread)).or_default().push(launches);
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
        // Without stacks a kernel stands for all the lines that launch it: only what is regular is a step.
        if first.key.stack == 0 && deviation_ns > mean_ns {
            return None;
        }
        let (longest_ns, longest_from_ns) = first.rhythm.longest();
        // The same steps, which may be counted from another of their launches.
        let watched = aggregates.steps.of(process, first.key.thread).filter(|watched| {
            let known = launches.iter().find(|launches| launches.key == watched.first);
            is_whole && known.is_some_and(|known| known.count.abs_diff(first.count) <= 1)
        });
        Some(StepsReport {
            pid: labels.processes.process(process).map_or(0, |process| process.begin.pid),
            steps: first.count,
            mean_ns: tenths(mean_ns),
            deviation_ns: tenths(deviation_ns),
            longest_ns,
            longest_at_ns: longest_from_ns.saturating_sub(begin_ns),
            first_line: charged_location(&mut labels.stacks, process, first.key.stack),
            slowest: watched.map_or_else(Vec::new, |watched| slow_steps(watched, process, begin_ns, labels)),
        })
    };
    processes.into_iter().filter_map(report).take(PROCESSES_SHOWN).collect()
}
