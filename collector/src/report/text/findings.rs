//! The findings on the page of the summary: what each could save, what is wrong, where, and what helps.

use crate::aggregate::Cause;
use crate::label::units::{duration, percent};
use crate::names::line_safe;
use crate::report::text::page::TextPage;
use crate::report::{Finding, FindingsReport, Report};

/// A GPU that is busy for less waits for something.
const BUSY: f64 = 0.8;

impl Report {
    pub(super) fn findings(&self, page: &mut TextPage) {
        let Some(findings) = &self.findings else { return };
        page.blank();
        let FindingsReport { span_ns, busy_ns, list } = findings;
        let share_busy = *busy_ns as f64 / (*span_ns).max(1) as f64;
        let share = percent(share_busy);
        let of = if self.devices.len() > 1 { ", over all GPUs" } else { "" };
        let span =
            format!("busy {share} of the {} from the first to the last operation{of}", duration(*span_ns));
        if list.is_empty() {
            let with = if share_busy < BUSY { self.most_idle() } else { self.most_busy() };
            let none = if share_busy < BUSY { "none that the rules know" } else { "none" };
            page.fact("Findings", &format!("{none}: {span}{with}"));
            return;
        }
        page.fact("Findings", &span);
        for finding in list {
            finding.lines(page);
        }
    }

    /// What a GPU that is busy is busy with.
    fn most_busy(&self) -> String {
        let most = self.kernels.first().filter(|kernel| kernel.spread.total_ns.is_some());
        most.map_or_else(String::new, |kernel| {
            let share = kernel.share.map(percent).unwrap_or_default();
            format!("; {share} of the kernels' time in {}", line_safe(&kernel.name))
        })
    }

    /// What a GPU that is idle mostly waits for, between its operations.
    fn most_idle(&self) -> String {
        let causes =
            self.devices.iter().filter_map(|device| device.idle.as_ref()).flat_map(|idle| &idle.causes);
        let between = causes.filter(|cause| !matches!(cause.cause, Cause::Begin | Cause::End));
        between.max_by_key(|cause| cause.ns).map_or_else(String::new, |cause| {
            format!("; idle most {} ({})", cause.cause.text(), duration(cause.ns))
        })
    }
}

impl Finding {
    fn lines(&self, page: &mut TextPage) {
        let saves = format!("~ {}", percent(self.saves.share));
        page.warning_fact(&saves, &line_safe(&self.title));
        if !self.lines.is_empty() {
            let at: Vec<String> =
                self.lines.iter().map(|line| line_safe(&line.text()).into_owned()).collect();
            page.fact("", &format!("at {}", at.join(", ")));
        }
        page.fact("", &self.advice);
    }
}
