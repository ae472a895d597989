//! What differs in the slowest steps: where the thread that makes them spent its time, and what the GPU did
//! for them.

use serde::Serialize;

use crate::aggregate::{Doing, StepPart, WatchedSteps};
use crate::label::Labels;
use crate::label::units::{count, duration};
use crate::names::line_safe;
use crate::report::lines::charged_location;
use crate::report::{CodeLocation, StepsReport};

/// Fewer other steps are nothing to compare with.
const OTHERS_MIN: u64 = 3;
/// A slow step takes so many times the others' mean.
const SLOWER_MIN: f64 = 1.1;
/// In the summary, one that is so many standard deviations above it.
const DEVIATIONS_MIN: f64 = 2.0;
/// Differences of less than this part of the step's are not shown.
const PART_MIN: f64 = 0.2;
const PARTS_SHOWN: usize = 2;
/// A piece that is this part of a difference has its lines in the summary, and stands for all of it from the
/// second part on.
const AT_ONCE_MIN: f64 = 0.5;
const ALL_MIN: f64 = 0.9;

/// A step that took longer than the others.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SlowStepReport {
    /// When it began, after the begin of the first session.
    pub at_ns: u64,
    pub ns: u64,
    /// The mean of the others: without the five slowest.
    pub usual_ns: u64,
    /// What the thread did, by how much more time it took than usual. The times add up to the step's.
    pub parts: Vec<StepPartReport>,
    /// Operations launched in the step, and their time on the GPU.
    pub operations: u64,
    pub usual_operations: f64,
    pub device_ns: u64,
    pub usual_device_ns: u64,
    /// The kernel run that exceeded its median the most.
    pub long_kernel: Option<LongKernelReport>,
}

/// Time of one kind in a slow step.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StepPartReport {
    /// `host_code`, the time outside of calls, or the class of the calls as in `call_classes`.
    pub what: &'static str,
    pub ns: u64,
    pub usual_ns: u64,
    /// Calls, or times between two calls.
    pub pieces: u64,
    pub usual_pieces: f64,
    pub longest_ns: u64,
    /// The lines of the calls before and after the longest piece; the same one for a call.
    pub from: Option<CodeLocation>,
    pub to: Option<CodeLocation>,
}

/// A run of a kernel in a slow step.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LongKernelReport {
    pub name: String,
    pub ns: u64,
    /// Of the kernel's runs before this one.
    pub median_ns: u64,
    pub line: Option<CodeLocation>,
}

/// The slow ones of a process's steps, the slowest first.
pub(super) fn slow_steps(
    watched: &WatchedSteps,
    process: u32,
    begin_ns: u64,
    labels: &mut Labels<'_>,
) -> Vec<SlowStepReport> {
    let (others, usual) = watched.others();
    if others < OTHERS_MIN {
        return Vec::new();
    }
    let each = |all: u64| all / others;
    let usual_ns = each(usual.parts.iter().fold(0, |sum: u64, part| sum.saturating_add(part.ns)));
    let slow = watched.slowest().iter().filter(|step| step.ns() as f64 >= usual_ns as f64 * SLOWER_MIN);
    let report = slow.map(|step| {
        let all = Doing::ALL.into_iter().zip(step.sums.parts.iter().zip(&usual.parts));
        let mut parts: Vec<StepPartReport> = all
            .filter(|(_, (part, usual))| part.pieces > 0 || each(usual.ns) > 0)
            .map(|(doing, (part, usual))| {
                let StepPart { ns, pieces, longest_ns, from, to } = *part;
                let mut line = |stack| charged_location(&mut labels.stacks, process, stack);
                let (from, to) = (line(from), line(to));
                StepPartReport {
                    what: doing.name(),
                    ns,
                    usual_ns: each(usual.ns),
                    pieces,
                    usual_pieces: per_step(usual.pieces, others),
                    longest_ns,
                    from,
                    to,
                }
            })
            .collect();
        parts.sort_by_key(|part| (std::cmp::Reverse(part.more_ns()), part.what));
        let long_kernel = step.sums.long_kernel.map(|long| LongKernelReport {
            name: labels.kernels.name(process, long.kernel.name).short.to_string(),
            ns: long.ns,
            median_ns: long.median_ns as u64,
            line: charged_location(&mut labels.stacks, process, long.stack),
        });
        SlowStepReport {
            at_ns: step.begin_ns.saturating_sub(begin_ns),
            ns: step.ns(),
            usual_ns,
            parts,
            operations: step.sums.operations,
            usual_operations: per_step(usual.operations, others),
            device_ns: step.sums.device_ns,
            usual_device_ns: each(usual.device_ns),
            long_kernel,
        }
    });
    report.collect()
}

fn per_step(all: u64, steps: u64) -> f64 {
    (all as f64 / steps as f64 * 10.0).round() / 10.0
}

impl StepPartReport {
    fn more_ns(&self) -> i64 {
        let signed = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
        signed(self.ns) - signed(self.usual_ns)
    }

    /// `205 ms more in host code, at once from train.py:61 to train.py:64 step`.
    fn text(&self) -> String {
        let what = match self.what {
            "host_code" => "in host code",
            "launch" | "graph_launch" => "launching",
            "copy" => "in calls of copies",
            "fill" => "in memsets",
            "wait" => "waiting for the GPU",
            "module_load" => "loading modules",
            "alloc" => "allocating memory",
            "free" => "freeing memory",
            _ => "in other calls",
        };
        let more = duration(self.more_ns().unsigned_abs());
        let short = |at: &CodeLocation| CodeLocation { function: String::new(), ..at.clone() }.text();
        let at_lines = match (&self.from, &self.to) {
            (Some(from), Some(to)) if from != to => {
                format!(" from {} to {}", short(from).trim_end(), to.text())
            }
            (_, Some(at)) | (Some(at), None) => format!(" at {}", at.text()),
            (None, None) => String::new(),
        };
        let (longest, of) = (self.longest_ns as f64, self.more_ns() as f64);
        if longest >= of * AT_ONCE_MIN {
            let part = if longest >= of * ALL_MIN {
                String::new()
            } else {
                format!("{} of it ", duration(self.longest_ns))
            };
            return format!("{more} more {what}, {part}at once{}", line_safe(&at_lines));
        }
        let (pieces, usual) = (count(self.pieces), count(self.usual_pieces as u64));
        format!("{more} more {what} ({pieces} times, usually {usual})")
    }
}

impl SlowStepReport {
    /// For people, if the step is beyond what steps vary by.
    pub(super) fn line(&self, steps: &StepsReport) -> Option<String> {
        if (self.ns as f64) < steps.mean_ns + DEVIATIONS_MIN * steps.deviation_ns {
            return None;
        }
        let more_ns = self.ns.saturating_sub(self.usual_ns);
        let matters = |part: &&StepPartReport| part.more_ns() as f64 >= more_ns as f64 * PART_MIN;
        let shown = self.parts.iter().filter(matters).take(PARTS_SHOWN);
        let mut texts: Vec<String> = shown.map(StepPartReport::text).collect();
        let device_ns = self.device_ns.saturating_sub(self.usual_device_ns);
        if device_ns as f64 >= more_ns as f64 * PART_MIN {
            texts.push(format!("{} more of work on the GPU", duration(device_ns)));
        }
        if let Some(long) = &self.long_kernel
            && long.ns.saturating_sub(long.median_ns) as f64 >= more_ns as f64 * PART_MIN
        {
            let (ns, median) = (duration(long.ns), duration(long.median_ns));
            texts.push(format!("{} ran for {ns} (median {median})", line_safe(&long.name)));
        }
        let which = match (self.at_ns, self.ns) == (steps.longest_at_ns, steps.longest_ns) {
            true => String::new(),
            false => format!("{}, after {}: ", duration(self.ns), duration(self.at_ns)),
        };
        (!texts.is_empty()).then(|| which + &texts.join("; "))
    }
}

#[cfg(test)]
#[path = "slow_steps_tests.rs"]
mod tests;
