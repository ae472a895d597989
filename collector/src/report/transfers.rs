//! Copies by direction and by kinds of memory, and memsets.

use serde::Serialize;

use crate::aggregate::{Aggregates, Moved};
use crate::batch::DeviceMetric;
use crate::model::operation::{Direction, UNKNOWN_MEMORY};
use crate::report::json::Spread;

/// Copies of one direction.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TransferReport {
    pub direction: &'static str,
    #[serde(flatten)]
    pub moved: MovedReport,
    /// The bandwidth over the peak of the devices' PCIe links, between host and device.
    pub link_share: Option<f64>,
    /// By kinds of memory where these are known, the most device time first.
    pub by_memory: Vec<MemoryCopyReport>,
}

/// Copies of one direction between two kinds of memory.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MemoryCopyReport {
    pub source: &'static str,
    pub target: &'static str,
    #[serde(flatten)]
    pub moved: MovedReport,
    pub link_share: Option<f64>,
}

/// Copies or memsets.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MovedReport {
    pub calls: u64,
    pub timed_calls: u64,
    pub bytes: u64,
    #[serde(flatten)]
    pub spread: Spread,
    pub bandwidth_mbps: Option<f64>,
}

/// Where the bandwidth is above it, the bytes took another way than the link that is known.
const LINK_SHARE_MAX: f64 = 1.0;

pub(super) fn transfers(aggregates: &Aggregates) -> Vec<TransferReport> {
    let transfers = &aggregates.transfers;
    let peak = link_peak(aggregates);
    let link_share = |direction: Direction, moved: &Moved| {
        let is_over_link = matches!(direction, Direction::CpuToGpu | Direction::GpuToCpu);
        let share = moved.bandwidth_mbps() * 1e6 / peak?;
        (is_over_link && share > 0.0 && share <= LINK_SHARE_MAX).then_some(share)
    };
    let report = |(direction, moved): (&Direction, &Moved)| {
        let is_known = |memories: &[&str; 2]| *memories != [UNKNOWN_MEMORY; 2];
        let of_direction =
            transfers.by_memory.iter().filter(|((of, memories), _)| of == direction && is_known(memories));
        let mut by_memory: Vec<MemoryCopyReport> = of_direction
            .map(|((_, [source, target]), moved)| MemoryCopyReport {
                source,
                target,
                moved: moved_report(moved),
                link_share: link_share(*direction, moved),
            })
            .collect();
        by_memory.sort_by_key(|copies| std::cmp::Reverse((copies.moved.spread.total_ns, copies.moved.calls)));
        TransferReport {
            direction: direction.name(),
            moved: moved_report(moved),
            link_share: link_share(*direction, moved),
            by_memory,
        }
    };
    transfers.copies.iter().map(report).collect()
}

/// The peak of the devices' PCIe links in bytes a second, if it is known of all that were sampled and one.
fn link_peak(aggregates: &Aggregates) -> Option<f64> {
    let mut peaks =
        aggregates.sampled_devices.iter().map(|device| device.level(DeviceMetric::PciePeak).max());
    let first = peaks.next()??;
    (first > 0 && peaks.all(|peak| peak == Some(first))).then_some(first as f64)
}

pub(super) fn moved_report(moved: &Moved) -> MovedReport {
    let timed = moved.durations.count() > 0;
    MovedReport {
        calls: moved.calls,
        timed_calls: moved.durations.count(),
        bytes: moved.bytes,
        spread: Spread::new(&moved.durations),
        bandwidth_mbps: timed.then(|| moved.bandwidth_mbps()),
    }
}
