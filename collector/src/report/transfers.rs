//! Copies by direction, by kinds of memory and by pair of devices, and memsets.

use serde::Serialize;

use crate::aggregate::{Aggregates, EndDevice, Leaf, Moved, PeerMoved};
use crate::batch::DeviceMetric;
use crate::label::uuid;
use crate::model::operation::{Direction, UNKNOWN_MEMORY};
use crate::report::EstimatedTime;
use crate::report::estimated::ReportEstimates;
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
    /// Copies between devices by the pair, the most device time first; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_devices: Vec<PeerCopyReport>,
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

/// Copies of one direction from one device to another.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PeerCopyReport {
    /// As the first process numbers them that copied between the two.
    pub source_ordinal: u32,
    pub target_ordinal: u32,
    /// `None` if the device is not described.
    pub source_uuid: Option<String>,
    pub target_uuid: Option<String>,
    #[serde(flatten)]
    pub moved: MovedReport,
}

impl PeerCopyReport {
    fn new(row: &PeerMoved) -> PeerCopyReport {
        let [source, target] = row.devices;
        let named = |device: EndDevice| (device.uuid != [0; 2]).then(|| format!("GPU-{}", uuid(device.uuid)));
        PeerCopyReport {
            source_ordinal: source.ordinal,
            target_ordinal: target.ordinal,
            source_uuid: named(source),
            target_uuid: named(target),
            moved: moved_report(&row.moved),
        }
    }

    /// `GPU 0 to GPU 1`.
    pub fn text(&self) -> String {
        format!("GPU {} to GPU {}", self.source_ordinal, self.target_ordinal)
    }
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
    /// Of all calls, where only a part of the operations has device times; of a direction and of memsets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<EstimatedTime>,
}

/// Where the bandwidth is above it, the bytes took another way than the link that is known.
const LINK_SHARE_MAX: f64 = 1.0;

pub(super) fn transfers(aggregates: &Aggregates, estimates: Option<&ReportEstimates>) -> Vec<TransferReport> {
    let transfers = &aggregates.transfers;
    let peak = link_peak(aggregates);
    let estimated = estimates.map(|estimates| {
        estimates.by(|row| match row.key.leaf {
            Leaf::Copy { direction, .. } => Some(direction),
            _ => None,
        })
    });
    let estimate_of = |direction: &Direction, moved: &Moved| {
        let estimate = estimated.as_ref()?.get(direction).copied().unwrap_or_default();
        Some(EstimatedTime::new(moved.durations.total_ns(), &estimate))
    };
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
        let mut by_devices: Vec<_> = aggregates.peers.of(*direction).map(PeerCopyReport::new).collect();
        by_devices
            .sort_by_key(|copies| std::cmp::Reverse((copies.moved.spread.total_ns, copies.moved.calls)));
        TransferReport {
            direction: direction.name(),
            moved: MovedReport { estimate: estimate_of(direction, moved), ..moved_report(moved) },
            link_share: link_share(*direction, moved),
            by_memory,
            by_devices,
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

pub(super) fn memsets(aggregates: &Aggregates, estimates: Option<&ReportEstimates>) -> MovedReport {
    let fills = &aggregates.transfers.fills;
    let estimate = estimates.map(|estimates| {
        let sums = estimates.by(|row| (row.key.leaf == Leaf::Fill).then_some(()));
        EstimatedTime::new(fills.durations.total_ns(), &sums.get(&()).copied().unwrap_or_default())
    });
    MovedReport { estimate, ..moved_report(fills) }
}

fn moved_report(moved: &Moved) -> MovedReport {
    let timed = moved.durations.count() > 0;
    MovedReport {
        calls: moved.calls,
        timed_calls: moved.durations.count(),
        bytes: moved.bytes,
        spread: Spread::new(&moved.durations),
        bandwidth_mbps: timed.then(|| moved.bandwidth_mbps()),
        estimate: None,
    }
}

#[cfg(test)]
mod tests {
    use crate::batch::Counters;
    use crate::report::tests::tape::Tape;
    use crate::report::{Report, TextOptions, named};

    #[test]
    fn pairs_of_devices_are_sorted_by_time_and_add_up() {
        let mut tape = Tape::new(false);
        for _ in 0..3 {
            tape.peer_copy([0, 1], 1_000_000, 20_000);
            tape.peer_copy([1, 0], 1_000_000, 40_000);
        }
        tape.peer_copy([2, 2], 10, 5);
        tape.copy(11, 1, 500, 9_000);
        let (totals, aggregates) = tape.play(Counters::default());
        let report = Report::new(&totals, &aggregates);
        let [up, peers] = report.transfers.as_slice() else { panic!("{:?}", report.transfers) };
        assert!(up.by_devices.is_empty());
        let names: Vec<String> = peers.by_devices.iter().map(super::PeerCopyReport::text).collect();
        assert_eq!(names, ["GPU 1 to GPU 0", "GPU 0 to GPU 1", "GPU 2 to GPU 2"]);
        let first = &peers.by_devices[0];
        assert_eq!((first.moved.calls, first.moved.bandwidth_mbps), (3, Some(25_000.0)));
        // Of the two ends one device is described.
        assert_eq!((first.source_uuid.is_some(), first.target_uuid.is_some()), (false, true));
        let sum: u64 = peers.by_devices.iter().map(|copies| copies.moved.bytes).sum();
        assert_eq!(sum, peers.moved.bytes);
        let table = &named::tables(&report, &["peer_copies".to_owned()])[0];
        assert_eq!((table.rows.len(), &table.rows[1][1]), (3, &named::Cell::Count(60_000)));
        let text = report.to_text(&TextOptions::default());
        assert!(text.contains("\n  GPU 1 to GPU 0 "), "{text}");
    }
}
