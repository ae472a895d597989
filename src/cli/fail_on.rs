//! `--fail-on` of `report`: an exit code of its own if a figure is not as it should be.

use clap::{Arg, ArgAction, ArgMatches};
use gputrace_collector::report::{Report, readable_bytes};

use crate::cli::condition::{Condition, Quantity};
use crate::cli::exit_code;
use crate::cli::failure::Failure;
use crate::cli::talk::say;

/// A name, what it measures, and how it is found.
type Figure = (&'static str, Quantity, fn(&Report) -> u64);

/// The figures that conditions may name, what each measures, and how it is found. Of several processes, the
/// peak is that of the one with the highest.
const FIGURES: [Figure; 3] = [
    ("leaked", Quantity::Bytes, |report| sum(report, |process| process.leaked_bytes)),
    ("leaked_allocations", Quantity::Count, |report| sum(report, |process| process.leaked_allocations)),
    ("peak", Quantity::Bytes, |report| {
        report.memory.processes.iter().map(|process| process.peak_bytes).max().unwrap_or(0)
    }),
];

fn sum(report: &Report, of: fn(&gputrace_collector::report::ProcessMemoryReport) -> u64) -> u64 {
    report.memory.processes.iter().map(of).fold(0, u64::saturating_add)
}

pub fn argument() -> Arg {
    Arg::new("fail-on")
        .long("fail-on")
        .value_name("COND")
        .action(ArgAction::Append)
        .value_parser(Condition::parse)
        .help("Exit with 4 if this is true, as 'leaked>0', 'peak>20GiB'; repeatable")
}

/// The conditions that were given, whose figures exist and have the units that they are compared with.
pub fn conditions(matches: &ArgMatches) -> Result<Vec<&Condition>, Failure> {
    let all: Vec<&Condition> = matches.get_many("fail-on").into_iter().flatten().collect();
    for condition in &all {
        let figure = FIGURES.iter().find(|(name, _, _)| *name == condition.name);
        let wrong = match figure {
            None => Some("there is no such figure".to_owned()),
            Some(_) if condition.pattern.is_some() => Some(format!("{} takes no pattern", condition.name)),
            Some((name, Quantity::Bytes, _)) if !condition.fits(Quantity::Bytes) => {
                Some(format!("{name} is compared with bytes, as in '{name}>20GiB'"))
            }
            Some((name, quantity, _)) if !condition.fits(*quantity) => {
                Some(format!("{name} is compared with a number without a unit"))
            }
            Some(_) => None,
        };
        if let Some(wrong) = wrong {
            let names: Vec<&str> = FIGURES.iter().map(|(name, _, _)| *name).collect();
            let failure = Failure::new(format!("--fail-on '{condition}': {wrong}"));
            return Err(failure.hint(format!("figures: {}", names.join(", "))).code(exit_code::USAGE));
        }
    }
    Ok(all)
}

/// Says which conditions hold, and returns the exit code for that.
pub fn check(conditions: &[&Condition], report: &Report) -> Option<u8> {
    let mut code = None;
    for condition in conditions {
        let Some((_, quantity, figure)) = FIGURES.iter().find(|(name, _, _)| *name == condition.name) else {
            continue;
        };
        let figure = figure(report);
        if !condition.holds(figure as f64) {
            continue;
        }
        let shown = if *quantity == Quantity::Bytes { readable_bytes(figure) } else { figure.to_string() };
        let first = match condition.name.as_str() {
            "peak" => report.memory.lines.first(),
            _ => report.memory.leaks().first().copied(),
        };
        let most =
            first.map_or_else(String::new, |line| format!(", first of all at {}", line.text(usize::MAX)));
        say(format_args!("gputrace: --fail-on '{condition}': {} is {shown}{most}", condition.name));
        code = Some(exit_code::CONDITION);
    }
    code
}
