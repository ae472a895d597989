//! One process that the others wait for in NCCL's kernels.

use std::collections::BTreeMap;

use super::input::{RuleInput, sum};
use super::{Confidence, Finding};
use crate::label::Labels;
use crate::label::units::duration;

/// The least part of a device's time that the others wait.
const SHARE_MIN: f64 = 0.1;
/// By how much the number of NCCL kernels of two processes may differ.
const UNEQUAL_MAX: f64 = 1.1;

/// Whether the kernel of that short name is one of NCCL's, in which processes wait for each other.
pub(super) fn is_collective(name: &str) -> bool {
    name.starts_with("nccl")
}

pub(super) fn find(input: &RuleInput<'_>, labels: &mut Labels<'_>, to: &mut Vec<Finding>) {
    let mut waiting: BTreeMap<u32, u64> = BTreeMap::new();
    let mut calls: BTreeMap<u32, u64> = BTreeMap::new();
    for (key, kernel) in input.aggregates.kernels.iter() {
        if is_collective(&labels.kernels.name(key.process, key.name).short) {
            let ns = waiting.entry(key.process).or_default();
            *ns = kernel.durations.total_ns().saturating_add(*ns);
            *calls.entry(key.process).or_default() += kernel.calls;
        }
    }
    let Some((slow, least_ns)) = waiting.iter().min_by_key(|(_, ns)| **ns) else { return };
    // Processes of one job take part in the same operations.
    let (fewest, most) = (calls.values().min().copied(), calls.values().max().copied());
    if fewest.unwrap_or(0) as f64 * UNEQUAL_MAX < most.unwrap_or(0) as f64 {
        return;
    }
    let all_ns = sum(waiting.values().copied());
    // The one that comes last finds the others there, and its own kernel is short.
    let lost_ns = all_ns.saturating_sub(least_ns.saturating_mul(waiting.len() as u64));
    let others = waiting.len() as u64 - 1;
    if others == 0 || input.share(lost_ns) < SHARE_MIN * others as f64 / waiting.len() as f64 {
        return;
    }
    let who = match labels.processes.rank(*slow) {
        unknown if unknown.starts_with('(') => {
            let pid = labels.processes.process(*slow).map_or(0, |process| process.begin.pid);
            format!("Process {pid}")
        }
        rank => format!("The process of {rank}"),
    };
    to.push(Finding {
        rule: "slow_rank",
        title: format!(
            "{who} is the one that others wait for: its NCCL kernels take {}, those of the others {} on average",
            duration(*least_ns),
            duration(all_ns.saturating_sub(*least_ns) / others)
        ),
        lines: Vec::new(),
        advice: "Give it less work or the others more: balance batches and layers, and look for what else runs on its \
                 GPU or its host"
            .to_owned(),
        saves: input.saves(lost_ns),
        basis: "the time of all NCCL kernels beyond those of the process that waits least",
        confidence: Confidence::Medium,
    });
}
