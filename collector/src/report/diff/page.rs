//! A comparison for people: as a page, and as a comment for a pull request.

use crate::label::units::{count, duration};
use crate::names::{line_safe, short_command};
use crate::report::diff::stacks::innermost_first;
use crate::report::diff::{ComparedRow, DiffReport, FigureUnit, MeasuredTwice, OnlyIn, SideReport};
use crate::report::named::markdown_safe;
use crate::report::table::{Table, fit};
use crate::report::text::page::{NAME_MIN, TextPage};
use crate::report::words::{dash, plural};

const KERNELS_SHOWN: usize = 15;
const LINES_SHOWN: usize = 10;
const MODULES_SHOWN: usize = 8;
const STACKS_SHOWN: usize = 5;
/// The least change of a cause of idle time that is shown, as a share of the wall time.
const CAUSE_SHARE_MIN: f64 = 0.001;
const WIDTH_MIN: usize = 60;
const WIDTH_MAX: usize = 160;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageFormat {
    Text { width: usize },
    Markdown,
}

/// A table of a page, as text.
#[derive(Debug)]
struct PagePart {
    header: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

const DIFFERENCE: &str = "difference";
const SPREAD: &str = "± 95%";
const BEYOND: &str = "beyond noise";
const CALLS: [&str; 2] = ["calls before", "calls after"];

impl DiffReport {
    /// The comparison as one text that ends in a newline.
    pub fn to_page(&self, format: PageFormat) -> String {
        match format {
            PageFormat::Text { width } => self.text(width.clamp(WIDTH_MIN, WIDTH_MAX)),
            PageFormat::Markdown => self.markdown(),
        }
    }

    fn text(&self, width: usize) -> String {
        let mut page = TextPage { text: String::new(), width, color: false, verbose: false };
        page.line(&fit("gputrace diff", width));
        page.fact("Before", &self.before.text());
        page.fact("After", &self.after.text());
        for failed in &self.failed {
            page.fact("Failed", &line_safe(failed));
        }
        for note in &self.notes {
            page.fact("Note", &line_safe(note));
        }
        for part in self.parts() {
            let mut table = Table::new(&part.header).optional(&[CALLS[0], CALLS[1], SPREAD, "before"]);
            part.rows.into_iter().for_each(|row| table.row(row));
            table.narrow(width, NAME_MIN);
            page.table(table, false);
        }
        page.text
    }

    fn markdown(&self) -> String {
        let wall = self.totals.iter().find(|total| total.name == "wall_time");
        let wall = wall.map(|total| {
            let show = |value: Option<f64>| value.map_or_else(dash, |ns| amount(FigureUnit::Time, ns));
            let measured = &total.measured;
            let (before, after) = (show(measured.before), show(measured.after));
            format!(": wall time {before} → {after} ({})", change(measured, None))
        });
        let mut text = format!("### gputrace diff{}\n\n", wall.unwrap_or_default());
        for (side, report) in [("Before", &self.before), ("After", &self.after)] {
            text += &format!("- {side}: {}\n", markdown_safe(&report.text()));
        }
        for failed in &self.failed {
            text += &format!("- **Failed**: {}\n", markdown_safe(failed));
        }
        for part in self.parts() {
            let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
            text.push('\n');
            text += &line(part.header.iter().map(|cell| (*cell).to_owned()).collect());
            let rule = (0..part.header.len()).map(|at| if at == 0 { "---" } else { "---:" }.to_owned());
            text += &line(rule.collect());
            for mut row in part.rows {
                row.resize(part.header.len(), String::new());
                text += &line(row.iter().map(|cell| markdown_safe(cell)).collect());
            }
        }
        text.push('\n');
        for note in &self.notes {
            text += &format!("- {}\n", markdown_safe(note));
        }
        text
    }

    fn has_intervals(&self) -> bool {
        self.before.runs > 1 && self.after.runs > 1
    }

    fn parts(&self) -> Vec<PagePart> {
        let is_by_step = self.kernels.iter().any(|row| row.per_step.is_some());
        let heading = |whole, by_step| if is_by_step { by_step } else { whole };
        let kernels = [heading("Kernels", "Kernels, per step"), "kernel", "kernels"];
        let lines = [heading("Where", "Where, per step"), "line", "lines"];
        let modules = [heading("Modules", "Modules, per step"), "module", "modules"];
        let kernels = self.rows(kernels, &self.kernels, KERNELS_SHOWN, true);
        let lines = self.rows(lines, &self.lines, LINES_SHOWN, true);
        let modules = self.rows(modules, &self.modules, MODULES_SHOWN, false);
        // Without lines a stack is little more than its kernel.
        let stacks = (!self.lines.is_empty() && !self.stacks.is_empty())
            .then(|| self.stacks_part(heading("Stacks", "Stacks, per step")));
        [Some(self.overview()), kernels, lines, modules, stacks].into_iter().flatten().collect()
    }

    /// The stacks that changed the most, each with its innermost frame first.
    fn stacks_part(&self, heading: &'static str) -> PagePart {
        let shown = self.stacks.iter().take(STACKS_SHOWN).cloned();
        let shown: Vec<ComparedRow> =
            shown.map(|row| ComparedRow { name: innermost_first(&row.name), ..row }).collect();
        let (header, mut rows) = self
            .rows([heading, "stack", "stacks"], &shown, STACKS_SHOWN, false)
            .map_or_else(|| (self.header(heading, &CALLS), Vec::new()), |part| (part.header, part.rows));
        let less = self.stacks_left_out.saturating_add(self.stacks.len().saturating_sub(STACKS_SHOWN) as u64);
        if less > 0 {
            rows.push(vec![format!("{} that changed less", plural(less, "stack", "stacks"))]);
        }
        if self.stacks_the_same > 0 {
            rows.push(vec![format!("{} the same", plural(self.stacks_the_same, "stack", "stacks"))]);
        }
        PagePart { header, rows }
    }

    fn header(&self, first: &'static str, last: &[&'static str]) -> Vec<&'static str> {
        let mut header = vec![first, "before", "after", DIFFERENCE];
        header.extend(self.has_intervals().then_some(SPREAD));
        header.push("change");
        header.extend(self.has_intervals().then_some(BEYOND));
        header.extend(last);
        header
    }

    /// The cells of a figure, from `before` to `beyond noise`.
    fn cells(&self, unit: FigureUnit, measured: &MeasuredTwice, only: Option<OnlyIn>) -> Vec<String> {
        let show = |value: Option<f64>| value.map_or_else(dash, |value| amount(unit, value));
        let shown = |side| if only == Some(side) { None } else { Some(()) };
        let mut cells = vec![
            show(measured.before.filter(|_| shown(OnlyIn::After).is_some())),
            show(measured.after.filter(|_| shown(OnlyIn::Before).is_some())),
            measured.difference.map_or_else(dash, |value| signed(unit, value)),
        ];
        if self.has_intervals() {
            let half = measured.interval.map(|[least, most]| (most - least) / 2.0);
            cells.push(half.map_or_else(dash, |half| format!("± {}", amount(unit, half))));
        }
        cells.push(change(measured, only));
        if self.has_intervals() {
            let beyond = measured.beyond_noise.map(|beyond| if beyond { "yes" } else { "no" }.to_owned());
            cells.push(beyond.unwrap_or_else(dash));
        }
        cells
    }

    /// The figures of the whole run and of its devices.
    fn overview(&self) -> PagePart {
        let mut rows = Vec::new();
        let mut add = |name: String, unit: FigureUnit, measured: &MeasuredTwice| {
            let mut row = vec![name];
            row.extend(self.cells(unit, measured, None));
            rows.push(row);
        };
        let wall = self.totals.first().and_then(|total| total.measured.before.or(total.measured.after));
        for (at, total) in self.totals.iter().enumerate() {
            let is_nothing =
                total.measured.before.unwrap_or(0.0) == 0.0 && total.measured.after.unwrap_or(0.0) == 0.0;
            if !is_nothing {
                add(total.title.to_owned(), total.unit, &total.measured);
            }
            if at > 0 {
                continue;
            }
            for device in &self.devices {
                add(format!("GPU {} busy", device.ordinal), FigureUnit::Time, &device.busy);
                add(format!("GPU {} idle", device.ordinal), FigureUnit::Time, &device.idle);
                for cause in &device.idle_causes {
                    if cause.measured.distance() > wall.unwrap_or(0.0) * CAUSE_SHARE_MIN {
                        add(format!("  {}", cause.cause.text()), FigureUnit::Time, &cause.measured);
                    }
                }
            }
        }
        PagePart { header: self.header("In all", &[]), rows }
    }

    /// Those that changed, the first ones of them; `None` if there is no row at all. Rows that contain others
    /// do not add up.
    fn rows(
        &self,
        [heading, one, many]: [&'static str; 3],
        all: &[ComparedRow],
        shown: usize,
        add_up: bool,
    ) -> Option<PagePart> {
        let changed: Vec<&ComparedRow> = all.iter().filter(|row| !row.is_same()).collect();
        let calls = |value: Option<f64>| value.map_or_else(dash, |value| amount(FigureUnit::Count, value));
        let mut rows: Vec<Vec<String>> = Vec::new();
        for row in changed.iter().take(shown) {
            let mut cells = vec![line_safe(&row.name).into_owned()];
            let (time, of_calls) = row.shown();
            cells.extend(self.cells(FigureUnit::Time, time, row.only));
            cells.extend([calls(of_calls.before), calls(of_calls.after)]);
            rows.push(cells);
        }
        let mut rest = Vec::new();
        if let more @ 1.. = changed.len().saturating_sub(shown) {
            let sum: f64 = changed.iter().skip(shown).filter_map(|row| row.shown().0.difference).sum();
            let name = format!("{} that changed less", plural(more as u64, one, many));
            let sum = if add_up { signed(FigureUnit::Time, sum) } else { String::new() };
            rest.push(vec![name, String::new(), String::new(), sum]);
        }
        if let same @ 1.. = all.len() - changed.len() {
            rest.push(vec![format!("{} the same", plural(same as u64, one, many))]);
        }
        rows.extend(rest);
        (!rows.is_empty()).then(|| {
            // Rows that are counted together have no calls.
            let last: &[&str] = if changed.is_empty() { &[] } else { &CALLS };
            PagePart { header: self.header(heading, last), rows }
        })
    }
}

impl SideReport {
    /// `python train.py, 3 runs on NVIDIA H100 80GB HBM3`.
    fn text(&self) -> String {
        let command = short_command(&self.command);
        let runs = plural(self.runs as u64, "run", "runs");
        let simulated = if self.simulated { " (simulated)" } else { "" };
        let on = match self.devices.is_empty() {
            true => String::new(),
            false => format!(" on {}", self.devices.join(", ")),
        };
        let command = if command.is_empty() { "unknown command" } else { &command };
        line_safe(&format!("{command}, {runs}{on}{simulated}")).into_owned()
    }
}

fn amount(unit: FigureUnit, value: f64) -> String {
    match unit {
        FigureUnit::Time => duration(value.round().max(0.0) as u64),
        // A mean over runs or steps need not be a whole number.
        FigureUnit::Count if value > 0.0 && value < 1.0 => format!("{value:.2}"),
        FigureUnit::Count if value.fract() != 0.0 && value < 1000.0 => format!("{value:.1}"),
        FigureUnit::Count => count(value.round().max(0.0) as u64),
    }
}

fn signed(unit: FigureUnit, value: f64) -> String {
    let sign = match value {
        0.0 => "",
        0.0.. => "+",
        _ => "-",
    };
    sign.to_owned() + &amount(unit, value.abs())
}

/// `+12.3%`, or that only one side has it.
fn change(measured: &MeasuredTwice, only: Option<OnlyIn>) -> String {
    match only {
        Some(OnlyIn::Before) => return "only before".to_owned(),
        Some(OnlyIn::After) => return "only after".to_owned(),
        None => {}
    }
    match measured.change {
        Some(change) if change.abs() >= 10.0 => format!("×{:.0}", 1.0 + change),
        Some(0.0) => "0%".to_owned(),
        Some(change) => format!("{:+.1}%", 100.0 * change),
        None => dash(),
    }
}
