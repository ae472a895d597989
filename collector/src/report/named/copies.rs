//! The tables of copies and memsets.

use super::{Cell, part, sums, time, with};
use crate::report::json::Report;
use crate::report::{MovedReport, PeerCopyReport};

/// What was moved and set, as nsys names the operations; those that did not occur are left out.
fn moved(report: &Report) -> Vec<(&'static str, &MovedReport)> {
    let name = |direction: &str| match direction {
        "cpu_to_gpu" => "[CUDA memcpy Host-to-Device]",
        "gpu_to_cpu" => "[CUDA memcpy Device-to-Host]",
        "gpu_to_gpu" => "[CUDA memcpy Device-to-Device]",
        "peer_to_peer" => "[CUDA memcpy Peer-to-Peer]",
        "cpu_to_cpu" => "[CUDA memcpy Host-to-Host]",
        _ => "[CUDA memcpy]",
    };
    let copies = report.transfers.iter().map(|transfer| (name(transfer.direction), &transfer.moved));
    let mut all: Vec<_> = copies.chain([("[CUDA memset]", &report.memsets)]).collect();
    all.retain(|(_, moved)| moved.calls > 0);
    all.sort_by_key(|(_, moved)| std::cmp::Reverse(moved.time_ns()));
    all
}

pub(super) fn times(report: &Report) -> Vec<Vec<Cell>> {
    let all = moved(report);
    let all_ns = all.iter().filter_map(|(_, moved)| moved.time_ns()).fold(0, u64::saturating_add);
    let row = |(name, moved): &(&str, &MovedReport)| {
        let share = part(moved.time_ns(), all_ns);
        with(sums(share, moved.calls, moved.estimate, &moved.spread), *name)
    };
    all.iter().map(row).collect()
}

pub(super) fn sizes(report: &Report) -> Vec<Vec<Cell>> {
    let mut all = moved(report);
    all.sort_by_key(|(_, moved)| std::cmp::Reverse(moved.bytes));
    let row = |(name, moved): &(&str, &MovedReport)| {
        let megabytes = moved.bytes as f64 / 1e6;
        let figures = vec![
            Cell::Figure(megabytes),
            Cell::Count(moved.calls),
            Cell::Figure(megabytes / moved.calls as f64),
            moved.bandwidth_mbps.map_or(Cell::Missing, Cell::Figure),
        ];
        with(figures, *name)
    };
    all.iter().map(row).collect()
}

/// Pairs of devices, the one with the most time first.
pub(super) fn peers(report: &Report) -> Vec<Vec<Cell>> {
    let mut all: Vec<_> = report.transfers.iter().flat_map(|transfer| &transfer.by_devices).collect();
    all.sort_by_key(|copies| std::cmp::Reverse((copies.moved.spread.total_ns, copies.moved.calls)));
    let times = all.iter().filter_map(|copies| copies.moved.spread.total_ns);
    let all_ns = times.fold(0, u64::saturating_add);
    let row = |copies: &&PeerCopyReport| {
        let moved = &copies.moved;
        let figures = vec![
            part(moved.spread.total_ns, all_ns),
            time(moved.spread.total_ns),
            Cell::Count(moved.calls),
            Cell::Figure(moved.bytes as f64 / 1e6),
            moved.bandwidth_mbps.map_or(Cell::Missing, Cell::Figure),
            Cell::Count(copies.source_ordinal.into()),
            Cell::Count(copies.target_ordinal.into()),
        ];
        with(figures, copies.text())
    };
    all.iter().map(row).collect()
}
