//! What costs time, where, and what would help: at most seven findings, the one that could save most first.
//!
//! Each rule looks at the finished report and at sums that it does not show. A rule answers only where its
//! fault costs a part of the time from a device's first to its last operation: time before and after that is
//! the program's start and end. `docs/guide/findings.md` lists the rules with their limits.

mod calls;
mod clocks;
mod copies;
mod input;
mod kernels;
mod ranks;
mod streams;
mod waiting;

use serde::Serialize;

use crate::aggregate::Aggregates;
use crate::label::Labels;
use crate::report::json::{DeviceTimes, Report};
use crate::report::lines::CodeLocation;
use input::RuleInput;

/// Findings in the report.
const SHOWN: usize = 7;
/// The least part of the time that a finding could save.
const SAVES_MIN: f64 = 0.02;
/// Shorter runs have no findings.
const SPAN_MIN_NS: u64 = 1_000_000;

/// A fault of the program, and what mending it could save.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Finding {
    /// A fixed name, for programs.
    pub rule: &'static str,
    /// What is wrong, with its figures.
    pub title: String,
    /// Where: the lines that matter most.
    pub lines: Vec<CodeLocation>,
    pub advice: String,
    #[serde(flatten)]
    pub saves: Saving,
    /// How that was computed.
    pub basis: &'static str,
    pub confidence: Confidence,
}

/// About so much time mending it could save.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Saving {
    #[serde(rename = "saves_ns")]
    pub ns: u64,
    /// Of the time from the first to the last operation, summed over devices.
    #[serde(rename = "saves_share")]
    pub share: f64,
}

/// How sure it is that the advice helps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    High,
    Medium,
    Low,
}

/// What the findings are of.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FindingsReport {
    /// From the first start to the last end of an operation, summed over devices.
    pub span_ns: u64,
    /// Of it, how long devices were busy.
    pub busy_ns: u64,
    pub list: Vec<Finding>,
}

impl FindingsReport {
    /// `None` where too little is known or was recorded.
    pub(super) fn new(
        report: &Report,
        aggregates: &Aggregates,
        labels: &mut Labels<'_>,
    ) -> Option<FindingsReport> {
        // Of a session that was paused, it is not known what was between.
        let is_whole = report.paused.is_none() && report.switched_times.is_none();
        if !is_whole || !matches!(report.device_times, DeviceTimes::Full | DeviceTimes::Partial) {
            return None;
        }
        let input = RuleInput::new(report, aggregates, labels);
        if input.span_ns < SPAN_MIN_NS {
            return None;
        }
        let mut list = Vec::new();
        waiting::find(&input, &mut list);
        copies::find(&input, &mut list);
        calls::find(&input, &mut list);
        // Small kernels that could run beside each other are not too small.
        match streams::default_stream(&input, labels) {
            Some(finding) => list.push(finding),
            None => kernels::find(&input, &mut list),
        }
        clocks::find(&input, &mut list);
        ranks::find(&input, labels, &mut list);
        list.retain(|finding| finding.saves.share >= SAVES_MIN);
        list.sort_by_key(|finding| std::cmp::Reverse(finding.saves.ns));
        list.truncate(SHOWN);
        Some(FindingsReport { span_ns: input.span_ns, busy_ns: input.busy_ns, list })
    }
}
