//! Kernels that leave most of a GPU unused, where the GPU's time is what matters.

use super::input::RuleInput;
use super::{Confidence, Finding};
use crate::label::units::{count, percent};
use crate::report::findings::ranks::is_collective;
use crate::report::json::{ConfigReport, KernelReport};

/// The least part of all kernels' time that a kernel has.
const KERNEL_SHARE_MIN: f64 = 0.2;
/// A GPU that is busy for less has other faults.
const BUSY_MIN: f64 = 0.5;
/// Kernels that run beside each other may well be small.
const BESIDE_MAX: f64 = 1.2;
/// The part of the multiprocessors that has a block.
const FILLED_MAX: f64 = 0.5;
/// A shorter kernel is over before its size matters.
const SHORT_NS: f64 = 10_000.0;
/// Blocks of fewer threads cannot fill a multiprocessor.
const THREADS_MIN: u64 = 64;
const OCCUPANCY_MAX: f64 = 0.5;

pub(super) fn find(input: &RuleInput<'_>, to: &mut Vec<Finding>) {
    let all_ns = input.kernels_ns();
    let is_beside = all_ns as f64 > input.busy_ns as f64 * BESIDE_MAX;
    if is_beside || input.share(input.busy_ns) < BUSY_MIN {
        return;
    }
    let matters = |kernel: &&KernelReport| {
        kernel.share.is_some_and(|share| share >= KERNEL_SHARE_MIN)
            && kernel.spread.mean_ns.is_some_and(|mean| mean >= SHORT_NS)
            // These leave multiprocessors to others on purpose, and mostly wait for other processes.
            && !is_collective(&kernel.name)
    };
    for kernel in input.report.kernels.iter().filter(matters) {
        // The configuration of most calls stands for all only if it is more than half of them.
        let Some(config) = kernel.configs.first().filter(|config| config.calls * 2 > kernel.calls) else {
            continue;
        };
        to.extend(small_grid(input, kernel, config).or_else(|| small_blocks(input, kernel, config)));
    }
}

fn small_grid(input: &RuleInput<'_>, kernel: &KernelReport, config: &ConfigReport) -> Option<Finding> {
    let multiprocessors = u64::from(input.report.devices.get(config.device)?.multiprocessors);
    let (blocks, total_ns) = (config.blocks(), kernel.spread.total_ns?);
    let filled = blocks as f64 / multiprocessors.max(1) as f64;
    if blocks == 0 || multiprocessors == 0 || filled > FILLED_MAX {
        return None;
    }
    let of_blocks = if blocks == 1 { "1 block" } else { &format!("{blocks} blocks") };
    Some(Finding {
        rule: "small_grid",
        title: format!(
            "{} has {of_blocks} for {multiprocessors} multiprocessors, and {} of the kernels' time",
            kernel.name,
            percent(kernel.share.unwrap_or(0.0))
        ),
        lines: Vec::new(),
        advice: "Give it more blocks: a larger batch, split-K or stream-K for reductions, or other work on a second \
                 stream beside it"
            .to_owned(),
        saves: input.saves((total_ns as f64 * (1.0 - filled)) as u64),
        basis: "its time times the part of the multiprocessors without a block",
        confidence: Confidence::Medium,
    })
}

fn small_blocks(input: &RuleInput<'_>, kernel: &KernelReport, config: &ConfigReport) -> Option<Finding> {
    let (threads, occupancy, total_ns) = (config.threads(), config.occupancy?, kernel.spread.total_ns?);
    if threads >= THREADS_MIN || occupancy > OCCUPANCY_MAX {
        return None;
    }
    // Where no other block has more warps, the blocks are not the fault.
    let (best_threads, best) = config.limited.better_block(occupancy)?;
    let limits = config.limited.limits_text()?;
    let assumed = match config.dynamic_shared_bytes {
        0 => "",
        _ => " if a block needs no more shared memory then",
    };
    Some(Finding {
        rule: "small_blocks",
        title: format!(
            "{} has blocks of {threads} threads, so that at most {} of the warps fit a multiprocessor (limited by \
             {limits}); it has {} of the kernels' time",
            kernel.name,
            percent(occupancy),
            percent(kernel.share.unwrap_or(0.0))
        ),
        lines: Vec::new(),
        advice: format!(
            "Launch it with larger blocks: with {} threads, as cuOccupancyMaxPotentialBlockSize answers, {} of the \
             warps fit{assumed}. Smaller blocks than that may do as well: measure",
            count(best_threads.into()),
            percent(best)
        ),
        saves: input.saves((total_ns as f64 * (best - occupancy) / 2.0) as u64),
        basis: "half of its time times the part of the warps that larger blocks add: how much it waits for memory is \
                not known",
        confidence: Confidence::Low,
    })
}
