//! What limits the occupancy of kernels, and the block size that would be best.

use serde::Serialize;

use crate::aggregate::{OccupancyLimit, best_block, occupancy_limits};
use crate::label::units::{count, percent};
use crate::model::definitions::Device;
use crate::model::operation::Kernel;
use crate::report::{ConfigReport, KernelReport};

/// A kernel below both is too unimportant, or has enough warps, for a line of the summary.
const SHARE_MIN: f64 = 0.02;
const OCCUPANCY_MAX: f64 = 0.5;
/// Lines of the summary.
const SHOWN: usize = 3;

/// Of a configuration, or of a kernel; `None` where it is not known.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OccupancyReport {
    /// Empty if all warps fit.
    pub occupancy_limits: Option<Vec<OccupancyLimit>>,
    pub best_block_threads: Option<u32>,
    pub best_block_occupancy: Option<f64>,
}

impl OccupancyReport {
    pub(super) fn of_launch(kernel: &Kernel, device: &Device) -> OccupancyReport {
        let best = best_block(kernel, device);
        OccupancyReport {
            occupancy_limits: occupancy_limits(kernel, device),
            best_block_threads: best.map(|best| best.threads),
            best_block_occupancy: best.map(|best| best.occupancy.share),
        }
    }

    /// What is the same of more than half of a kernel's calls.
    pub(super) fn of_most(configs: &[ConfigReport], calls: u64) -> OccupancyReport {
        let mut sums: Vec<(&OccupancyReport, u64)> = Vec::new();
        for config in configs {
            match sums.iter_mut().find(|(limited, _)| **limited == config.limited) {
                Some((_, sum)) => *sum = sum.saturating_add(config.calls),
                None => sums.push((&config.limited, config.calls)),
            }
        }
        let most = sums.into_iter().find(|(_, sum)| *sum > calls / 2);
        most.map_or_else(OccupancyReport::default, |(limited, _)| limited.clone())
    }

    /// `registers and shared memory`; `None` where nothing limits or what does is not known.
    pub(super) fn limits_text(&self) -> Option<String> {
        let words: Vec<&str> = self.occupancy_limits.iter().flatten().map(limit_text).collect();
        let (last, others) = words.split_last()?;
        Some(if others.is_empty() { (*last).to_owned() } else { format!("{} and {last}", others.join(", ")) })
    }

    /// The block size of which more warps fit than `occupancy`, with their part of all warps.
    pub(super) fn better_block(&self, occupancy: f64) -> Option<(u32, f64)> {
        let best = self.best_block_threads.zip(self.best_block_occupancy);
        best.filter(|(_, best)| *best > occupancy)
    }
}

fn limit_text(limit: &OccupancyLimit) -> &'static str {
    match limit {
        OccupancyLimit::Registers => "registers",
        OccupancyLimit::SharedMemory => "shared memory",
        OccupancyLimit::BlockSize => "the block size",
        OccupancyLimit::Blocks => "the number of blocks",
    }
}

/// A line for each kernel that matters and has few warps: the kernel's name, and the rest of the line.
pub(super) fn low_occupancy(kernels: &[KernelReport]) -> Vec<(&str, String)> {
    let line = |kernel: &'_ KernelReport| {
        let occupancy = kernel.occupancy.filter(|occupancy| *occupancy < OCCUPANCY_MAX)?;
        let limits = kernel.limited.limits_text()?;
        let better = match kernel.limited.better_block(occupancy) {
            Some((threads, best)) => format!("; {} with blocks of {}", percent(best), count(threads.into())),
            None => String::new(),
        };
        Some(format!("{} (limit: {limits}){better}", percent(occupancy)))
    };
    let matters = |kernel: &&KernelReport| kernel.share.is_some_and(|share| share >= SHARE_MIN);
    let lines =
        kernels.iter().filter(matters).filter_map(|kernel| Some((kernel.name.as_str(), line(kernel)?)));
    lines.take(SHOWN).collect()
}
