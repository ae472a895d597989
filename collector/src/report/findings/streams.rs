//! Kernels that run one after the other because of the default stream.

use super::input::{ByLine, RuleInput, most, sum};
use super::{Confidence, Finding};
use crate::label::Labels;
use crate::label::units::{count, duration};
use crate::model::definitions::StreamOrder;
use crate::report::json::{ConfigReport, KernelReport};
use crate::report::lines::charged_location;
use crate::report::words::plural;

/// Fewer turns are no habit.
const TURNS_MIN: u64 = 100;
/// The least part of the time that the work on either side takes.
const SHARE_MIN: f64 = 0.05;
/// Where more of the work runs beside other work, it is not the streams that wait.
const BESIDE_MAX: f64 = 0.1;
/// Kernels with blocks for at most this part of the multiprocessors leave half of the GPU to others.
const FILLED_MAX: f64 = 0.5;
/// The least part of the kernels' time in kernels that leave half of the GPU.
const SMALL_MIN: f64 = 0.5;

/// Work on the default stream and on blocking streams takes turns, and leaves half of the GPU to others.
pub(super) fn default_stream(input: &RuleInput<'_>, labels: &mut Labels<'_>) -> Option<Finding> {
    let streams = &input.aggregates.streams;
    let of = |order| streams.iter().filter(move |(_, stream)| stream.order == order);
    let default_ns = sum(of(StreamOrder::Default).map(|(_, stream)| stream.weight.ns));
    let blocking_ns = sum(of(StreamOrder::Blocking).map(|(_, stream)| stream.weight.ns));
    let shorter_ns = default_ns.min(blocking_ns);
    if streams.turns < TURNS_MIN || input.share(shorter_ns) < SHARE_MIN {
        return None;
    }
    let all_ns = sum(streams.iter().map(|(_, stream)| stream.weight.ns));
    let beside_ns = all_ns.saturating_sub(input.busy_ns);
    let small = small_part(input);
    if beside_ns as f64 > shorter_ns as f64 * BESIDE_MAX || small < SMALL_MIN {
        return None;
    }
    let mut lines = ByLine::new();
    for (key, weight) in input.aggregates.device_stacks.iter() {
        let stream = streams.get(key.process, key.stream);
        if stream.is_some_and(|stream| stream.order == StreamOrder::Default)
            && let Some(line) = charged_location(&mut labels.stacks, key.process, key.stack)
        {
            lines.entry(line).or_default().add(*weight);
        }
    }
    let others = of(StreamOrder::Blocking).count() as u64;
    Some(Finding {
        rule: "default_stream",
        title: format!(
            "Work on the default stream ({}) and on {} ({}) took turns {} times: each waits for the other",
            duration(default_ns),
            plural(others, "other stream", "other streams"),
            duration(blocking_ns),
            count(streams.turns)
        ),
        lines: most(&lines),
        advice: "Make the other streams with cudaStreamNonBlocking, or give this work a stream of its own (nvcc \
                 --default-stream per-thread; in PyTorch torch.cuda.stream), and order by events what depends on it"
            .to_owned(),
        saves: input.saves((shorter_ns as f64 * small) as u64),
        basis: "the shorter of both times, times the part of the kernels' time that leaves half of the \
                multiprocessors free",
        confidence: Confidence::Medium,
    })
}

/// The part of the kernels' time in kernels that leave half of the GPU to others.
fn small_part(input: &RuleInput<'_>) -> f64 {
    let leaves_half = |kernel: &&KernelReport| {
        let is_small = |config: &ConfigReport| {
            let multiprocessors =
                input.report.devices.get(config.device).map_or(0, |device| device.multiprocessors);
            config.blocks() as f64 <= f64::from(multiprocessors) * FILLED_MAX
        };
        // The configuration of most calls stands for all only if it is more than half of them.
        kernel.configs.first().is_some_and(|config| config.calls * 2 > kernel.calls && is_small(config))
    };
    let small = input.report.kernels.iter().filter(leaves_half).filter_map(|kernel| kernel.spread.total_ns);
    sum(small) as f64 / input.kernels_ns().max(1) as f64
}
