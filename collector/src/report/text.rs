//! The summary that people read: as wide as the terminal, 60 to 160 columns, and about 40 lines long.

mod findings;
mod inside;
mod memory;
pub(super) mod page;
mod tables;

use crate::label::units::{count, duration, percent};
use crate::names::line_safe;
use crate::report::build::NOT_RECORDED;
use crate::report::errors::error_lines;
use crate::report::failures::{failure_lines, in_flight_lines};
use crate::report::table::fit;
use crate::report::words::{operations, plural};
use crate::report::{
    DeviceReport, DeviceTimes, PausedReport, Report, SeriesReport, StepsReport, graph_times,
};
use page::{BOLD, TextPage, YELLOW};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TextOptions {
    /// The width in characters. A narrow page shows fewer columns of figures, a wide one longer names.
    pub width: usize,
    pub color: bool,
    /// Shows details for experts: occupancy, how late device records came, why a cost is not shown.
    pub verbose: bool,
    /// Rows of the table of kernels.
    pub kernels: usize,
    /// Rows of the table of lines.
    pub lines: usize,
    /// Rows of the table of ranges.
    pub ranges: usize,
}

impl Default for TextOptions {
    fn default() -> Self {
        TextOptions { width: 80, color: false, verbose: false, kernels: 10, lines: 8, ranges: 8 }
    }
}

const WIDTH_MIN: usize = 60;
const WIDTH_MAX: usize = 160;
/// The least share of the wall time at which a cause or a place of idle time is shown.
const IDLE_SHARE_MIN: f64 = 0.001;
const DEVICES_SHOWN: usize = 8;
const NOTICES_SHOWN: usize = 4;
/// With fewer sampled hooks than this, their mean is not shown.
const COST_SAMPLES_MIN: u64 = 200;

impl Report {
    /// The summary, ending in a newline.
    pub fn to_text(&self, options: &TextOptions) -> String {
        let width = options.width.clamp(WIDTH_MIN, WIDTH_MAX);
        let mut page =
            TextPage { text: String::new(), width, color: options.color, verbose: options.verbose };
        self.title(&mut page);
        self.overview(&mut page);
        self.failed(&mut page);
        if self.counts.host_calls == 0 && self.counts.executed_operations == 0 {
            page.blank();
            page.paragraph(self.why_empty());
            self.range_table(&mut page, options.ranges);
            if !self.lost().is_empty() {
                page.blank();
                self.lost_line(&mut page);
            }
        } else {
            self.findings(&mut page);
            self.kernel_table(&mut page, options.kernels);
            self.anomaly_table(&mut page);
            self.graph_table(&mut page);
            self.line_table(&mut page, options.lines);
            self.module_table(&mut page);
            self.operator_table(&mut page);
            self.idle_table(&mut page);
            self.range_table(&mut page, options.ranges);
            self.thread_table(&mut page);
            self.stream_table(&mut page);
            self.transfer_table(&mut page);
            self.call_table(&mut page);
            self.memory_table(&mut page);
            self.balance(&mut page);
        }
        self.notice_lines(&mut page);
        page.text
    }

    /// Whether the traces were read to their ends.
    fn read_whole(&self) -> bool {
        self.damages.iter().all(|damage| damage.read_whole)
    }

    fn why_empty(&self) -> &'static str {
        if self.part.is_some() {
            "Nothing in the trace fits --filter, --from and --to."
        } else if !self.read_whole() {
            "The part of the trace that could be read holds no CUDA call."
        } else if self.processes.is_empty() {
            "No CUDA call was seen: no process came to be traced."
        } else {
            "The CUDA driver was loaded, but no launch, copy or other recorded call was seen."
        }
    }

    fn title(&self, page: &mut TextPage) {
        let mark = if self.simulated { "simulated device" } else { "" };
        let title_max = page.width.saturating_sub(mark.len() + 2);
        let program = self.command.first().map_or("", |path| path.rsplit('/').next().unwrap_or(path));
        let command: Vec<&str> =
            std::iter::once(program).chain(self.command.iter().skip(1).map(String::as_str)).collect();
        let command = command.join(" ");
        let title = fit(&format!("gputrace  {}", line_safe(&command)), title_max);
        let gap = page.width.saturating_sub(title.trim_end().chars().count() + mark.len());
        let mut line = page.paint(BOLD, title.trim_end());
        if !mark.is_empty() {
            line += &format!("{:gap$}{}", "", page.paint(YELLOW, mark));
        }
        page.line(&line);
    }

    fn overview(&self, page: &mut TextPage) {
        let processes = self.processes.len() as u64
            + self.evicted_processes.as_ref().map_or(0, |evicted| evicted.processes);
        let processes = plural(processes, "process", "processes");
        let sessions = match self.sessions {
            0 | 1 => String::new(),
            sessions => format!(", {} sessions", count(sessions as u64)),
        };
        let is_missing = self.notices.iter().any(|notice| notice.text.starts_with(NOT_RECORDED));
        let unfinished = match (self.closed_in_order, is_missing) {
            (false, _) => ", not closed in order",
            (true, true) => ", incomplete: see below",
            (true, false) => "",
        };
        let wall = duration(self.wall_ns);
        page.fact("Wall time", &format!("{wall}, {processes}{sessions}{unfinished}"));
        if let Some(part) = &self.part {
            page.fact("Selected", &line_safe(&format!("{}: all below is of this part alone", part.text())));
        }
        for excerpt in &self.excerpts {
            page.fact("Excerpt", &excerpt.line());
        }
        if let Some(paused) = &self.paused {
            page.fact("Recorded", &paused.line(self.wall_ns));
        }
        for limit in &self.size_limits {
            page.warning_fact("Part", &limit.line());
        }
        for line in self.series.iter().filter_map(SeriesReport::line) {
            page.fact("Part", &line);
        }
        for damage in &self.damages {
            if damage.skipped {
                page.warning_fact("Trace", &line_safe(&damage.reason));
                continue;
            }
            let of = match self.sessions.max(self.damages.len()) {
                0 | 1 => String::new(),
                _ => format!("{}: ", line_safe(&damage.trace)),
            };
            let how = if damage.read_whole { "" } else { "read in part: " };
            let (reason, at) = (line_safe(&damage.reason), count(damage.offset));
            page.warning_fact("Trace", &format!("{of}{how}{reason} (at byte {at})"));
        }
        if let Some(line) = self.steps.first().map(|steps| steps.line(self.steps.len())) {
            page.fact("Steps", &line);
        }
        if let Some(line) = self.steps.first().and_then(StepsReport::slowest_line) {
            page.fact("  slowest", &line);
        }
        for device in self.devices.iter().take(DEVICES_SHOWN) {
            let name = if device.name.is_empty() { "unknown device" } else { &device.name };
            let label = format!("GPU {}", device.ordinal);
            page.fact(&label, &format!("{}, {}", line_safe(name), self.busy(device)));
            if let Some(idle) = self.idle_causes(device) {
                page.fact("  idle", &idle);
            }
            for line in device.metrics.iter().flat_map(|metrics| metrics.lines()) {
                page.fact("", &line);
            }
        }
        if let more @ 1.. = self.devices.len().saturating_sub(DEVICES_SHOWN) {
            page.fact("", &format!("and {} more devices", count(more as u64)));
        }
    }

    /// Failed calls and operations in flight, above everything else.
    fn failed(&self, page: &mut TextPage) {
        for (is_first, line) in failure_lines(&self.failures) {
            page.warning_fact(if is_first { "Failure" } else { "" }, &line);
        }
        let mut label = "In flight";
        for line in in_flight_lines(&self.in_flight) {
            page.warning_fact(label, &line);
            label = "";
        }
        let mut label = "Failed";
        for (is_first, line) in error_lines(&self.errors) {
            page.warning_fact(if is_first { label } else { "" }, &line);
            label = "";
        }
    }

    fn busy(&self, device: &DeviceReport) -> String {
        if device.operations == 0 {
            return "not used".to_owned();
        }
        let Some(busy_ns) = device.busy_ns else {
            return "busy time not known (no device times)".to_owned();
        };
        let share = |ns: u64| match self.wall_ns {
            0 => String::new(),
            wall_ns => format!(" ({})", percent(ns as f64 / wall_ns as f64)),
        };
        let time = |ns: u64| duration(ns) + &share(ns);
        match (device.idle_ns, device.idle_at_most_ns) {
            (Some(idle_ns), _) => format!("busy {}, idle {}", time(busy_ns), time(idle_ns)),
            (None, Some(idle_ns)) => {
                format!("busy at least {}, idle at most {}", time(busy_ns), time(idle_ns))
            }
            (None, None) if self.part.is_some() => format!("busy {} with this part", time(busy_ns)),
            (None, None) => format!("busy at least {}", time(busy_ns)),
        }
    }

    /// The causes of a device's idle time that matter.
    fn idle_causes(&self, device: &DeviceReport) -> Option<String> {
        // Outside of windows nothing is known.
        if self.device_times == DeviceTimes::Windows {
            return None;
        }
        let causes = device.idle.iter().flat_map(|idle| &idle.causes);
        let shown: Vec<String> = causes
            .filter_map(|cause| {
                let share = cause.share.filter(|share| *share >= IDLE_SHARE_MIN)?;
                Some(format!("{} {} ({})", duration(cause.ns), cause.cause.text(), percent(share)))
            })
            .collect();
        (!shown.is_empty()).then(|| shown.join(", "))
    }

    /// What was counted, what was lost, and the cost of tracing.
    fn balance(&self, page: &mut TextPage) {
        let counts = &self.counts;
        page.blank();
        let mut counted = vec![plural(counts.launches, "launch", "launches")];
        let mut add = |value: u64, text: String| {
            if value > 0 {
                counted.push(text);
            }
        };
        add(counts.captured_launches, format!("{} captured", count(counts.captured_launches)));
        add(counts.graph_launches, plural(counts.graph_launches, "graph launch", "graph launches"));
        add(counts.graph_node_calls, plural(counts.graph_node_calls, "graph node", "graph nodes"));
        add(counts.device_only, format!("{} device-only", count(counts.device_only)));
        add(counts.failed_calls, format!("{} refused", count(counts.failed_calls)));
        page.fact("Counted", &counted.join(", "));
        let on_devices = operations(counts.executed_operations.saturating_sub(counts.host_to_host));
        let coverage = match self.device_times {
            DeviceTimes::None => format!("none of {on_devices}"),
            _ => format!("{} of {on_devices}", percent(self.device_time_coverage)),
        };
        let mode = if self.device_times == DeviceTimes::Windows { ", in windows" } else { "" };
        let switched = self.switched_times.as_ref().map(|switched| switched.words(self.wall_ns));
        page.fact("Timed", &(coverage + mode + &switched.unwrap_or_default()));
        if let Some(estimate) = &self.estimate {
            for (at, line) in estimate.lines(counts).iter().enumerate() {
                page.fact(if at == 0 { "Estimated" } else { "" }, line);
            }
        }
        if let Some(budget) = &self.budget {
            page.fact("Budget", &budget.words());
        }
        if counts.host_to_host > 0 {
            let copies = plural(counts.host_to_host, "copy", "copies");
            page.fact("By the CPU", &format!("{copies} from host to host, which have no device times"));
        }
        if counts.graph_launches > 0 && self.device_times != DeviceTimes::None {
            page.fact("Graphs", &graph_times::line(&self.graph_times));
        }
        if page.verbose
            && let Some(lag_ns) = self.cost.record_lag_max_ns
        {
            page.fact("Lag", &format!("device records came at most {} after their end", duration(lag_ns)));
        }
        self.lost_line(page);
        // A call with a new kernel or stack costs a hundred times an ordinary one: it dominates few samples.
        if self.cost.sampled_hooks > 0 && self.cost.sampled_hooks < COST_SAMPLES_MIN {
            if page.verbose {
                page.fact("Cost", "too few calls to tell what a hook costs");
            }
        } else if let (Some(each_ns), Some(all_ns)) = (self.cost.hook_ns, self.cost.hooks_total_ns) {
            let paused = self.paused.as_ref().map_or(0, PausedReport::paused_calls);
            let hooks = counts.host_calls.saturating_add(counts.counted_launches).saturating_add(paused);
            let share = self.cost.hooks_share_of_wall.unwrap_or(0.0) * 100.0;
            page.fact(
                "Cost",
                &format!(
                    "hooks alone {share:.2}% of wall time: {} in {} hooks, {each_ns:.0} ns each",
                    duration(all_ns as u64),
                    count(hooks)
                ),
            );
        }
    }

    fn lost_line(&self, page: &mut TextPage) {
        match self.lost() {
            lost if lost.is_empty() => page.fact("Lost", "nothing"),
            lost => page.warning_fact("Lost", &lost.join(", ")),
        }
    }

    fn lost(&self) -> Vec<String> {
        let mut lost: Vec<String> =
            self.dropped.iter().map(|(reason, lost)| format!("{reason} {}", count(*lost))).collect();
        if self.counts.untimed_operations > 0 {
            lost.push(format!("device times of {}", operations(self.counts.untimed_operations)));
        }
        if let skipped @ 1.. = self.damages.iter().filter(|damage| damage.skipped).count() {
            lost.push(format!("all of {}", plural(skipped as u64, "trace", "traces")));
        }
        for damage in self.damages.iter().filter(|damage| !damage.read_whole && !damage.skipped) {
            lost.push(format!("all from byte {} of the trace on", count(damage.offset)));
        }
        lost
    }

    fn notice_lines(&self, page: &mut TextPage) {
        if self.notices.is_empty() {
            return;
        }
        page.blank();
        for notice in self.notices.iter().take(NOTICES_SHOWN) {
            let many = match notice.processes {
                0 | 1 => String::new(),
                processes => format!(" ({} processes)", count(processes)),
            };
            let text = line_safe(&notice.text).into_owned() + &many;
            match notice.severity {
                "warning" => page.warning_fact("Note", &text),
                _ => page.fact("Note", &text),
            }
        }
        if let more @ 1.. = self.notices.len().saturating_sub(NOTICES_SHOWN) {
            page.fact("", &format!("and {}", plural(more as u64, "more note", "more notes")));
        }
    }
}
