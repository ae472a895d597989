//! Copies: from pageable memory, very many small ones, and such that nothing runs beside.

use super::input::{RuleInput, sum};
use super::{Confidence, Finding};
use crate::aggregate::{CallClass, Moved};
use crate::label::units::{bandwidth, bytes, count, duration};
use crate::model::operation::Direction;

const HOST_COPIES: [Direction; 2] = [Direction::CpuToGpu, Direction::GpuToCpu];
/// The least part of the time that is a fault of this kind.
const SHARE_MIN: f64 = 0.03;
/// Smaller copies cost their call, and not their bytes.
const SMALL_BYTES: u64 = 4096;
/// Fewer copies are no habit.
const COPIES_MIN: u64 = 10;
const SMALL_MIN: u64 = 1_000;
/// From such a mean size on, the memory's kind matters.
const LARGE_BYTES: u64 = 64 << 10;
/// Copies that run beside kernels for less than this part of their time do not overlap.
const OVERLAP_MAX: f64 = 0.1;
const ALONE_SHARE_MIN: f64 = 0.1;

pub(super) fn find(input: &RuleInput<'_>, to: &mut Vec<Finding>) {
    let before = to.len();
    to.extend(HOST_COPIES.into_iter().filter_map(|direction| pageable(input, direction)));
    let is_pageable = to.len() > before;
    let has_waits = to.iter().any(|finding| finding.rule == "sync_in_loop");
    for direction in HOST_COPIES {
        // A value that is read after a wait is part of that fault.
        if !(has_waits && direction == Direction::GpuToCpu) {
            to.extend(small(input, direction));
        }
    }
    if !is_pageable {
        to.extend(alone(input));
    }
}

fn words(direction: Direction) -> &'static str {
    if direction == Direction::CpuToGpu { "to the GPU" } else { "from the GPU" }
}

fn pageable(input: &RuleInput<'_>, direction: Direction) -> Option<Finding> {
    let moved = input.aggregates.transfers.pageable(direction);
    let ns = moved.durations.total_ns();
    let is_few = moved.calls < COPIES_MIN;
    if is_few || input.share(ns) < SHARE_MIN || moved.bytes / moved.calls.max(1) < LARGE_BYTES {
        return None;
    }
    Some(Finding {
        rule: "pageable_copies",
        title: format!(
            "{} copies {} ({}) use pageable memory: {} at {}",
            count(moved.calls),
            words(direction),
            bytes(moved.bytes),
            duration(ns),
            bandwidth(moved.bandwidth_mbps())
        ),
        lines: input.lines_of_pageable_copies(direction),
        advice: "Use pinned memory (DataLoader(pin_memory=True), tensor.pin_memory(), cudaHostAlloc) and \
                 asynchronous copies (non_blocking=True)"
            .to_owned(),
        saves: input.saves(ns),
        basis: "the copies' time: copies of pinned memory are faster and run beside kernels",
        confidence: Confidence::High,
    })
}

fn small(input: &RuleInput<'_>, direction: Direction) -> Option<Finding> {
    let moved = input.aggregates.transfers.copies.get(&direction)?;
    if moved.calls < SMALL_MIN || moved.bytes / moved.calls > SMALL_BYTES {
        return None;
    }
    let class = input.class(CallClass::Copy)?;
    let each_ns = class.spread.total_ns.unwrap_or(0) / class.calls.max(1);
    // While one is called, the one before it is carried out.
    let ns = moved.durations.total_ns().max(each_ns.saturating_mul(moved.calls));
    if input.share(ns) < SHARE_MIN {
        return None;
    }
    Some(Finding {
        rule: "small_copies",
        title: format!(
            "{} copies {} of {} on average take {}",
            count(moved.calls),
            words(direction),
            bytes(moved.bytes / moved.calls),
            duration(ns)
        ),
        lines: input.lines_of_copies(direction),
        advice: "Copy them together in one piece, or make the values on the GPU".to_owned(),
        saves: input.saves(ns),
        basis: "the time of their calls or on the GPU, whichever is longer",
        confidence: Confidence::Medium,
    })
}

/// Copies beside which no kernel runs. If kernels run beside each other, they hide that here, so that the
/// rule rather says nothing.
fn alone(input: &RuleInput<'_>) -> Option<Finding> {
    let transfers = &input.aggregates.transfers;
    let of = |direction: &Direction| {
        transfers.copies.get(direction).map(|moved: &Moved| moved.durations.total_ns())
    };
    let copies: u64 =
        HOST_COPIES.iter().filter_map(|to| transfers.copies.get(to)).map(|moved| moved.calls).sum();
    let copies_ns = sum(HOST_COPIES.iter().filter_map(of));
    let others_ns = sum(transfers.copies.values().map(|moved| moved.durations.total_ns()));
    let kernels_ns = input.kernels_ns();
    let all_ns = sum([kernels_ns, others_ns, transfers.fills.durations.total_ns()]);
    let both_ns = all_ns.saturating_sub(input.busy_ns);
    let is_alone = both_ns as f64 <= copies_ns as f64 * OVERLAP_MAX;
    let saves_ns = copies_ns.min(kernels_ns);
    if copies < COPIES_MIN || !is_alone || input.share(saves_ns) < ALONE_SHARE_MIN {
        return None;
    }
    let direction = HOST_COPIES.into_iter().max_by_key(|direction| of(direction))?;
    Some(Finding {
        rule: "copies_not_overlapped",
        title: format!(
            "{} of copies between host and GPU, and no kernel runs meanwhile",
            duration(copies_ns)
        ),
        lines: input.lines_of_copies(direction),
        advice:
            "Copy the next batch on a stream of its own while the kernels of this one run (pinned memory, \
                 non_blocking=True, a prefetcher)"
                .to_owned(),
        saves: input.saves(saves_ns),
        basis: "the shorter of the copies' and the kernels' time",
        confidence: Confidence::Medium,
    })
}
