//! `--fail-on` of `report` and `diff`: an exit code of its own if a figure is not as it should be.

use clap::{Arg, ArgAction, ArgMatches};
use gputrace_collector::filter::Glob;
use gputrace_collector::report::diff::MeasuredTwice;
use gputrace_collector::report::{ProcessMemoryReport, Report, grouped_count, readable_bytes, readable_time};

use crate::cli::condition::{Condition, Quantity};
use crate::cli::exit_code;
use crate::cli::failure::Failure;
use crate::cli::talk::say;

/// A figure that conditions may name.
struct Figure {
    name: &'static str,
    quantity: Quantity,
    /// Whether a pattern may choose kernels by name.
    takes_pattern: bool,
    /// `None` where the trace does not have it.
    of: fn(&Report, Option<&Glob>) -> Option<f64>,
}

/// The figures, what each measures, and how it is found. Of several processes, the peak is that of the one
/// with the highest; of several devices, busy and idle time are sums.
const FIGURES: [Figure; 13] = [
    figure("leaked", Quantity::Bytes, |report, _| sum(report, |process| process.leaked_bytes)),
    figure("leaked_allocations", Quantity::Count, |report, _| {
        sum(report, |process| process.leaked_allocations)
    }),
    figure("live_at_end", Quantity::Bytes, |report, _| sum(report, |process| process.unfreed_bytes)),
    figure("live_at_end_allocations", Quantity::Count, |report, _| {
        sum(report, |process| process.unfreed_allocations)
    }),
    figure("peak", Quantity::Bytes, |report, _| {
        let peaks = report.memory.processes.iter().map(|process| process.peak_bytes);
        has_memory(report).then(|| peaks.max().unwrap_or(0) as f64)
    }),
    figure("wall_time", Quantity::Time, |report, _| Some(report.wall_ns as f64)),
    figure("step_time", Quantity::Time, |report, _| report.step_ns()),
    figure("busy_time", Quantity::Time, |report, _| report.busy_ns().map(|ns| ns as f64)),
    figure("idle_time", Quantity::Time, |report, _| report.idle_ns().map(|ns| ns as f64)),
    figure("idle_share", Quantity::Percent, |report, _| report.idle_share().map(|share| 100.0 * share)),
    figure("launches", Quantity::Count, |report, _| Some(report.counts.launches as f64)),
    Figure {
        name: "kernel_time",
        quantity: Quantity::Time,
        takes_pattern: true,
        of: |report, pattern| report.kernel_ns(pattern).map(|ns| ns as f64),
    },
    Figure {
        name: "kernel_calls",
        quantity: Quantity::Count,
        takes_pattern: true,
        of: |report, pattern| Some(report.kernel_calls(pattern) as f64),
    },
];

const fn figure(
    name: &'static str,
    quantity: Quantity,
    of: fn(&Report, Option<&Glob>) -> Option<f64>,
) -> Figure {
    Figure { name, quantity, takes_pattern: false, of }
}

fn sum(report: &Report, of: fn(&ProcessMemoryReport) -> u64) -> Option<f64> {
    let all = report.memory.processes.iter().map(of);
    has_memory(report).then(|| all.fold(0, u64::saturating_add) as f64)
}

/// What is held is known of whole traces only.
fn has_memory(report: &Report) -> bool {
    report.part.is_none()
}

/// What conditions are about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// One report, in which nothing grows.
    Report,
    /// Two sides: `%` is the change from one to the other.
    Sides,
}

pub fn argument(subject: Subject) -> Arg {
    Arg::new("fail-on")
        .long("fail-on")
        .value_name("COND")
        .action(ArgAction::Append)
        .value_parser(Condition::parse)
        .help(match subject {
            Subject::Report => "Exit with 4 if this is true, as 'leaked>0', 'peak>20GiB'; repeatable",
            Subject::Sides => {
                "Exit with 4 if this is true, as 'wall_time>5%', 'kernel_time[gemm*]>2ms'; repeatable"
            }
        })
}

/// The conditions that were given, whose figures exist and have the units that they are compared with.
pub fn conditions(matches: &ArgMatches, subject: Subject) -> Result<Vec<&Condition>, Failure> {
    let all: Vec<&Condition> = matches.get_many("fail-on").into_iter().flatten().collect();
    for condition in &all {
        if let Some(wrong) = wrong(condition, subject) {
            let of_subject =
                |figure: &&Figure| subject == Subject::Sides || figure.quantity != Quantity::Percent;
            let names: Vec<&str> = FIGURES.iter().filter(of_subject).map(|figure| figure.name).collect();
            let failure = Failure::new(format!("--fail-on '{condition}': {wrong}"));
            return Err(failure.hint(format!("figures: {}", names.join(", "))).code(exit_code::USAGE));
        }
    }
    Ok(all)
}

fn wrong(condition: &Condition, subject: Subject) -> Option<String> {
    let Some(Figure { name, quantity, takes_pattern, .. }) = named(condition) else {
        return Some("there is no such figure".to_owned());
    };
    if condition.pattern.is_some() && !takes_pattern {
        return Some(format!("{name} takes no pattern"));
    }
    let is_percent = condition.is_of(Quantity::Percent);
    match (subject, quantity) {
        (Subject::Report, _) if is_percent || *quantity == Quantity::Percent => {
            Some("% is for two sides: gputrace diff".to_owned())
        }
        (Subject::Sides, _) if is_percent => None,
        _ if condition.fits(*quantity) => None,
        (_, Quantity::Bytes) => Some(format!("{name} is compared with bytes, as in '{name}>20GiB'")),
        (_, Quantity::Time) => Some(format!("{name} is compared with a time, as in '{name}>2ms'")),
        (_, Quantity::Percent) => Some(format!("{name} is compared with percent, as in '{name}>30%'")),
        (_, Quantity::Count) => Some(format!("{name} is compared with a number without a unit")),
    }
}

fn named(condition: &Condition) -> Option<&'static Figure> {
    FIGURES.iter().find(|figure| figure.name == condition.name)
}

fn shown(quantity: Quantity, value: f64) -> String {
    match quantity {
        Quantity::Bytes => readable_bytes(value.round() as u64),
        Quantity::Time => readable_time(value.round() as u64),
        Quantity::Percent => format!("{value:.1}%"),
        Quantity::Count => grouped_count(value.round() as u64),
    }
}

/// Says which conditions hold, and returns the exit code for that.
pub fn check(conditions: &[&Condition], report: &Report) -> Option<u8> {
    let mut code = None;
    warn_about_patterns(conditions, &[report]);
    for condition in conditions {
        let Some(failed) = failed(condition, |figure, glob| (figure.of)(report, glob), "") else { continue };
        let first = match condition.name.as_str() {
            "peak" => report.memory.lines.first(),
            "leaked" | "leaked_allocations" => report.memory.leaks().first().copied(),
            "live_at_end" | "live_at_end_allocations" => {
                report.memory.lines.iter().max_by_key(|line| line.end_bytes)
            }
            _ => None,
        };
        let most =
            first.map_or_else(String::new, |line| format!(", first of all at {}", line.text(usize::MAX)));
        say(format_args!("gputrace: --fail-on {failed}{most}"));
        code = Some(exit_code::CONDITION);
    }
    code
}

/// The conditions that hold of two sides, each with its figure. A value in percent is compared with the
/// change of the figure, any other one with the figure after.
pub fn check_sides(conditions: &[&Condition], before: &[Report], after: &[Report]) -> Vec<String> {
    warn_about_patterns(conditions, &before.iter().chain(after).collect::<Vec<_>>());
    let of_condition = |condition: &&Condition| {
        let measured = |figure: &Figure, glob: Option<&Glob>| {
            let side = |runs: &[Report]| runs.iter().map(|run| (figure.of)(run, glob)).collect::<Vec<_>>();
            MeasuredTwice::new(&side(before), &side(after))
        };
        let figure = named(condition)?;
        if !condition.is_of(Quantity::Percent) || figure.quantity == Quantity::Percent {
            return failed(condition, |figure, glob| measured(figure, glob).after, " after");
        }
        let glob = condition.pattern.as_deref().map(Glob::new);
        let measured = measured(figure, glob.as_ref());
        let (Some(growth), Some(old), Some(new)) =
            (measured.growth_percent(), measured.before, measured.after)
        else {
            return Some(unknown(condition));
        };
        let [old, new] = [old, new].map(|value| shown(figure.quantity, value));
        let noise = match measured.beyond_noise {
            Some(true) => ", beyond noise",
            Some(false) => ", which may be noise",
            None => "",
        };
        let text =
            format!("'{condition}': {} went from {old} to {new} ({growth:+.1}%{noise})", condition.name);
        condition.holds(growth).then_some(text)
    };
    conditions.iter().filter_map(of_condition).collect()
}

/// A kernel that was renamed takes no time any more: whoever wrote the pattern should know.
fn warn_about_patterns(conditions: &[&Condition], reports: &[&Report]) {
    for condition in conditions.iter().filter(|condition| condition.name == "kernel_time") {
        let Some(pattern) = &condition.pattern else { continue };
        let glob = Glob::new(pattern);
        if reports.iter().all(|report| report.kernel_calls(Some(&glob)) == 0) {
            say(format_args!("gputrace: --fail-on '{condition}': no kernel matches {pattern}"));
        }
    }
}

/// The words for a condition that holds. One whose figure is not known counts as such: nobody may take it for
/// one that was checked.
fn failed(
    condition: &Condition,
    of: impl Fn(&Figure, Option<&Glob>) -> Option<f64>,
    when: &str,
) -> Option<String> {
    let figure = named(condition)?;
    let glob = condition.pattern.as_deref().map(Glob::new);
    let Some(value) = of(figure, glob.as_ref()) else { return Some(unknown(condition)) };
    let (name, text) = (&condition.name, shown(figure.quantity, value));
    condition.holds(value).then(|| format!("'{condition}': {name} is {text}{when}"))
}

fn unknown(condition: &Condition) -> String {
    format!("'{condition}': {} is not known: it needs device times, or the whole trace", condition.name)
}
