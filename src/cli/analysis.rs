//! What a session or some traces come to, in every form that is written or printed.

use std::collections::BTreeMap;

use gputrace_collector::aggregate::Aggregates;
use gputrace_collector::flame::Flame;
use gputrace_collector::model::Totals;
use gputrace_collector::report::{Report, TextOptions};

use crate::cli::exit_code;
use crate::cli::failure::{Failure, reason};

#[derive(Debug)]
pub struct Analysis {
    report: Report,
    flame: Flame,
}

impl Analysis {
    pub fn new(totals: &Totals, aggregates: &Aggregates) -> Analysis {
        Analysis { report: Report::new(totals, aggregates), flame: Flame::new(totals, aggregates) }
    }

    /// The report for programs.
    pub fn json(&self) -> String {
        let mut text = self.report.to_json();
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text
    }

    /// The report for people.
    pub fn summary(&self) -> String {
        self.report.to_text(&TextOptions::default())
    }

    /// The flamegraph as folded lines.
    pub fn folded(&self) -> String {
        self.flame.folded()
    }

    /// The flamegraph drawn.
    pub fn svg(&self) -> Result<Vec<u8>, Failure> {
        self.flame.svg().map_err(|error| {
            Failure::new(format!("cannot draw the flamegraph: {}", reason(&error)))
                .code(exit_code::collector::DEFECT)
        })
    }

    /// Losses by reason; only reasons that apply.
    pub fn losses(&self) -> &BTreeMap<String, u64> {
        &self.report.dropped
    }

    /// Host calls and executed operations that were recorded.
    pub fn events(&self) -> u64 {
        self.report.counts.host_calls + self.report.counts.executed_operations
    }
}
