//! The flamegraph as data: lines of frames with their weight.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::aggregate::{Aggregates, EstimatedRow, Estimation, Leaf, Owner, StackKey, Weight};
use crate::flame::code::CodeFrames;
use crate::flame::estimated::FlameEstimate;
use crate::flame::frames::{Frame, FrameKind, entry_name};
use crate::flame::group_by::{GroupBy, GroupFrames, GroupKey, has_call};
use crate::flame::memory::MemoryWeight;
use crate::flame::ranges::{RangeFrames, RangePosition};
use crate::label::units::{bytes, count, duration, percent};
use crate::label::{KernelNames, Labels, ProcessNames};
use crate::model::Totals;
use crate::model::definitions::UNKNOWN_CALL;
use crate::model::recording::recorded_intervals;
use crate::names::{line_safe, short_command};

/// What the weights of a flamegraph are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlameWeight {
    /// Device times of operations.
    Device,
    /// Host times of calls, because no device time is known.
    Host,
    /// Times in which a device did nothing, but for those before its first operation and after its last.
    Idle {
        outside_ns: u64,
    },
    Memory(MemoryWeight),
}

/// A stack and its weight.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlameLine {
    /// From the root on.
    pub frames: Vec<Frame>,
    /// Nanoseconds, or bytes in a flamegraph of memory.
    pub ns: u64,
    /// Calls, or allocations, or operations of the device that have a time, or pieces of idle time.
    pub calls: u64,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Flame {
    /// The command, shortened.
    pub program: String,
    pub simulated: bool,
    pub weight: FlameWeight,
    /// The share of executed operations that have device times.
    pub coverage: f64,
    /// Where only a part of the operations has device times; the weights contain it.
    pub estimate: Option<FlameEstimate>,
    /// How long was recorded, if not all the time.
    pub recorded: Option<String>,
    /// Whether it is of a part of the trace only.
    pub is_part: bool,
    /// Sorted by frames. No two lines have the same frames.
    pub lines: Vec<FlameLine>,
}

impl Flame {
    pub fn new(totals: &Totals, aggregates: &Aggregates) -> Flame {
        let mut labels = Labels::new(totals, aggregates);
        Flame::with(totals, aggregates, &mut labels, RangePosition::default(), &GroupBy::default())
    }

    /// The flamegraph with NVTX ranges at `position`, divided first by `group_by`.
    pub fn with(
        totals: &Totals,
        aggregates: &Aggregates,
        labels: &mut Labels<'_>,
        position: RangePosition,
        group_by: &GroupBy,
    ) -> Flame {
        let (weight, stacks) = match aggregates.device_stacks.has_times() {
            true => (FlameWeight::Device, &aggregates.device_stacks),
            false => (FlameWeight::Host, &aggregates.host_stacks),
        };
        let estimation = match weight {
            FlameWeight::Device => aggregates.estimates.as_deref().map(Estimation::new),
            _ => None,
        };
        let mut weights = stacks.sorted();
        weights.retain(|(_, weight)| weight.timed > 0);
        let rows = estimation.iter().flat_map(|estimation| estimation.rows());
        let rows = || rows.clone().filter(|row| row.ns.is_some());
        weights.extend(rows().map(|row| (row.key, row.weight())));
        let Labels { processes, kernels, stacks } = labels;
        let groups = GroupFrames::new(group_by, processes, aggregates, weights.iter().map(|(key, _)| key));
        let mut code = match group_by.has(GroupKey::Module) {
            true => CodeFrames::by_module(stacks),
            false => CodeFrames::new(stacks),
        };
        let mut ranges = RangeFrames::new(processes, position);
        let mut lines: BTreeMap<Vec<Frame>, Weight> = BTreeMap::new();
        let mut estimated: FxHashMap<StackKey, Vec<Frame>> = FxHashMap::default();
        let measured = weights.len() - rows().count();
        for (at, (key, weight)) in weights.into_iter().enumerate() {
            let first = groups.of(&key, code.modules(key.process, key.stack));
            let frames = frames(first, &key, processes, &mut code, &mut ranges, kernels);
            if at >= measured {
                estimated.insert(key, frames.clone());
            }
            lines.entry(frames).or_default().add(weight);
        }
        let lines: Vec<FlameLine> = lines
            .into_iter()
            .map(|(frames, Weight { ns, timed, .. })| FlameLine { frames, ns, calls: timed })
            .collect();
        let line_of = |row: &EstimatedRow| {
            let frames = estimated.get(&row.key)?;
            lines.binary_search_by(|line| line.frames.cmp(frames)).ok()
        };
        let estimate = estimation.as_ref().map(|all| FlameEstimate::new(all, &lines, line_of));
        let command = totals.sessions.first().map_or(&[][..], |session| &session.begin.command);
        Flame {
            program: short_command(command),
            simulated: totals.simulated,
            weight,
            coverage: totals.counts.device_time_coverage(),
            recorded: recorded_part(totals),
            is_part: false,
            estimate,
            lines,
        }
    }

    /// The sum of all weights.
    pub fn total_ns(&self) -> u64 {
        self.lines.iter().fold(0, |sum: u64, line| sum.saturating_add(line.ns))
    }

    /// The sum of the weights, and what they are.
    pub fn title(&self) -> String {
        let simulated = if self.simulated { " (simulated)" } else { "" };
        match (self.total_ns(), self.weight) {
            (weight, FlameWeight::Memory(memory)) => {
                format!("{} {}{simulated}", bytes(weight), memory.words())
            }
            (0, FlameWeight::Idle { .. }) => "No idle time of a GPU is known".to_owned(),
            (0, _) if self.is_part => "No CUDA work in this part of the trace".to_owned(),
            (0, _) => "No CUDA work was recorded".to_owned(),
            (ns, FlameWeight::Device) => match &self.estimate {
                Some(estimate) => {
                    let error = percent(estimate.total.error_ns / ns as f64);
                    format!("{} of GPU time, estimated ±{error}{simulated}", duration(ns))
                }
                None => format!("{} of GPU time{simulated}", duration(ns)),
            },
            (ns, FlameWeight::Idle { .. }) => {
                format!("{} of idle GPU time between operations{simulated}", duration(ns))
            }
            (ns, FlameWeight::Host) => {
                format!("{} of host time in CUDA calls (no device times){simulated}", duration(ns))
            }
        }
    }

    /// The same, of what was selected of the trace: what is known of the whole trace is not said of it.
    pub fn of_part(self) -> Flame {
        Flame { is_part: true, coverage: 1.0, recorded: None, ..self }
    }

    /// `1 call`, or `1,299 GPU calls` in the report's words for operations of the device.
    pub(super) fn counted(&self, calls: u64) -> String {
        let (one, more) = match self.weight {
            FlameWeight::Device => ("GPU call", "GPU calls"),
            FlameWeight::Host => ("call", "calls"),
            FlameWeight::Idle { .. } => ("time idle", "times idle"),
            FlameWeight::Memory(_) => ("allocation", "allocations"),
        };
        format!("{} {}", count(calls), if calls == 1 { one } else { more })
    }

    pub(super) fn is_of_memory(&self) -> bool {
        matches!(self.weight, FlameWeight::Memory(_))
    }

    /// A weight in its unit.
    pub(super) fn amount(&self, weight: u64) -> String {
        if self.is_of_memory() { bytes(weight) } else { duration(weight) }
    }

    /// What was counted, and the program: last, for it may be too long to be shown whole.
    pub fn subtitle(&self) -> String {
        let calls = self.lines.iter().fold(0, |sum: u64, line| sum.saturating_add(line.calls));
        let mut text = self.counted(calls);
        if let FlameWeight::Idle { outside_ns } = self.weight {
            text += &format!(" · {} before the first and after the last are left out", duration(outside_ns));
        }
        if matches!(self.weight, FlameWeight::Device | FlameWeight::Idle { .. }) && self.coverage < 1.0 {
            text += &format!(" · device times of {} of the operations", percent(self.coverage));
        }
        if let Some(unmeasured @ 1..) = self.estimate.as_ref().map(|estimate| estimate.total.unmeasured) {
            text += &match unmeasured {
                1 => " · 1 is not in it, for none like it was timed".to_owned(),
                many => format!(" · {} are not in it, for none like them was timed", count(many)),
            };
        }
        if let Some(recorded) = self.recorded.as_ref().filter(|_| !self.is_of_memory()) {
            text += &format!(" · recorded {recorded}");
        }
        if self.is_part {
            text += " · a part of the trace";
        }
        if self.simulated {
            text += " · simulated device";
        }
        text += &format!(" · {}", line_safe(&self.program));
        text
    }
}

/// How long any process recorded, if not all the time.
pub(super) fn recorded_part(totals: &Totals) -> Option<String> {
    let intervals = recorded_intervals(totals)?;
    let ns = duration(intervals.iter().map(|(from, to)| to - from).sum());
    Some(match intervals.len() {
        1 => format!("{ns} in 1 interval"),
        more => format!("{ns} in {} intervals", count(more as u64)),
    })
}

/// The frames of a stack. `frames` has those that come first.
fn frames(
    mut frames: Vec<Frame>,
    key: &StackKey,
    processes: &ProcessNames<'_>,
    code: &mut CodeFrames<'_, '_>,
    ranges: &mut RangeFrames<'_, '_>,
    names: &mut KernelNames<'_>,
) -> Vec<Frame> {
    if key.leaf == Leaf::Other || processes.process(key.process).is_none() {
        frames.push(Frame::new(FrameKind::Other, "(other)"));
        return frames;
    }
    if has_call(key) {
        ranges.among(&mut frames, code.of(key.process, key.stack), key.process, key.ranges);
        if key.owner == Owner::Replay {
            frames.push(Frame::new(FrameKind::Other, "[graph replay]"));
        }
        let definitions = processes.definitions(key.process);
        let symbol = definitions.map_or(UNKNOWN_CALL, |definitions| definitions.call_name(key.api));
        frames.push(Frame::new(FrameKind::Call, entry_name(symbol)));
    }
    frames.extend(leaf(key, names));
    frames
}

fn leaf(key: &StackKey, names: &mut KernelNames<'_>) -> Option<Frame> {
    let kind = match key.leaf {
        Leaf::Call => return None,
        Leaf::Kernel(_) | Leaf::Function(_) => FrameKind::Kernel,
        Leaf::Copy { .. } => FrameKind::Copy,
        Leaf::Fill => FrameKind::Fill,
        Leaf::Graph(_) => FrameKind::Graph,
        Leaf::Other => FrameKind::Other,
    };
    Some(Frame::new(kind, &names.leaf(key.process, key.leaf)?))
}
