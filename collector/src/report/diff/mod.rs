//! Two sides of one report or several each, compared: `gputrace diff`.
//!
//! Figures of a side are means over its runs. With several runs on both sides each difference has Welch's
//! interval; with single runs nothing is claimed beyond what was measured, but for the mean step, whose steps
//! vary too.
//! `docs/reference/diff.md` has the fields of the JSON.

mod measured;
mod notes;
mod page;
mod rows;
mod stacks;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde::Serialize;

use crate::aggregate::Cause;
use crate::report::{DeviceTimes, Report};

pub use measured::{MeasuredTwice, Moments};
pub use page::PageFormat;
pub use rows::{ComparedRow, OnlyIn, PerStep, RunSums};
pub use stacks::{SideStacks, StackOfRun};

pub const SCHEMA: &str = "gputrace-diff";
pub const VERSION: u32 = 1;

/// What a figure is measured in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum FigureUnit {
    #[serde(rename = "ns")]
    Time,
    Count,
}

/// A side's runs in words.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SideReport {
    /// The command of the first run.
    pub command: Vec<String>,
    pub runs: usize,
    pub simulated: bool,
    pub devices: Vec<String>,
}

/// A figure of the whole run.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ComparedTotal {
    pub name: &'static str,
    /// For people.
    #[serde(skip)]
    pub title: &'static str,
    pub unit: FigureUnit,
    #[serde(flatten)]
    pub measured: MeasuredTwice,
}

/// The devices with one ordinal, as the program numbers them.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ComparedDevice {
    pub ordinal: u32,
    pub busy: MeasuredTwice,
    /// An upper bound if not every operation's time is known.
    pub idle: MeasuredTwice,
    /// The cause whose time changed the most first.
    pub idle_causes: Vec<ComparedCause>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ComparedCause {
    pub cause: Cause,
    #[serde(flatten)]
    pub measured: MeasuredTwice,
}

/// What `gputrace diff --format json` writes; docs/reference/diff.md describes every field. New fields may
/// come within a version.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DiffReport {
    pub schema: &'static str,
    pub version: u32,
    pub before: SideReport,
    pub after: SideReport,
    /// What is not known, and why.
    pub notes: Vec<String>,
    /// Conditions that are true, with their figures: who asked for them adds them.
    pub failed: Vec<String>,
    pub totals: Vec<ComparedTotal>,
    pub devices: Vec<ComparedDevice>,
    /// The one whose GPU time changed the most first, by step where steps are known.
    pub kernels: Vec<ComparedRow>,
    pub lines: Vec<ComparedRow>,
    /// PyTorch's modules with those inside of them; empty if there are none.
    pub modules: Vec<ComparedRow>,
    /// The stacks that changed the most; their names are frames from the root on, joined by `;`.
    pub stacks: Vec<ComparedRow>,
    /// Stacks that changed less than those.
    pub stacks_left_out: u64,
    pub stacks_the_same: u64,
}

struct TotalKind {
    name: &'static str,
    title: &'static str,
    unit: FigureUnit,
    of: fn(&Report) -> Option<u64>,
}

const STEP_TIME: &str = "step_time";

static TOTALS: [TotalKind; 11] = [
    total("wall_time", "wall time", FigureUnit::Time, |report| Some(report.wall_ns)),
    total("active_time", "from first to last operation", FigureUnit::Time, Report::active_ns),
    total(STEP_TIME, "mean step", FigureUnit::Time, |report| report.step_ns().map(|ns| ns as u64)),
    total("steps", "steps", FigureUnit::Count, Report::step_count),
    total("kernel_time", "kernel time", FigureUnit::Time, |report| report.kernel_ns(None)),
    total("copy_time", "copies and memsets", FigureUnit::Time, Report::moved_ns),
    total("graph_time", "graphs timed as a whole", FigureUnit::Time, |report| {
        report.has_device_times().then_some(report.graph_level.total_ns)
    }),
    total("call_time", "host time in CUDA calls", FigureUnit::Time, |report| Some(report.calls_ns())),
    total("launches", "launches", FigureUnit::Count, |report| Some(report.counts.launches)),
    total("graph_launches", "graph launches", FigureUnit::Count, |report| Some(report.counts.graph_launches)),
    total("kernel_calls", "executed kernels", FigureUnit::Count, |report| Some(report.kernel_calls(None))),
];

const fn total(
    name: &'static str,
    title: &'static str,
    unit: FigureUnit,
    of: fn(&Report) -> Option<u64>,
) -> TotalKind {
    TotalKind { name, title, unit, of }
}

impl DiffReport {
    /// Compares the runs of both sides; a run is a report of its own.
    pub fn new(before: &[Report], after: &[Report]) -> DiffReport {
        let totals = TOTALS.iter().map(|kind| {
            let mut compared = measured(before, after, kind.of);
            // Of one run each, the steps are what there are several of.
            if kind.name == STEP_TIME
                && let ([before], [after]) = (before, after)
                && let Some((before, after)) = before.step_moments().zip(after.step_moments())
            {
                compared = compared.with_interval(before, after);
            }
            ComparedTotal { name: kind.name, title: kind.title, unit: kind.unit, measured: compared }
        });
        let totals: Vec<ComparedTotal> = totals.collect();
        let mut notes = notes::notes(before, after);
        let step_time = totals.iter().find(|total| total.name == STEP_TIME);
        let by_steps = step_time.filter(|_| before.len() == 1 && after.len() == 1);
        notes.extend(by_steps.and_then(|total| notes::step_note(&total.measured)));
        DiffReport {
            schema: SCHEMA,
            version: VERSION,
            before: SideReport::new(before),
            after: SideReport::new(after),
            notes,
            failed: Vec::new(),
            totals,
            devices: devices(before, after),
            kernels: rows::kernels(before, after),
            lines: rows::lines(before, after),
            modules: rows::modules(before, after),
            stacks: Vec::new(),
            stacks_left_out: 0,
            stacks_the_same: 0,
        }
    }

    /// One object, ending in a newline.
    pub fn to_json(&self) -> String {
        // Serializing plain data into memory cannot fail.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

impl SideReport {
    fn new(runs: &[Report]) -> SideReport {
        let devices: BTreeSet<String> =
            runs.iter().flat_map(Report::used_devices).map(|device| device.name.clone()).collect();
        SideReport {
            command: runs.first().map(|report| report.command.clone()).unwrap_or_default(),
            runs: runs.len(),
            simulated: runs.iter().any(|report| report.simulated),
            devices: devices.into_iter().collect(),
        }
    }
}

/// A figure that is found in every report alone.
pub fn measured(before: &[Report], after: &[Report], of: impl Fn(&Report) -> Option<u64>) -> MeasuredTwice {
    let figures = |runs: &[Report]| -> Vec<Option<f64>> {
        runs.iter().map(|report| of(report).map(|value| value as f64)).collect()
    };
    MeasuredTwice::new(&figures(before), &figures(after))
}

/// By ordinal. Processes that each see one device all call it 0; their times are summed.
fn devices(before: &[Report], after: &[Report]) -> Vec<ComparedDevice> {
    let all = || before.iter().chain(after);
    let ordinals: BTreeSet<u32> = all().flat_map(Report::used_devices).map(|device| device.ordinal).collect();
    let of_ordinal = |ordinal: u32| {
        let sum = move |report: &Report, of: &dyn Fn(&crate::report::DeviceReport) -> Option<u64>| {
            let mut devices = report.used_devices().filter(|device| device.ordinal == ordinal);
            devices.try_fold(0, |sum: u64, device| Some(sum.saturating_add(of(device)?)))
        };
        let is_known = |report: &&Report| report.device_times != DeviceTimes::Windows;
        let causes: BTreeSet<Cause> = all()
            .filter(is_known)
            .flat_map(Report::used_devices)
            .filter(|device| device.ordinal == ordinal)
            .flat_map(|device| device.idle.iter().flat_map(|idle| &idle.causes))
            .map(|cause| cause.cause)
            .collect();
        let of_cause = |of: Cause| {
            let measured = measured(before, after, |report| {
                let known = Some(report).filter(is_known)?;
                sum(known, &|device| {
                    let causes = &device.idle.as_ref()?.causes;
                    Some(causes.iter().find(|cause| cause.cause == of).map_or(0, |cause| cause.ns))
                })
            });
            ComparedCause { cause: of, measured }
        };
        let mut idle_causes: Vec<ComparedCause> = causes.into_iter().map(of_cause).collect();
        idle_causes.sort_by(|a, b| b.measured.distance().total_cmp(&a.measured.distance()));
        ComparedDevice {
            ordinal,
            busy: measured(before, after, |report| sum(report, &|device| device.busy_ns)),
            idle: measured(before, after, |report| sum(report, &|device| device.idle_at_most_ns)),
            idle_causes,
        }
    };
    ordinals.into_iter().map(of_ordinal).collect()
}
