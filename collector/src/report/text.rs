//! The summary that people read: as wide as the terminal and some 40 lines, nothing they must skip.

use crate::names::line_safe;
use crate::report::failures::{failure_lines, in_flight_lines};
use crate::report::table::{Table, fit};
use crate::report::units::{bandwidth, bytes, count, digits, duration, percent};
use crate::report::{
    CallReport, DeviceReport, DeviceTimes, KernelReport, LineReport, MovedReport, RangeReport, Report,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TextOptions {
    /// Columns of the page; wider ones than 100 only give names more room.
    pub width: usize,
    pub color: bool,
    /// Rows of the table of kernels.
    pub kernels: usize,
    /// Rows of the table of lines.
    pub lines: usize,
    /// Rows of the table of ranges.
    pub ranges: usize,
}

impl Default for TextOptions {
    fn default() -> Self {
        TextOptions { width: 100, color: false, kernels: 10, lines: 8, ranges: 8 }
    }
}

const WIDTH_MIN: usize = 80;
const WIDTH_MAX: usize = 160;
/// Below this, the table of kernels has no room for a long heading.
const NARROW: usize = 95;
/// The first column of the small tables.
const NAME_MIN: usize = 28;
/// What stands in front of a line of facts.
const LABEL: usize = 11;
const DEVICES_SHOWN: usize = 8;
const NOTICES_SHOWN: usize = 4;
/// Measured hooks below which their mean is not shown.
const COST_SAMPLES_MIN: u64 = 200;

impl Report {
    /// The summary, ending in a newline.
    pub fn to_text(&self, options: &TextOptions) -> String {
        let width = options.width.clamp(WIDTH_MIN, WIDTH_MAX);
        let mut page = Page { text: String::new(), width, color: options.color };
        self.title(&mut page);
        self.overview(&mut page);
        self.failed(&mut page);
        if self.counts.host_calls == 0 && self.counts.executed_operations == 0 {
            page.blank();
            page.line(self.why_empty());
            self.range_table(&mut page, options.ranges);
            if !self.lost().is_empty() {
                page.blank();
                self.lost_line(&mut page);
            }
        } else {
            self.kernel_table(&mut page, options.kernels);
            self.line_table(&mut page, options.lines);
            self.range_table(&mut page, options.ranges);
            self.transfer_table(&mut page);
            self.call_table(&mut page);
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
        if !self.read_whole() {
            "The part of the trace that could be read holds no CUDA call."
        } else if self.processes.is_empty() {
            "No CUDA call was seen: no process came to be traced."
        } else {
            "The CUDA driver was loaded, but no launch, copy or other recorded call was seen."
        }
    }

    fn title(&self, page: &mut Page) {
        let mark = if self.simulated { "simulated device" } else { "" };
        let room = page.width.saturating_sub(mark.len() + 2);
        let program = self.command.first().map_or("", |path| path.rsplit('/').next().unwrap_or(path));
        let command: Vec<&str> =
            std::iter::once(program).chain(self.command.iter().skip(1).map(String::as_str)).collect();
        let command = command.join(" ");
        let title = fit(&format!("gputrace  {}", line_safe(&command)), room);
        let gap = page.width.saturating_sub(title.trim_end().chars().count() + mark.len());
        if mark.is_empty() {
            page.strong(title.trim_end());
        } else {
            let line =
                format!("{}{:gap$}{}", page.paint(BOLD, title.trim_end()), "", page.paint(YELLOW, mark));
            page.line(&line);
        }
    }

    fn overview(&self, page: &mut Page) {
        let processes = plural(self.processes.len() as u64, "process", "processes");
        let sessions = match self.sessions {
            0 | 1 => String::new(),
            sessions => format!(", {} sessions", count(sessions as u64)),
        };
        let unfinished = if self.complete { "" } else { ", not closed in order" };
        let wall = duration(self.wall_ns);
        page.fact("Wall time", &format!("{wall}, {processes}{sessions}{unfinished}"));
        for excerpt in &self.excerpts {
            page.fact("Excerpt", &excerpt.line());
        }
        for damage in &self.damages {
            let of = match self.sessions.max(self.damages.len()) {
                0 | 1 => String::new(),
                _ => format!("{}: ", line_safe(&damage.trace)),
            };
            let how = if damage.read_whole { "" } else { "read in part: " };
            let (reason, at) = (line_safe(&damage.reason), count(damage.offset));
            page.warning_fact("Trace", &format!("{of}{how}{reason} (at byte {at})"));
        }
        for device in self.devices.iter().take(DEVICES_SHOWN) {
            let name = if device.name.is_empty() { "unknown device" } else { &device.name };
            let label = format!("GPU {}", device.ordinal);
            page.fact(&label, &format!("{}, {}", line_safe(name), self.busy(device)));
        }
        if let more @ 1.. = self.devices.len().saturating_sub(DEVICES_SHOWN) {
            page.fact("", &format!("and {} more devices", count(more as u64)));
        }
    }

    /// What went wrong for good, before everything else.
    fn failed(&self, page: &mut Page) {
        for (begins, line) in failure_lines(&self.failures) {
            page.warning_fact(if begins { "Failure" } else { "" }, &line);
        }
        let mut label = "In flight";
        for line in in_flight_lines(&self.in_flight) {
            page.warning_fact(label, &line);
            label = "";
        }
    }

    fn busy(&self, device: &DeviceReport) -> String {
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
            (None, None) => format!("busy at least {}", time(busy_ns)),
        }
    }

    fn kernel_table(&self, page: &mut Page, rows: usize) {
        if self.kernels.is_empty() {
            return;
        }
        let timed = self.kernels.iter().any(|kernel| kernel.timed_calls > 0);
        let shown = self.kernels.get(..rows).unwrap_or(&self.kernels);
        let unit = Unit::fitting(shown);
        let heading = match page.width {
            ..NARROW => format!("Kernels ({})", unit.name),
            _ => format!("Kernels (min to max in {})", unit.name),
        };
        let mut table = match timed {
            true => Table::new(&[
                &heading, "calls", "total", "share", "min", "mean", "median", "p99", "max", "occ",
            ]),
            false => Table::new(&["Kernels (no device times)", "calls", "occ"]),
        };
        let row = |name: String, calls: u64, rest: Vec<String>, occupancy: String| {
            let mut cells = vec![name, count(calls)];
            cells.extend(rest.into_iter().take(if timed { 7 } else { 0 }));
            cells.push(occupancy);
            cells
        };
        for kernel in shown {
            let spread = &kernel.spread;
            let rest = vec![
                spread.total_ns.map_or_else(dash, duration),
                kernel.share.map_or_else(dash, percent),
                spread.min_ns.map_or_else(dash, |ns| unit.show(ns as f64)),
                spread.mean_ns.map_or_else(dash, |ns| unit.show(ns)),
                spread.median_ns.map_or_else(dash, |ns| unit.show(ns as f64)),
                spread.p99_ns.map_or_else(dash, |ns| unit.show(ns as f64)),
                spread.max_ns.map_or_else(dash, |ns| unit.show(ns as f64)),
            ];
            let occupancy = kernel.occupancy.map_or_else(dash, |share| format!("{:.0}%", share * 100.0));
            table.row(row(kernel.name.clone(), kernel.calls, rest, occupancy));
        }
        let sum =
            |of: &dyn Fn(&KernelReport) -> u64| self.kernels.iter().map(of).fold(0, u64::saturating_add);
        let calls = sum(&|kernel| kernel.calls).saturating_add(self.other_kernels.calls);
        let total_ns = sum(&|kernel| kernel.spread.total_ns.unwrap_or(0));
        let total_ns = total_ns.saturating_add(self.other_kernels.total_ns);
        let more = if self.other_kernels.calls > 0 { "more than " } else { "" };
        let in_all = if page.width < NARROW { "" } else { " in all" };
        let name = format!("{more}{}{in_all}", plural(self.kernels.len() as u64, "kernel", "kernels"));
        let mut rest = vec![String::new(); 7];
        if let Some(total) = rest.first_mut() {
            *total = duration(total_ns);
        }
        table.row(row(name, calls, rest, String::new()));
        page.table(&table, true);
    }

    /// The lines that answer for the most; without device times, for the most host time.
    fn line_table(&self, page: &mut Page, rows: usize) {
        if self.lines.is_empty() {
            return;
        }
        let timed = self.counts.timed_operations > 0;
        let weight = |line: &LineReport| match timed {
            true => (line.charged_calls, line.charged_ns),
            false => (line.charged_host_calls, Some(line.charged_host_ns)),
        };
        let unplaced = match timed {
            true => (self.no_line.calls, self.no_line.total_ns),
            false => (self.no_line.host_calls, self.no_line.host_total_ns),
        };
        let charged: Vec<&LineReport> = self.lines.iter().filter(|line| weight(line).0 > 0).collect();
        let sums = charged.iter().map(|line| weight(line)).fold(unplaced, |(calls, sum_ns), (more, ns)| {
            (calls.saturating_add(more), sum_ns.saturating_add(ns.unwrap_or(0)))
        });
        let heading = if timed { "Where" } else { "Where (no device times)" };
        let time = if timed { "total" } else { "host time" };
        let shown = charged.get(..rows).unwrap_or(&charged);
        let mostly: Vec<String> = shown.iter().map(|line| mostly(line)).collect();
        let widest = mostly.iter().map(|text| text.chars().count()).max().unwrap_or(0);
        let has_mostly = timed && page.width >= NARROW;
        // The last column is set left, by being as wide as its widest.
        let last = |text: &str| has_mostly.then(|| format!("{text:<widest$}"));
        let mut header = vec![heading.to_owned(), "calls".to_owned(), time.to_owned(), "share".to_owned()];
        header.extend(last("mostly"));
        let mut table = Table::new(&header.iter().map(String::as_str).collect::<Vec<_>>());
        let mut add = |name: String, calls: u64, ns: Option<u64>, mostly: &str| {
            let share = ns.filter(|_| sums.1 > 0).map(|ns| ns as f64 / sums.1 as f64);
            let mut row =
                vec![name, count(calls), ns.map_or_else(dash, duration), share.map_or_else(dash, percent)];
            row.extend(last(mostly));
            table.row(row);
        };
        for (line, mostly) in shown.iter().zip(&mostly) {
            let (calls, ns) = weight(line);
            add(line_safe(&line.place.text()).into_owned(), calls, ns, mostly);
        }
        if unplaced.0 > 0 {
            add("(no Python line)".to_owned(), unplaced.0, Some(unplaced.1), "");
        }
        let name = format!("{} in all", plural(charged.len() as u64, "line", "lines"));
        table.row(vec![name, count(sums.0), duration(sums.1), String::new()]);
        page.table(&table, true);
    }

    /// What the program said it was doing. Ranges lie inside each other, so there is no sum.
    fn range_table(&self, page: &mut Page, rows: usize) {
        let ranges: Vec<&RangeReport> =
            self.ranges.iter().filter(|range| range.calls + range.open + range.operations > 0).collect();
        if ranges.is_empty() {
            return;
        }
        let mut table =
            Table::new(&["Ranges (NVTX)", "calls", "host time", "GPU calls", "GPU time", "share"]);
        for range in ranges.iter().take(rows) {
            let host = if range.calls > 0 { duration(range.host_total_ns) } else { dash() };
            table.row(vec![
                line_safe(&range.text()).into_owned(),
                count(range.calls.saturating_add(range.open)),
                host,
                count(range.operations),
                range.device_total_ns.map_or_else(dash, duration),
                range.share.map_or_else(dash, percent),
            ]);
        }
        if let more @ 1.. = ranges.len().saturating_sub(rows) {
            table.row(vec![format!("and {} more", plural(more as u64, "range", "ranges"))]);
        }
        page.table(&table, false);
    }

    fn transfer_table(&self, page: &mut Page) {
        let mut table = Table::new(&["Transfers", "calls", "bytes", "time", "bandwidth"]);
        let mut add = |name: &str, moved: &MovedReport| {
            if moved.calls > 0 {
                table.row(vec![
                    name.to_owned(),
                    count(moved.calls),
                    bytes(moved.bytes),
                    moved.total_ns.map_or_else(dash, duration),
                    moved.bandwidth_mbps.filter(|rate| *rate > 0.0).map_or_else(dash, bandwidth),
                ]);
            }
        };
        for transfer in &self.transfers {
            add(transfer.direction, &transfer.moved);
        }
        add("memset", &self.memsets);
        page.table(&table, false);
    }

    fn call_table(&self, page: &mut Page) {
        const ROWS: [(&str, &str); 8] = [
            ("launch", "kernel launches"),
            ("graph_launch", "graph launches"),
            ("copy", "copies"),
            ("fill", "memsets"),
            ("wait", "waiting for the device"),
            ("module_load", "loading modules"),
            ("alloc", "allocating memory"),
            ("free", "freeing memory"),
        ];
        let mut table = Table::new(&["Time in calls", "calls", "total", "mean", "median", "p99", "max"]);
        let of_class = |class: &str| self.call_classes.iter().find(|call| call.class == class);
        for (title, call) in ROWS.iter().filter_map(|(class, title)| Some((title, of_class(class)?))) {
            table.row(call_row(title, call));
        }
        page.table(&table, false);
    }

    /// What was counted, what was lost, what it cost.
    fn balance(&self, page: &mut Page) {
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
        add(counts.failed_calls, format!("{} failed", count(counts.failed_calls)));
        page.fact("Counted", &counted.join(", "));
        let coverage = match self.device_times {
            DeviceTimes::None => format!("none of {}", operations(counts.executed_operations)),
            _ => format!(
                "{} of {}",
                percent(self.device_time_coverage),
                operations(counts.executed_operations)
            ),
        };
        let mode = if self.device_times == DeviceTimes::Windows { ", in windows" } else { "" };
        page.fact("Timed", &(coverage + mode));
        if let Some(lag_ns) = self.cost.record_lag_max_ns {
            page.fact("Lag", &format!("device records came at most {} after their end", duration(lag_ns)));
        }
        self.lost_line(page);
        // First sights cost a hundred times an ordinary call: a few samples tell of them alone.
        if self.cost.sampled_hooks > 0 && self.cost.sampled_hooks < COST_SAMPLES_MIN {
            page.fact("Cost", "too few calls to tell what a hook costs");
        } else if let (Some(each_ns), Some(all_ns)) = (self.cost.hook_ns, self.cost.hooks_total_ns) {
            let share = self.cost.hooks_share_of_wall.unwrap_or(0.0) * 100.0;
            page.fact(
                "Cost",
                &format!(
                    "{each_ns:.0} ns a hook, {} in {} hooks: {share:.2}% of wall time",
                    duration(all_ns as u64),
                    count(counts.host_calls)
                ),
            );
        }
    }

    fn lost_line(&self, page: &mut Page) {
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
        for damage in self.damages.iter().filter(|damage| !damage.read_whole) {
            lost.push(format!("all from byte {} of the trace on", count(damage.offset)));
        }
        lost
    }

    fn notice_lines(&self, page: &mut Page) {
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

/// `sm90_gemm 81%`: what a line's time went to for the most part.
fn mostly(line: &LineReport) -> String {
    const WIDTH: usize = 32;
    let Some(first) = line.charged_kernels.first() else { return String::new() };
    let name = fit(&line_safe(&first.name), WIDTH);
    match (first.total_ns, line.charged_ns) {
        (Some(ns), Some(all_ns)) if ns < all_ns => format!("{name} {}", percent(ns as f64 / all_ns as f64)),
        _ => name,
    }
}

fn call_row(title: &str, call: &CallReport) -> Vec<String> {
    let spread = &call.spread;
    vec![
        title.to_owned(),
        count(call.calls),
        spread.total_ns.map_or_else(dash, duration),
        spread.mean_ns.map_or_else(dash, |ns| duration(ns.round() as u64)),
        spread.median_ns.map_or_else(dash, duration),
        spread.p99_ns.map_or_else(dash, duration),
        spread.max_ns.map_or_else(dash, duration),
    ]
}

fn dash() -> String {
    "-".to_owned()
}

fn operations(number: u64) -> String {
    plural(number, "operation", "operations")
}

fn plural(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// One unit for a whole table, so that its digits can be compared.
struct Unit {
    name: &'static str,
    ns: f64,
}

impl Unit {
    fn fitting(kernels: &[KernelReport]) -> Unit {
        let shortest = kernels.iter().filter_map(|kernel| kernel.spread.median_ns).min().unwrap_or(0);
        match shortest {
            0..2_000_000 => Unit { name: "µs", ns: 1e3 },
            _ => Unit { name: "ms", ns: 1e6 },
        }
    }

    fn show(&self, ns: f64) -> String {
        let value = ns / self.ns;
        if value >= 999.5 { count(value.round() as u64) } else { digits(value) }
    }
}

const BOLD: &str = "1";
const DIM: &str = "2";
const YELLOW: &str = "33";

struct Page {
    text: String,
    width: usize,
    color: bool,
}

impl Page {
    fn line(&mut self, line: &str) {
        self.text += line;
        self.text.push('\n');
    }

    fn blank(&mut self) {
        self.text.push('\n');
    }

    fn paint(&self, style: &str, text: &str) -> String {
        if self.color { format!("\x1b[{style}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn strong(&mut self, line: &str) {
        let line = self.paint(BOLD, line);
        self.line(&line);
    }

    fn fact(&mut self, label: &str, text: &str) {
        self.labelled(label, text, DIM);
    }

    fn warning_fact(&mut self, label: &str, text: &str) {
        self.labelled(label, text, YELLOW);
    }

    /// A label and its text, which goes on under itself if it is long.
    fn labelled(&mut self, label: &str, text: &str, style: &str) {
        let mut label = self.paint(style, &format!("{label:<LABEL$}"));
        for piece in wrap(text, self.width.saturating_sub(LABEL)) {
            let line = format!("{label}{piece}");
            self.line(line.trim_end());
            label = " ".repeat(LABEL);
        }
    }

    /// A table under a blank line; its last row may be a sum. Nothing if it has no rows.
    fn table(&mut self, table: &Table, sum: bool) {
        if table.is_empty() {
            return;
        }
        self.blank();
        let lines = table.lines(self.width, NAME_MIN);
        let last = lines.len() - 1;
        for (at, line) in lines.iter().enumerate() {
            let line = match at {
                0 => self.paint(BOLD, line),
                _ if sum && at == last => self.paint(DIM, line),
                _ => line.clone(),
            };
            self.line(&line);
        }
    }
}

/// Breaks at spaces; a word longer than the line is cut.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let word = fit(word, width);
        let Some(line) = lines.last_mut() else { break };
        if line.is_empty() {
            *line = word;
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(&word);
        } else {
            lines.push(word);
        }
    }
    lines
}
